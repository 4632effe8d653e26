"""A store that somebody else changes while it is served: every answer belongs to one version."""

import threading
from pathlib import Path

from living import corpus_of
from serving import serving
from tiny_models import tiny_model

from knnmt import Corpus, Store, build_store
from knnmt.store.adding import AddSettings, add_to_store
from knnmt.store.removing import remove_from_store

TEXT = "das ist ein haus"
CHANGES = 8


def change(path: Path, folder: Path, held: dict[int, str | None], done: threading.Event) -> None:
    """Replace the text's translation again and again, and take it out now and then."""
    model = tiny_model("marian")
    for number in range(CHANGES):
        corpus = corpus_of(folder, [(TEXT, f"number {number}")], f"change{number}")
        store = add_to_store(path, model, [corpus], AddSettings(replace=True)).store
        assert store is not None
        held[store.manifest.version] = f"number {number}"
        if number % 3 == 2:
            store, _ = remove_from_store(path, source_texts=[TEXT])
            held[store.manifest.version] = None
    done.set()


def test_every_answer_belongs_to_one_version(tmp_path: Path) -> None:
    (tmp_path / "memory.tsv").write_text(f"{TEXT}\tnumber begin\nwir gehen\twe go\n", encoding="utf-8")
    path = tmp_path / "house"
    build_store(path, tiny_model("marian"), [Corpus(tmp_path / "memory.tsv")])
    held: dict[int, str | None] = {Store.open(path).manifest.version: "number begin"}
    done, seen = threading.Event(), list[tuple[int, str | None]]()
    with serving(tiny_model("marian"), [("house", path)]) as client:
        changing = threading.Thread(target=change, args=(path, tmp_path, held, done))
        changing.start()
        while not done.is_set():
            answer = client.post("/v1/translations", json={"texts": [TEXT, TEXT], "source": "de"}).json()
            for made in answer["translations"]:
                seen.append((made["versions"]["house"], made["text"] if made["origin"] == "exact" else None))
        changing.join()
    assert [(version, text) for version, text in seen if held[version] != text] == []
    assert len({version for version, _ in seen}) > 1
