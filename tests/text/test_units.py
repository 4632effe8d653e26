"""What readers share: times in one form, and values of one name joined."""

import pytest
from xml_readers import peak_memory

from knnmt.text.units import Unit, described, joined_values, utc_time


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("20240501T120000Z", "2024-05-01T12:00:00Z"),
        ("2024-05-01T12:00:00Z", "2024-05-01T12:00:00Z"),
        ("2024-05-01T14:00:00+02:00", "2024-05-01T12:00:00Z"),
        (" 2024-05-01 12:00 ", "2024-05-01T12:00:00Z"),
        ("2024-05-01T12:00:00.999Z", "2024-05-01T12:00:00Z"),
        ("2024-05-01", "2024-05-01T00:00:00Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("0001-01-01T00:00:00+02:00", ""),
        ("20241301T120000Z", ""),
        ("gestern", ""),
        ("", ""),
    ],
)
def test_utc_time(text: str, expected: str) -> None:
    assert utc_time(text) == expected


def test_values_of_one_name_become_lines() -> None:
    assert joined_values([("a", "1"), ("b", "2"), ("a", ""), ("a", "3")]) == {"a": "1\n\n3", "b": "2"}


def test_values_of_one_name_are_joined_once() -> None:
    """Text that grows by a line at a time would be copied for each: the peak would hold the text twice."""
    value = "x" * 1_000
    with peak_memory() as peak:
        lines = joined_values(("note", value) for _ in range(1_000))["note"]
    assert len(lines) == 1_000 * 1_001 - 1
    assert peak[0] < 1.5 * len(lines)


def test_fields_and_metadata_of_one_name() -> None:
    unit = described("s", "t", {"created": "2024-05-01", "corpus": "x", "a": "1"}, {"created": "2", "corpus": "y"})
    assert unit == Unit("s", "t", "2024-05-01T00:00:00Z", {"a": "1", "created": "2"})
