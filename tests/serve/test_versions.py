"""A store that another process changes while it is served: every answer belongs to one version."""

import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path

from living import corpus_of
from serving import serving
from tiny_models import tiny_model

from knnmt import Corpus, Store, build_store
from knnmt.store.adding import AddSettings, add_to_store
from knnmt.store.compacting import compact_store
from knnmt.store.compacting_tiers import compact_tiers
from knnmt.store.removing import remove_from_store
from knnmt.translate.translator import model_of_store

TEXT = "das ist ein haus"
CHANGES = 9
PROCESSES = multiprocessing.get_context("forkserver")

Held = dict[int, str | None]


def change(path: Path, folder: Path, told: Connection) -> None:
    """Replace the text's translation again and again, take it out now and then, compact; tells what each version has.

    What a version has is told before it is there: whoever sees it may look it up.
    """
    store = Store.open(path)
    model = model_of_store(store, None)
    for number in range(CHANGES):
        corpus = corpus_of(folder, [(TEXT, f"number {number}")], f"change{number}")
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
            store, _ = remove_from_store(path, source_texts=[TEXT])
            compact_tiers(path)
    told.close()


def test_every_answer_belongs_to_one_version(tmp_path: Path) -> None:
    (tmp_path / "memory.tsv").write_text(f"{TEXT}\tnumber begin\nwir gehen\twe go\n", encoding="utf-8")
    path = tmp_path / "house"
    model = tiny_model("marian")
    build_store(path, model, [Corpus(tmp_path / "memory.tsv")])
    held: Held = {Store.open(path).manifest.version: "number begin"}
    seen = list[tuple[int, str | None]]()
    ours, theirs = PROCESSES.Pipe()
    changing = PROCESSES.Process(target=change, args=(path, tmp_path, theirs), daemon=True)
    with serving(model, [("house", path)]) as client:
        changing.start()
        theirs.close()
        while changing.is_alive():
            answer = client.post("/v1/translations", json={"texts": [TEXT, TEXT], "source": "de"}).json()
            for made in answer["translations"]:
                seen.append((made["versions"]["house"], made["text"] if made["origin"] == "exact" else None))
            while ours.poll():
                try:
                    version, text = ours.recv()
                except EOFError:
                    break
                held[version] = text
    changing.join()
    assert changing.exitcode == 0
    assert [(version, text) for version, text in seen if held[version] != text] == []
    assert len({version for version, _ in seen}) > 1
