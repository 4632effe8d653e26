"""What must be repeated: found, compared, mended, masked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.units.protected import MASKS, balance, masked, repaired, things


def lost(source: str, translation: str) -> list[str]:
    return [thing.text for thing in balance(source, translation).lost]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no thing", []),
        ("%s at 1,000.5 in {0}", ["%s", "1,000.5", "{0}"]),
        ("12 000 km", ["12 000"]),
        ("in 2020 300 came", ["2020", "300"]),
        ("https://example.org/{0}/1.html, then www.a.de", ["https://example.org/{0}/1.html", "www.a.de"]),
        ("mail me.too@example.co.uk.", ["me.too@example.co.uk"]),
        ("[X10X] and ${x}", ["[X10X]", "${x}"]),
        ("{n, plural, one {# file} other {{x} files}}!", ["{n, plural, one {# file} other {{x} files}}"]),
        ("&amp; <b>", ["&amp;", "<b>"]),
        ("© 2024 Acme™ ✓ done → next 5 °C № 3", ["©", "2024", "™", "✓", "→", "5", "3"]),
        ("Hi 👋🏽, ❤️ and 👩‍💻 🇩🇪!", ["👋🏽", "❤️", "👩‍💻", "🇩🇪"]),
    ],
)
def test_things(text: str, expected: list[str]) -> None:
    assert [thing.text for thing in things(text)] == expected
    assert all(text[thing.start : thing.end] == thing.text for thing in things(text))


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("1,000.5", "1.000,5", []),
        ("1000", "1 000", []),
        ("1,000", "1000", []),
        ("3.5", "3,5", []),
        ("3.5", "35", ["3.5"]),
        ("3 cats", "drei Katzen", ["3"]),
        ("3 and 3", "3 und", ["3"]),
        ("12", "٣ ١٢", []),
        ("12", "121", ["12"]),
        ("%s %s", "%s", ["%s"]),
        ("at {0}", "bei { 0 }", ["{0}"]),
        ("© and ©", "© und", ["©"]),
    ],
)
def test_what_is_lost(source: str, translation: str, expected: list[str]) -> None:
    assert lost(source, translation) == expected


def test_what_is_too_much() -> None:
    assert [thing.text for thing in balance("%s", "%s %s {0} 12").extra] == ["%s", "{0}"]
    assert balance("a", "a").holds
    assert balance("a -> b", "a → b ©").holds  # a symbol more is how the other language writes it


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("at %1$s", "bei % 1 $ S.", "bei %1$s."),
        ("at {0}", "bei { 0 }.", "bei {0}."),
        ("at ${x}", "bei $ {x}", "bei ${x}"),
        ("at %s", "bei", "bei"),
        ("at {0}", "{ 0 } { 0 }", "{ 0 } { 0 }"),
    ],
)
def test_spaces_inside_are_mended(source: str, translation: str, expected: str) -> None:
    assert repaired(source, translation) == expected


TEXTS = st.lists(st.sampled_from(["word", "%s", "{0}", "42", "[0]", "7101", "1,000", "a@b.de"]), max_size=6)


@given(TEXTS.map(" ".join), st.sampled_from(MASKS))
def test_what_is_masked_comes_back(text: str, mask: object) -> None:
    hidden = masked(text, mask)  # type: ignore[arg-type]
    assert hidden.revealed(hidden.text) == text
    assert len(set(hidden.masks)) == len(hidden.masks) == len(things(text))
    if hidden.masks:
        assert hidden.revealed(f"{hidden.text} {hidden.masks[0]}") is None
        assert hidden.revealed(hidden.text.replace(hidden.masks[0], "")) is None


@pytest.mark.parametrize(
    ("translation", "expected"),
    [("costs [0] at {1}", None), ("costs (0] [0] at [1]", None), ("costs [ [0] at [1]", None), ("[1] [0]", "%d 5")],
)
def test_nothing_of_a_mask_may_be_left_over(translation: str, expected: str | None) -> None:
    assert masked("kostet 5 bei %d", MASKS[0]).revealed(translation) == expected


def test_brackets_of_the_source_may_stay() -> None:
    assert masked("kostet [viel] 5", MASKS[0]).revealed("costs [much] [0]") == "costs [much] 5"


@pytest.mark.parametrize(
    ("mask", "translation"),
    [(1, "7101_x = 7101"), (1, "17101 and 7101"), (1, "7,101 and 7101"), (3, "X0Xs at X0X"), (3, "x0x at X0X")],
)
def test_a_mask_that_runs_into_a_word_is_left_over(mask: int, translation: str) -> None:
    assert masked("at %d", MASKS[mask]).revealed(translation) is None
