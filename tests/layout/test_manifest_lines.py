"""The text of a manifest: kept lines are the lines that would be written, and what was written is what is read."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from living import PAIRS, add, made

from knnmt import Store
from knnmt.layout import manifest as manifests
from knnmt.layout.manifest import as_text, newly_parsed
from knnmt.layout.records import as_json
from knnmt.store.removing import remove_from_store


@pytest.mark.usefixtures("hash_keys")
def test_kept_lines_are_those_of_a_new_process(tmp_path: Path) -> None:
    store = made(tmp_path / "store", PAIRS)
    for number in range(12):
        add(store, [(f"neu {number}", f"new {number}")])
    remove_from_store(store.path, segments=[1])
    text = (store.path / "manifest.json").read_text(encoding="utf-8")
    read = newly_parsed(text)
    assert read == Store.open(store.path).manifest
    assert json.loads(text) == as_json(read) == read.to_json()
    manifests.LINES.things.clear()
    assert as_text(read) == text
    assert as_text(replace(read, unknown={"later": [1]})).startswith('{\n "later": [1],\n')


@pytest.mark.usefixtures("hash_keys")
def test_the_next_change_parses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = made(tmp_path / "store", PAIRS)
    add(store, [("neu 1", "new 1")])
    monkeypatch.setattr(manifests, "newly_parsed", lambda _: pytest.fail("parsed"))
    add(store, [("neu 2", "new 2")])
