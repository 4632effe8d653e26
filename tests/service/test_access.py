"""Keys, roles, rates, and filters that only ever narrow."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.errors import SettingsError
from knnmt.service.access import Access, Gate, KeyFile, Rates, add_api_key, read_api_keys, remove_api_key
from knnmt.service.failures import BadRequest, Forbidden, TooFast
from knnmt.service.scopes import both, completed, meets


def test_the_file_holds_no_key(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    key = add_api_key(file, Access(name="team", role="correct", rate=60, stores=("house",), filters=("client=a",)))
    assert key not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    assert KeyFile(file).access_of(key) == read_api_keys(file)[0].access
    assert read_api_keys(file)[0].access.filters == ("client=a",)


def test_a_key_can_be_taken_away_while_the_server_runs(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    first, second = (add_api_key(file, Access(name=name)) for name in ("one", "two"))
    keys = KeyFile(file)
    remove_api_key(file, "one")
    assert keys.access_of(first) is None
    assert keys.access_of(second) is not None


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"keys": [{}]}', '{"keys": [{"sha256": "x", "name": "n", "role": "king"}]}']
)
def test_a_broken_file_is_named(tmp_path: Path, content: str) -> None:
    file = tmp_path / "keys.json"
    file.write_text(content)
    with pytest.raises(SettingsError):
        KeyFile(file)


def test_the_gate(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    key = add_api_key(file, Access(name="team"))
    gate = Gate(KeyFile(file), Access(name="anyone", role="admin"))
    assert gate.admit(key).name == "team"
    with pytest.raises(BadRequest):
        gate.admit(None)
    with pytest.raises(Forbidden):
        gate.admit(key + "x")
    with pytest.raises(Forbidden):
        gate.admit(json.loads(file.read_text())["keys"][0]["sha256"])


def test_a_rate_is_the_client_s_own() -> None:
    rates, fast, other = Rates(), Access(name="fast", rate=3), Access(name="other", rate=3)
    for _ in range(3):
        rates.take(fast)
    with pytest.raises(TooFast) as refused:
        rates.take(fast)
    assert 1 <= int(refused.value.headers["Retry-After"]) <= 20
    rates.take(other)


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        ((), (), ()),
        (("client=a",), (), ("client=a",)),
        (("client=a",), ("client=b",), None),
        (("client=a", "client=b"), ("client=b", "client=c"), ("client=b",)),
        (("client=a",), ("project=x",), ("client=a", "project=x")),
        (("client!=a",), ("client=a",), ("client!=a", "client=a")),
    ],
)
def test_filters_of_key_and_request_hold_together(
    outer: tuple[str, ...], inner: tuple[str, ...], expected: tuple[str, ...] | None
) -> None:
    assert both(outer, inner) == expected


FILTERS = st.lists(
    st.builds("{}{}{}".format, st.sampled_from("ab"), st.sampled_from(["=", "!=", "<", ">="]), st.sampled_from("123")),
    max_size=4,
)
PAIR = st.dictionaries(st.sampled_from("ab"), st.sampled_from("0123"))


@given(FILTERS, FILTERS, PAIR)
def test_together_is_exactly_what_meets_both(outer: list[str], inner: list[str], fields: dict[str, str]) -> None:
    joined = both(outer, inner)
    expected = meets(outer, fields) and meets(inner, fields)
    assert (joined is not None and meets(joined, fields)) == expected


def test_what_a_filter_asks_for_is_written() -> None:
    assert completed(("client=a", "client=b", "year>=2"), {"x": "y"}) == {"client": "a", "x": "y"}
    assert completed(("client=a", "client=b"), {"client": "b"}) == {"client": "b"}
