"""The benchmarks of translating, its phases and searching, at a tiny size: rows, ratios, BLEU and picture."""

import multiprocessing
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from bench import searching
from bench.ablation import ablation, openings
from bench.apart import Answer
from bench.bars import draw_bars
from bench.peers import peers, write_datastore
from bench.phases import phases
from bench.systems import Translated, by_generate, by_knnmt
from bench.translating import Plan, measure, open_translators, prepare, share_threads, translating
from knnmt import Store, Translator
from knnmt.cli.demo import read_demo
from knnmt.errors import SettingsError
from knnmt.mixing.fixed import FixedMixer
from knnmt.mixing.head_mixer import HeadMixer
from knnmt.models.translation_model import TranslationModel
from knnmt.switches import FAST_PATHS

SENTENCES = 2


@pytest.fixture(scope="module")
def test_set(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("text")
    source, target = folder / "test.de", folder / "test.en"
    source.write_text("\n" + "".join(f"{segment.source}\n" for segment in read_demo("test")), encoding="utf-8")
    target.write_text("\n" + "".join(f"{segment.target}\n" for segment in read_demo("test")), encoding="utf-8")
    return source, target


@pytest.fixture
def without_ctranslate2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.translating.find_spec", lambda _: None)


def small_plan(store: Store, source: Path, target: Path | None, *, batches: tuple[int, ...] = (2,)) -> Plan:
    stores = (str(store.path), f"again={store.path}")
    return Plan(
        stores=stores, source=source, target=target, sentences=SENTENCES, batches=batches, beams=(2,), repeats=1
    )


@pytest.fixture
def same_threads_afterwards() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    share_threads(before)


@dataclass(frozen=True)
class Here:
    """A worker that is none: it gives every sentence the same translation."""

    name: str

    def ask(self, batches: list[list[str]], _beam: int) -> Answer:
        return Answer([Translated("A chain.", 4) for batch in batches for _ in batch], 0.5)


@pytest.mark.usefixtures("without_ctranslate2")
def test_rows_ratios_and_bleu(
    store: Store, test_set: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The one test with processes that load models: three of them."""
    plan = replace(small_plan(store, *test_set, batches=(2, 1)), stores=(f"named={store.path}",), threads=1)
    result = translating(plan)
    assert not multiprocessing.active_children()
    assert [(table["batch"], table["beam"]) for table in result["tables"]] == [(2, 2), (1, 2)]
    for table in result["tables"]:
        rows = table["rows"]
        assert list(rows) == ["generate", "knnmt", "knnmt, named"]
        assert (rows["generate"]["ratio"], rows["generate"]["lowest"], rows["generate"]["highest"]) == (1, 1, 1)
        assert all(0 < row["lowest"] <= row["ratio"] <= row["highest"] for row in rows.values())
        assert rows["generate"]["bleu"] == rows["knnmt"]["bleu"] < rows["knnmt, named"]["bleu"]
    assert (result["sentences"], result["threads"]) == (SENTENCES, 1)
    assert list(result["signatures"]) == ["knnmt", "knnmt, named", "bleu"]
    assert "|store:memory@" in result["signatures"]["knnmt, named"]
    printed = capsys.readouterr().out
    assert "CTranslate2 is not installed" in printed
    assert "BLEU" in printed
    draw_bars(result, tmp_path / "new" / "bars.svg")
    assert "knnmt, named" in (tmp_path / "new" / "bars.svg").read_text(encoding="utf-8")


def test_ablation_leaves_out_each_path_and_all(store: Store, test_set: tuple[Path, Path]) -> None:
    plan = replace(small_plan(store, *test_set), stores=(str(store.path),))
    left_out = {name: opening.args[1].plain for name, opening in openings(plan).items()}  # type: ignore[attr-defined]
    assert left_out["none of them"] == tuple(FAST_PATHS)
    assert (left_out["all"], left_out["all but int8"]) == ((), ("int8",))
    assert left_out["packed alone"] == tuple(path for path in FAST_PATHS if path != "packed")
    assert not any("centroids" in name for name in openings(replace(plan, stores=())))
    assert list(openings(plan, ["int8"])) == ["none of them", "int8 alone", "all but int8", "all"]
    with pytest.raises(SettingsError, match="one store"):
        ablation(small_plan(store, *test_set))


@pytest.mark.usefixtures("without_ctranslate2")
def test_a_row_for_each_kind_of_index(store: Store, test_set: tuple[Path, Path], tmp_path: Path) -> None:
    before = store.fingerprint
    plan = replace(small_plan(store, *test_set), stores=(f"named={store.path}",), indexes=("IVF16,PQ16x4fs", "HNSW8"))
    ours = open_translators(plan, tmp_path)
    kinds = {name: one.stores[0].manifest.index.factory for name, one in ours.items() if one.stores}
    assert kinds == {
        "knnmt, named": "Flat",
        "knnmt, named, IVF16,PQ16x4fs": "IVF16,PQ16x4fs",
        "knnmt, named, HNSW8": "HNSW8",
    }
    assert all(one.translate(["Die Kette ist neu."])[0] for one in ours.values())
    assert Store.open(store.path).fingerprint == before


@pytest.mark.usefixtures("without_ctranslate2")
def test_what_mixes_is_what_the_store_decides(store: Store, test_set: tuple[Path, Path], tmp_path: Path) -> None:
    """A system is given another beam and nothing else of it changes."""
    plan = replace(small_plan(store, *test_set), stores=(f"named={store.path}",), mixings=("learned", "paper"))
    ours = open_translators(plan, tmp_path)
    assert [type(ours[f"knnmt, named{kind}"].mixer) for kind in ("", ", learned", ", paper")] == [
        HeadMixer, HeadMixer, FixedMixer,
    ]  # fmt: skip
    translator, mixers = ours["knnmt, named, learned"], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Translator, "translations", lambda self, *_, **__: mixers.append(self.mixer) or [])
        by_knnmt(translator, ["Eine Kette."], 2)
    assert mixers == [translator.mixer]


@pytest.mark.usefixtures("without_ctranslate2")
def test_without_references_there_is_no_bleu(store: Store, test_set: tuple[Path, Path], tmp_path: Path) -> None:
    ready = prepare(small_plan(store, test_set[0], None), tmp_path)
    assert ready.bleu is None
    rows = measure({name: Here(name) for name in ready.systems}, ready, 2, 2, 1)  # type: ignore[misc]
    assert list(rows) == ["generate", "knnmt", "knnmt, memory", "knnmt, again"]
    assert all(row["tokens_per_second"] == SENTENCES * 4 / 0.5 and "bleu" not in row for row in rows.values())


@pytest.mark.usefixtures("same_threads_afterwards")
def test_ctranslate2_has_four_rows(store: Store, test_set: tuple[Path, Path], tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    ready = prepare(replace(small_plan(store, *test_set), threads=1), tmp_path)
    theirs = [f"CTranslate2 {kind}" for kind in ("float32", "float32, in parts", "int8", "int8, in parts")]
    assert list(ready.systems)[:6] == ["generate", *theirs, "knnmt"]
    stock, *converted = (ready.systems[name]().work for name in ("generate", *theirs[:2]))
    for system in converted:
        assert system([ready.text.sources], 1) == stock([ready.text.sources], 1)


def test_ctranslate2_says_what_generate_says(embedded: TranslationModel, tmp_path: Path) -> None:
    """Whose start token is no vector of zeros, which CTranslate2 takes for granted."""
    pytest.importorskip("ctranslate2")
    from bench.converted import convert, opened

    systems = [partial(by_generate, embedded), opened(embedded, convert(embedded, tmp_path / "model"), "float32", 1)]
    texts = [segment.source for segment in read_demo("test")[:4]]
    stock, converted = (system(texts, 1) for system in systems)
    assert converted == stock


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beams": (5, 0)}, "--beam 0: must be at least 1"),
        ({"threads": 0}, "--threads 0: must be at least 1"),
        ({"target": Path("test.en")}, "--target test.en: has no --source beside it"),
    ],
)
def test_a_plan_that_cannot_be(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Plan(**settings)  # type: ignore[arg-type]


def test_two_stores_of_one_name_are_refused(store: Store, test_set: tuple[Path, Path]) -> None:
    with pytest.raises(SettingsError, match="two of them have the same name"):
        translating(Plan(stores=(str(store.path), str(store.path)), source=test_set[0]))


def test_searching_reports_time_and_recall(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(searching, "ORIGINALS", 3000)
    monkeypatch.setattr(searching, "CENTRES", 50)
    small, large = searching.searching((3000, 6000), (16,), 1, None, Plan())
    assert (small["entries"], large["entries"]) == (3000, 6000)
    assert small["milliseconds"] > 0
    assert 0.5 < large["recall"] <= 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("factory", ["IVF64,PQ32x4fs", "IVF64_HNSW32,PQ32x4fs"])
def test_searching_a_store_s_keys_says_what_retrieval_costs(
    store: Store, factory: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(searching, "automatic_factory", lambda *_: factory)
    plan = Plan(sentences=SENTENCES, batches=(2,), beams=(2,), repeats=1)
    (row,) = searching.searching((store.entries + 500,), (), 1, str(store.path), plan)
    assert row["dimension"] == 256
    assert 0 < row["keeps_lowest"] <= row["keeps"] <= row["keeps_highest"]


def test_the_rows_of_variants(store: Store, tmp_path: Path) -> None:
    plan = Plan(stores=(str(store.path),), exact=True)
    translators = open_translators(plan, tmp_path)
    assert list(translators) == ["knnmt", "knnmt, memory", "knnmt, memory, exact"]
    assert [translator.settings.exact for translator in translators.values()] == [False, False, True]


def test_phases_add_up(tmp_path: Path) -> None:
    translators = open_translators(Plan(), tmp_path)
    result = phases(translators, ["Reinigen Sie die Kette."], 1)
    for shares in result.values():
        assert sum(share for phase, share in shares.items() if phase != "seconds") == pytest.approx(1, abs=0.01)
        assert shares["decoder layers"] > 0
    assert result["knnmt"]["mixing"] == 0
    assert result["knnmt, demo's memory"]["mixing"] > 0


def test_peers_wants_a_checkout_and_one_store(store: Store, test_set: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^--knn-transformers None: must be a checkout"):
        peers(small_plan(store, *test_set), None)
    (tmp_path / "knnlm.py").touch()
    with pytest.raises(SettingsError, match=r"^--store: peers are compared on one store"):
        peers(small_plan(store, *test_set), tmp_path)


PEER = """
from pathlib import Path
import numpy

def get_dstore_path(folder, kind, entries, dimension):
    return f"{folder}/dstore_{kind}_{entries}_{dimension}"

class KNNSaver:
    def __init__(self, entries, folder, dimension):
        self.folder = Path(folder)

    def build_index(self):
        numpy.savez(self.folder / "seen.npz", keys=self.dstore_keys, values=self.dstore_vals)
"""


def test_a_peer_is_given_the_keys_and_tokens_of_the_store(
    store: Store, embedded: TranslationModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "knnlm.py").write_text(PEER)
    monkeypatch.setattr("sys.path", [*sys.path])
    write_datastore(tmp_path, embedded, store, tmp_path)
    seen = np.load(tmp_path / "seen.npz")
    np.testing.assert_array_equal(seen["keys"], store.gather("keys", np.arange(store.entries)))
    np.testing.assert_array_equal(seen["values"][:, 0], store.gather("values", np.arange(store.entries)))
    monkeypatch.delitem(sys.modules, "knnlm")
