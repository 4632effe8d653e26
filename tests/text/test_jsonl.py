"""JSON lines: where the texts are, what else a line says, and every way in which it is broken."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parallel_text import STEADILY, TEXT, message, one_file, pairs_of

from knnmt.text.corpus import Segment, Skipped
from knnmt.text.jsonl import object_of_pairs


@pytest.mark.parametrize(
    ("record", "created", "metadata"),
    [
        ({}, "", {}),
        ({"id": "7", "client": "A"}, "", {"id": "7", "client": "A"}),
        ({"created": "2024-05-01T14:00:00+02:00"}, "2024-05-01T12:00:00Z", {}),
        ({"created": "gestern"}, "", {"created": "gestern"}),
        ({"corpus": "house"}, "", {}),
        ({"score": 0.5, "tags": ["a"], "checked": True, "none": None}, "", {}),
        ({"metadata": {"source": "x", "n": 1}}, "", {"source": "x"}),
        ({"metadata": "text"}, "", {"metadata": "text"}),
    ],
)
def test_other_fields_of_jsonl_are_metadata(
    tmp_path: Path, record: dict[str, object], created: str, metadata: dict[str, str]
) -> None:
    for sides in ({"source": "a", "target": "b"}, {"translation": {"de": "a", "en": "b"}}):
        corpus = one_file(tmp_path / "a.jsonl", json.dumps(record | sides))
        assert list(corpus.segments(Skipped())) == [Segment("a", "b", "a", 1, created, metadata)]


@given(st.lists(st.tuples(TEXT, TEXT)), st.sampled_from(["", ".gz"]))
@STEADILY
def test_jsonl_gives_back_what_was_written(tmp_path: Path, pairs: list[tuple[str, str]], gz: str) -> None:
    plain = "".join(json.dumps({"source": s, "target": t}, ensure_ascii=False) + "\n" for s, t in pairs)
    nested = "".join(json.dumps({"translation": {"en": t, "de": s}}) + "\n" for s, t in pairs)
    assert pairs_of(one_file(tmp_path / f"plain.jsonl{gz}", plain)) == pairs
    assert pairs_of(one_file(tmp_path / f"nested.jsonl{gz}", nested)) == pairs


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{", "line 2, column 2 is not JSON: Expecting property name enclosed in double quotes"),
        ("eins\tone", "line 2, column 1 is not JSON: Expecting value"),
        ('{"source": "a", "target": "b"} x', "line 2, column 32 is not JSON: Extra data"),
        ("[]", "line 2: not an object with 'source' and 'target'"),
        ('"text"', "line 2: not an object with 'source' and 'target'"),
        ("null", "line 2: not an object with 'source' and 'target'"),
        ("{}", "line 2: no text under 'source'"),
        ('{"source": "a"}', "line 2: no text under 'target'"),
        ('{"target": "a"}', "line 2: no text under 'source'"),
        ('{"source_lang": "de", "target_lang": "en"}', "line 2: no text under 'source'"),
        ('{"source": "a", "target": null}', "line 2: no text under 'target'"),
        ('{"source": 1, "target": "a"}', "line 2: no text under 'source'"),
        ('{"source": ["a"], "target": "a"}', "line 2: no text under 'source'"),
        ('{"source": "a", "target": "\\ud83d"}', "line 2: the text under 'target' holds half a character"),
        ('{"source": "a", "target": "b", "source": "c"}', "line 2: has 'source' twice"),
        ('{"source": "a", "target": "b", "x": "\\ud83d"}', "line 2: the text under 'x' holds half a character"),
        ('{"source": "a", "target": "b", "\\ud83d": "x"}', "line 2: the text under '\\ud83d' holds half a character"),
        ('{"translation": "a"}', "line 2: no text under 'source'"),
        ('{"translation": {}}', "line 2: no text under 'de'"),
        ('{"translation": {"de": "a"}}', "line 2: no text under 'en'"),
        ('{"translation": {"fr": "a", "en": "b"}}', "line 2: no text under 'de'"),
        ('{"translation": {"de": "a", "en": 5}}', "line 2: no text under 'en'"),
    ],
)
def test_jsonl_that_is_no_pair(tmp_path: Path, line: str, expected: str) -> None:
    corpus = one_file(tmp_path / "text.jsonl", f'{{"source": "a", "target": "b"}}\n{line}\n')
    assert message(corpus) == f"{corpus.source}: {expected}"


def test_jsonl_nested_beyond_reason(tmp_path: Path) -> None:
    corpus = one_file(tmp_path / "text.jsonl", "[" * 100_000)
    assert message(corpus).startswith(f"{corpus.source}: line 1: ")


@pytest.mark.parametrize("languages", [(None, None), ("de", None), (None, "en")])
def test_jsonl_by_language_needs_the_languages(tmp_path: Path, languages: tuple[str | None, str | None]) -> None:
    corpus = one_file(tmp_path / "text.jsonl", '{"translation": {"de": "a", "en": "b"}}\n', languages)
    expected = f"{corpus.source}: line 1: name the languages with --source-lang and --target-lang"
    assert message(corpus) == expected


@pytest.mark.parametrize(
    ("keys", "languages", "expected"),
    [
        (["de", "en", "fr"], ("de", "fr"), ("de", "fr")),
        (["en", "de"], ("en", "de"), ("en", "de")),
        (["zh_CN", "en_XX"], ("zh", "en"), ("zh_CN", "en_XX")),
        (["zh_CN", "zh", "en"], ("zh", "en"), ("zh", "en")),
        (["de", "en"], ("de-DE", "EN"), ("de", "en")),
        (["de", "en"], ("deu", "eng"), ("de", "en")),
    ],
)
def test_jsonl_language_codes(
    tmp_path: Path, keys: list[str], languages: tuple[str, str], expected: tuple[str, str]
) -> None:
    record = {"translation": {key: key for key in keys}}
    assert pairs_of(one_file(tmp_path / "text.jsonl", json.dumps(record), languages)) == [expected]


def test_a_name_that_stands_twice_among_many_is_found_in_one_pass() -> None:
    """Comparing each of them with all others would take minutes."""
    names = [(f"name {number}", "") for number in range(200_000)]
    with pytest.raises(ValueError, match="'name 199999' twice"):
        object_of_pairs([*names, names[-1]])
