"""A store that version 0.1.0 built, added to and removed from: it opens, verifies, translates and takes additions.

`data/store-0.1.0` has the store and the tiny random model that it was made with.
"""

import shutil
from pathlib import Path

import pytest
from living import corpus_of, pairs_in

from knnmt import Store, Translator, load_model
from knnmt.store.adding import add_to_store
from knnmt.store.compacting import compact_store
from knnmt.store.removing import remove_from_store
from knnmt.store.verification import problems_of
from knnmt.store.versions import roll_back, versions_of

KEPT = Path(__file__).parents[1] / "data" / "store-0.1.0"
BUILT = [
    ("Das Haus steht am Fluss.", "The house stands by the river."),
    ("Der kleine Hund schläft.", "The small dog sleeps."),
    ("Wir haben die Datei gespeichert.", "We have saved the file."),
    ("Der Motor läuft.", "The engine runs."),
]
ADDED = [("Die Tür ist offen.", "The door is open."), ("Der Motor läuft wieder.", "The engine runs again.")]
NOW = [BUILT[0], *BUILT[2:], *ADDED]
NEW = ("Das Fenster ist zu.", "The window is shut.")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copytree(KEPT / "store", tmp_path / "store"))


def test_it_opens_and_verifies(old: Path) -> None:
    store = Store.open(old)
    assert (store.manifest.format, store.manifest.knnmt) == (2, "0.1.0")
    assert pairs_in(store) == NOW
    assert list(problems_of(store)) == []
    assert [manifest.change for manifest in versions_of(store)] == ["built", "added 2 segments", "removed 1 segment"]


def test_it_translates(old: Path) -> None:
    """As 0.1.0 did."""
    settings = {"k": 4, "weight": 0.9, "temperature": 1.0}
    translator = Translator.from_store(old, model=str(KEPT / "model"), **settings)  # type: ignore[arg-type]
    assert translator.translate(["Der Motor läuft.", "Das Haus steht."]) == [
        "nse e e e e e e e e e e e e e e e e e e e",
        "hohoe vsy. rsr",
    ]


def test_it_is_changed(old: Path, tmp_path: Path) -> None:
    model = load_model(str(KEPT / "model"))
    added = add_to_store(old, model, [corpus_of(tmp_path, [NEW, ADDED[0]])])
    assert (added.segments, added.duplicates) == (1, 1)
    assert pairs_in(Store.open(old)) == [*NOW, NEW]
    remove_from_store(old, source_texts=[BUILT[0][0]])
    assert pairs_in(Store.open(old)) == [*NOW[1:], NEW]
    assert pairs_in(roll_back(old, 1)) == BUILT
    assert pairs_in(roll_back(old, 5)) == [*NOW[1:], NEW]
    assert list(problems_of(Store.open(old))) == []
    compact_store(old)
    after = Store.open(old)
    assert pairs_in(after) == [*NOW[1:], NEW]
    assert (len(after.manifest.parts), len(after.manifest.indexes), after.manifest.removed) == (1, 1, None)
    assert list(problems_of(after)) == []
