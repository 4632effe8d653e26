"""Sentence pairs by their text, against a comparison with every text of the store."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from living import MODEL, made
from parallel_text import write
from rapidfuzz import fuzz

from knnmt import Corpus, Store, build_store
from knnmt.retrieval.lookup import Lookup
from knnmt.store.removing import remove_from_store

PAIRS = [
    ("Laden Sie den Akku auf.", "Charge the battery."),
    ("Laden Sie den Akku auf!", "Charge the battery!"),
    ("Prüfen Sie den Akku.", "Check the battery."),
    ("Akku", "battery"),
    ("Öffnen Sie das Fenster.", "Open the window."),
    ("Akku", "accumulator"),
]


@pytest.fixture
def memory(hash_keys: None, tmp_path: Path) -> Store:
    return made(tmp_path / "store", PAIRS, part_entries=8)


def test_exact_is_letter_for_letter_but_for_white_space(memory: Store) -> None:
    lookup = Lookup([memory])
    found = lookup.exact(" Laden  Sie\nden Akku auf. ")
    assert found is not None
    assert found.target == "Charge the battery."
    assert lookup.exact("laden Sie den Akku auf.") is None
    assert lookup.exact("") is None


def test_the_newest_and_the_same_context_first(hash_keys: None, tmp_path: Path) -> None:
    lines = [
        '{"source": "Akku", "target": "old", "created": "2020-01-01T00:00:00Z", "msgctxt": "menu"}',
        '{"source": "Akku", "target": "new", "created": "2024-01-01T00:00:00Z", "msgctxt": "title"}',
        '{"source": "Akku", "target": "older", "created": "2010-01-01T00:00:00Z"}',
    ]
    file = write(tmp_path / "memory.jsonl", "".join(line + "\n" for line in lines))
    store = build_store(tmp_path / "store", MODEL, [Corpus(file, languages=("de", "en"))])
    lookup = Lookup([store])
    targets = {context: lookup.exact("Akku", context=context) for context in (None, "menu", "elsewhere")}
    assert {context: pair.target for context, pair in targets.items() if pair} == {
        None: "new",
        "menu": "old",
        "elsewhere": "new",
    }
    filtered = Lookup([store], where=["msgctxt=menu"]).exact("Akku")
    assert filtered is not None
    assert filtered.target == "old"


def test_what_was_removed_is_not_found(memory: Store) -> None:
    remove_from_store(memory.path, source_texts=["Laden Sie den Akku auf."])
    lookup = Lookup([Store.open(memory.path)])
    assert lookup.exact("Laden Sie den Akku auf.") is None
    assert [hit.segment.target for hit in lookup.near("Laden Sie den Akku auf.", least=80)] == ["Charge the battery!"]


def test_near_matches_have_percentages(memory: Store) -> None:
    hits = Lookup([memory]).near("Laden Sie den Akku auf.")
    assert [(round(hit.percent, 1), hit.segment.target) for hit in hits] == [
        (100.0, "Charge the battery."),
        (95.7, "Charge the battery!"),
        (74.4, "Check the battery."),
    ]


TEXTS = st.lists(st.sampled_from("abcdeä你 "), min_size=1, max_size=12).map("".join).filter(str.strip)


@given(st.lists(TEXTS, min_size=1, max_size=12), TEXTS, st.sampled_from([50.0, 70.0, 90.0]))
@settings(max_examples=40, deadline=None)
def test_nothing_near_is_missed(
    tmp_path_factory: pytest.TempPathFactory, hash_keys: None, texts: list[str], text: str, least: float
) -> None:
    sources = [" ".join(one.split()) for one in texts]
    folder = tmp_path_factory.mktemp("near")
    store = made(folder / "store", [(source, "x") for source in sources])
    text = " ".join(text.split())
    found = sorted(round(hit.percent, 4) for hit in Lookup([store]).near(text, least=least, most=50))
    expected = [round(fuzz.ratio(text, source), 4) for source in sources]
    assert found == sorted(percent for percent in expected if percent >= least)


def test_concordance_over_both_sides(memory: Store) -> None:
    lookup = Lookup([memory])
    assert [(hit.kind, hit.side, hit.segment.target) for hit in lookup.concordance("battery")] == [
        ("whole", "target", "battery"),
        ("part", "target", "Check the battery."),
        ("part", "target", "Charge the battery!"),
        ("part", "target", "Charge the battery."),
    ]
    assert [hit.segment.source for hit in lookup.concordance("das Fensters")] == ["Öffnen Sie das Fenster."]
    assert lookup.concordance("gibt es nicht") == []
    assert lookup.concordance(" ") == []
    assert len(lookup.concordance("Akku", most=2)) == 2
