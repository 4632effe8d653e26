"""Stores that other processes change while they are served: every answer belongs to one version of each."""

import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from living import corpus_of
from serving import serving
from tiny_models import tiny_model

from knnmt import Store, build_store
from knnmt.store.adding import AddSettings, add_to_store
from knnmt.store.compacting import compact_store
from knnmt.store.compacting_tiers import compact_tiers
from knnmt.store.removing import remove_from_store
from knnmt.translate.translator import model_of_store

TEXTS = {"house": "das ist ein haus", "street": "wir gehen"}  # by the store that has it
ASKED = {"texts": [*TEXTS.values(), "wir gehen in das haus"], "source": "de", "explain": True}
CHANGES = int(os.environ.get("KNNMT_CHANGES", "9"))
WAITING = 120.0  # seconds for a second version of each store
PROCESSES = multiprocessing.get_context("forkserver")

Held = dict[int, str | None]


def change(path: Path, text: str, told: Connection) -> None:
    """Replace the text's translation again and again, take it out now and then, compact; tells what each version has.

    What a version has is told before it is there: whoever sees it may look it up.
    """
    store = Store.open(path)
    model = model_of_store(store, None)
    for number in range(CHANGES):
        corpus = corpus_of(path.parent, [(text, f"number {number}")], f"change {path.name} {number}")
        told.send((store.manifest.version + 1, f"number {number}"))
        added = add_to_store(path, model, [corpus], AddSettings(replace=True)).store
        assert added is not None
        store = added
        if number % 3 == 1:
            told.send((store.manifest.version + 1, f"number {number}"))
            compact_store(path)
            store = Store.open(path)
        if number % 3 == 2:
            told.send((store.manifest.version + 1, None))
            store, _ = remove_from_store(path, source_texts=[text])
            compact_tiers(path)
    told.close()


def test_every_answer_belongs_to_one_version(tmp_path: Path) -> None:
    model = tiny_model("marian")
    held = {name: Held() for name in TEXTS}
    for name, text in TEXTS.items():
        corpus = corpus_of(tmp_path, [(text, "number begin"), ("etwas", "something")], name)
        held[name] = {build_store(tmp_path / name, model, [corpus]).manifest.version: "number begin"}
    seen, behind = list[tuple[str, int, str | None]](), list[tuple[str, int, str | None]]()
    with serving(model, [(name, tmp_path / name) for name in TEXTS]) as client:
        changing = {name: begun(tmp_path / name, text) for name, text in TEXTS.items()}
        deadline = time.monotonic() + WAITING
        while any(process.is_alive() for process, _ in changing.values()) or (
            fewest_versions(seen) < 2 and time.monotonic() < deadline  # a busy machine answers once in all that time
        ):
            *known, new = client.post("/v1/translations", json=ASKED).json()["translations"]
            for name, made in zip(TEXTS, known, strict=True):
                seen.append((name, made["versions"][name], made["text"] if made["origin"] == "exact" else None))
            behind += [(name, new["versions"][name], target) for name, target in neighbours(new)]
            for name, (_, ours) in changing.items():
                held[name] |= received(ours)
    assert [process.exitcode for process, _ in changing.values()] == [0, 0]
    assert [one for one in [*seen, *behind] if held[one[0]][one[1]] != one[2]] == []
    assert behind
    assert fewest_versions(seen) > 1


def fewest_versions(seen: list[tuple[str, int, str | None]]) -> int:
    """Of any store that answers belonged to."""
    return min(len({version for store, version, _ in seen if store == name}) for name in TEXTS)


def neighbours(made: dict[str, Any]) -> set[tuple[str, str]]:
    """The stores and targets of the changing texts that spoke for the words of a translation."""
    sentences = [sentence for word in made["words"] for sentence in word["sentences"]]
    return {(one["store"], one["target"]) for one in sentences if one["source"] == TEXTS[one["store"]]}


def begun(path: Path, text: str) -> tuple[Any, Connection]:
    """A process that changes a store, and what it tells."""
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=change, args=(path, text, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def received(ours: Connection) -> Held:
    held: Held = {}
    try:
        while ours.poll():
            version, text = ours.recv()
            held[version] = text
    except EOFError:
        pass
    return held
