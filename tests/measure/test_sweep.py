"""Sweeps: nested parts of a store, which points are run, what is run again, and the pictures."""

import csv
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Run

from knnmt import BuildSettings, SettingsError, Store, Translator, build_store
from knnmt.cli.demo import demo_corpus, read_demo
from knnmt.measure.subsets import Nesting, check_trainable, factory_for, make_subset
from knnmt.measure.sweep import COLUMNS, Axes, Point, Study, Sweep, Table, parse_numbers, plan, sweep
from knnmt.measure.sweep_plot import draw_sweep, short
from knnmt.models.translation_model import TranslationModel
from knnmt.retrieval.local_retriever import LocalRetriever
from knnmt.store.versions import changing, commit
from knnmt.translate.settings import TranslateSettings

LINES = 3


@pytest.fixture(scope="module")
def texts() -> tuple[list[str], list[str]]:
    pairs = read_demo("test")[:LINES]
    return [pair.source for pair in pairs], [pair.target for pair in pairs]


@pytest.fixture(scope="module")
def translator(store: Store) -> Translator:
    return Translator.from_store(store.path, beam=2, k=4, temperature=10.0)


@pytest.fixture(scope="module")
def clustered(embedded: TranslationModel, tmp_path_factory: pytest.TempPathFactory) -> Store:
    path = tmp_path_factory.mktemp("stores") / "clustered"
    return build_store(path, embedded, [demo_corpus("memory")], BuildSettings(limit=60, index="IVF4,Flat"))


@pytest.fixture
def test_set(texts: tuple[list[str], list[str]], tmp_path: Path) -> tuple[object, ...]:
    """The options that name the text."""
    for name, lines in zip(("test.de", "test.en"), texts, strict=True):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return "--source", tmp_path / "test.de", "--target", tmp_path / "test.en"


def test_parts_are_nested(store: Store) -> None:
    nesting = Nesting(store)
    parts = [set(nesting.entries_of(size).tolist()) for size in (0.01, 0.1, 0.3, 0.7, 1.0)]
    assert all(smaller < larger for smaller, larger in pairwise(parts))
    assert parts[-1] == set(range(store.entries))
    assert [nesting.segments_of(size) for size in (0.001, 0.1, 0.5, 1)] == [1, 8, 40, 80]


def test_parts_consist_of_whole_segments(store: Store) -> None:
    segments = store.segment_numbers(np.arange(store.entries))
    chosen = Nesting(store).entries_of(0.25)
    inside = np.isin(segments, segments[chosen])
    assert np.flatnonzero(inside).tolist() == chosen.tolist()
    assert len(np.unique(segments[chosen])) == 20


def test_another_seed_gives_another_part(store: Store) -> None:
    parts = [Nesting(store, seed).entries_of(0.2).tolist() for seed in (0, 0, 1)]
    assert parts[0] == parts[1] != parts[2]


@pytest.mark.parametrize("name", ["store", "clustered"])
def test_a_part_finds_what_brute_force_finds_in_it(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    store: Store = request.getfixturevalue(name)
    chosen = Nesting(store).entries_of(0.5)
    retriever = make_subset(store, chosen, tmp_path, lambda _: None).retriever(4)
    keys = np.concatenate(list(store.columns("keys"))).astype(np.float32)
    queries = keys[:40] + np.random.default_rng(0).normal(0, 0.1, (40, keys.shape[1])).astype(np.float32)
    found = retriever.search(queries, 5)
    distances = ((queries[:, None] - keys[chosen][None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(found.distances, np.sort(distances, axis=1)[:, :5], rtol=1e-3, atol=1e-2)
    assert np.isin(found.entries, chosen).all()
    assert (found.tokens == store.values[found.entries]).all()
    assert retriever.entries == len(chosen)
    assert [file.name for file in tmp_path.iterdir()] == ["index.faiss"]


def test_all_of_a_store_is_the_store(store: Store, tmp_path: Path) -> None:
    nesting = Nesting(store)
    part = make_subset(store, nesting.entries_of(1), tmp_path, lambda _: None).retriever()
    queries = store.gather("keys", np.arange(30)).astype(np.float32)
    ours, whole = part.search(queries, 7), LocalRetriever([store]).search(queries, 7)
    np.testing.assert_allclose(ours.distances, whole.distances, rtol=1e-5, atol=1e-4)
    assert (ours.tokens == whole.tokens).all()


def test_fewer_entries_than_neighbours(store: Store, tmp_path: Path) -> None:
    part = make_subset(store, np.array([3, 9]), tmp_path, lambda _: None).retriever()
    assert sorted(part.search(np.zeros((1, 256), np.float32), 5).entries[0].tolist()) == [3, 9]


def test_a_part_has_the_index_of_its_size(store: Store, clustered: Store) -> None:
    assert factory_for(store, 20) == "Flat"
    assert factory_for(store, 10**6) == "IVF4096,PQ128x4fs"
    assert factory_for(clustered, 20) == "IVF4,Flat"
    check_trainable(store, 0.1, 3)
    with pytest.raises(SettingsError, match=r"--sizes 0\.1: its 3 entries are too few for the store's index IVF4,Flat"):
        check_trainable(clustered, 0.1, 3)


BASE = Point(settings=TranslateSettings(k=8, temperature=10, weight=0.5, beam=5))


def shown(points: list[Point]) -> list[tuple[object, ...]]:
    return [
        (each.settings.k, each.settings.temperature, each.settings.beam, each.size, each.nprobe)
        for each in points
        if each.retrieves
    ]


@pytest.mark.parametrize(
    ("axes", "points"),
    [
        ({"k": (1, 8)}, [(1, 10, 5, 1, None), (8, 10, 5, 1, None)]),
        (
            {"k": (1, 8), "temperature": (10, 100)},
            [(1, 10, 5, 1, None), (8, 10, 5, 1, None), (1, 100, 5, 1, None), (8, 100, 5, 1, None)],
        ),
        ({"temperature": (10, 100)}, [(8, 10, 5, 1, None), (8, 100, 5, 1, None)]),
        ({"sizes": (0.1, 1.0)}, [(8, 10, 5, 0.1, None), (8, 10, 5, 1, None)]),
        ({"nprobe": (1, 32)}, [(8, 10, 5, 1, 1), (8, 10, 5, 1, 32)]),
        ({"k": (1, 8), "sizes": (0.1, 1.0)}, [(1, 10, 5, 1, None), (8, 10, 5, 1, None), (8, 10, 5, 0.1, None)]),
    ],
)
def test_one_axis_at_a_time(axes: dict[str, Any], points: list[tuple[object, ...]]) -> None:
    planned = plan(BASE, Axes(**axes))
    assert shown(planned) == points
    assert [each.settings.beam for each in planned if not each.retrieves] == [5]


def test_the_model_alone_is_run_with_every_beam() -> None:
    planned = plan(BASE, Axes(beam=(1, 2)))
    assert [each.settings.beam for each in planned if not each.retrieves] == [1, 2, 5]
    assert shown(planned) == [(8, 10, 1, 1, None), (8, 10, 2, 1, None)]


def test_numbers() -> None:
    assert parse_numbers("--k", "16,4,4", int) == (4, 16)
    assert parse_numbers("--temperature", "0.5, 10", float) == (0.5, 10.0)


@pytest.fixture(scope="module")
def swept(
    translator: Translator, texts: tuple[list[str], list[str]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Sweep, Path]:
    file = tmp_path_factory.mktemp("sweep") / "results.csv"
    axes = Axes(k=(1, 4), temperature=(10.0, 100.0), sizes=(0.5, 1.0), beam=(1, 2))
    return sweep(translator, axes, *texts, output=file), file


def test_rows(swept: tuple[Sweep, Path], store: Store, translator: Translator) -> None:
    found, file = swept
    rows = list(csv.DictReader(file.open(encoding="utf-8")))
    assert tuple(rows[0]) == COLUMNS
    assert [(row["k"], row["temperature"], row["beam"], row["size"]) for row in rows] == [
        ("", "", "1", ""), ("", "", "2", ""),
        ("1", "10.0", "2", "1.0"), ("4", "10.0", "2", "1.0"), ("1", "100.0", "2", "1.0"), ("4", "100.0", "2", "1.0"),
        ("4", "10.0", "2", "0.5"), ("4", "10.0", "1", "1.0"),
    ]  # fmt: skip
    assert len({row["signature"] for row in rows}) == len(rows) == len(found.results)
    assert [file.name for file in file.parent.iterdir()] == [file.name]
    full, half = (next(row for row in rows if row["size"] == size) for size in ("1.0", "0.5"))
    assert (full["segments"], full["entries"], half["segments"]) == ("80", str(store.entries), "40")
    assert "|size:0.5,seed=0|" in half["signature"]
    assert "size" not in full["signature"]


def test_a_row_is_what_evaluate_says(
    swept: tuple[Sweep, Path], store: Store, texts: tuple[list[str], list[str]]
) -> None:
    from knnmt.measure.evaluation import evaluate

    said = evaluate(Translator.from_store(store.path, k=4, beam=2, temperature=10.0), *texts)
    row = swept[0].results[swept[0].base]
    assert said.knn
    assert (row.bleu, row.chrf, row.sentences) == (said.knn.bleu, said.knn.chrf, LINES)
    assert row.signature.startswith(said.signature["knnmt"])
    assert swept[0].alone(2).bleu == said.base.bleu


def test_rows_that_are_there_are_not_run_again(
    swept: tuple[Sweep, Path], translator: Translator, texts: tuple[list[str], list[str]], monkeypatch: Any
) -> None:
    found, file = swept
    run, asked = Study.run, []

    def record(self: Study, point: Point, signature: str, *, label: str) -> Any:
        asked.append(point)
        return run(self, point, signature, label=label)

    monkeypatch.setattr(Study, "run", record)
    before = file.read_bytes()
    again = sweep(translator, found.axes, *texts, output=file)
    assert (again, asked, file.read_bytes()) == (found, [], before)
    more = sweep(translator, Axes(k=(1, 2, 4)), *texts, output=file)
    assert [(point.settings.k, point.size) for point in asked] == [(2, 1.0)]
    assert more.results.items() - found.results.items() == {(asked[0], more.results[asked[0]])}
    assert file.read_bytes().startswith(before)
    sweep(translator, Axes(k=(1, 2)), texts[0][:2], texts[1][:2], output=file)
    assert len(asked) == 4  # another text is another number: the model alone, k 1 and k 2


@pytest.mark.parametrize(("name", "opening"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml")])
def test_pictures(swept: tuple[Sweep, Path], tmp_path: Path, name: str, opening: bytes) -> None:
    pytest.importorskip("matplotlib")
    draw_sweep(swept[0], tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(opening)
    assert [file.name for file in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("value", "text"), [(5, "5"), (0.5, "0.5"), (7674, "7674"), (12345, "12.3k"), (1_500_000, "1.5M")]
)
def test_short_numbers(value: float, text: str) -> None:
    assert short(value) == text


def test_the_command(run: Run, clustered: Store, test_set: tuple[object, ...], tmp_path: Path) -> None:
    """A single value fixes a setting while others are swept."""
    call = ("sweep", clustered.path, *test_set, "--limit", 2, "--k", 2, "--nprobe", "1,4", "--beam", 1, "--weight", 0.7)
    code, out, err = run(*call, "--output", tmp_path / "a.csv", "--plot", tmp_path / "a.svg")
    assert (code, err) == (0, "")
    rows = [(row.k, row.beam, row.weight, row.nprobe) for row in Table(tmp_path / "a.csv").rows.values()]
    assert rows == [(None, 1, 0.0, None), (2, 1, 0.7, 1), (2, 1, 0.7, 4)]
    assert out.count("\n") == 4
    assert (tmp_path / "a.svg").stat().st_size > 1000


def test_a_store_tuned_to_skip_is_asked_at_every_step(
    run: Run, store: Store, test_set: tuple[object, ...], tmp_path: Path
) -> None:
    plain = Store.open(shutil.copytree(store.path, tmp_path / "store"))
    call = (*test_set, "--limit", 2, "--k", "2,4", "--beam", 1, "--output")
    assert run("sweep", plain.path, *call, tmp_path / "plain.csv")[0] == 0
    with changing(plain.path) as now:
        commit(now, "tuned", tuned={"certain": 1e-9})
    assert Translator.from_store(plain.path).told()["certain"] == 1e-9
    assert run("sweep", plain.path, *call, tmp_path / "tuned.csv")[0] == 0
    swept = [[row.bleu for row in Table(tmp_path / name).rows.values()] for name in ("plain.csv", "tuned.csv")]
    assert swept[0] == swept[1]
    assert len(set(swept[0])) > 1


# Wrong calls: options beside a good text and output, and what the one line must say.
WRONG = {
    "nothing": ("", "nothing to sweep"),
    "one value": ("--k 4", "nothing to sweep"),
    "no number": ("--k 1,x", "--k 1,x: must be whole numbers separated by commas"),
    "half a neighbour": ("--k 1.5,2", "--k 1.5,2: must be whole numbers"),
    "no neighbour": ("--k 0,4", "--k 0: must be at least 1"),
    "temperature": ("--temperature 0,10", "--temperature 0: must be above 0"),
    "weight": ("--k 1,2 --weight 2", "--weight 2: must be between 0 and 1"),
    "no weight": ("--k 1,2 --weight 0", "--weight 0 retrieves nothing"),
    "size": ("--sizes 0.5,2", "--sizes 2: must be above 0 and at most 1"),
    "beam": ("--beam 0,1", "--beam 0: must be at least 1"),
    "nprobe": ("--nprobe 0,1", "--nprobe 0: must be at least 1"),
    "no clusters": ("--nprobe 1,2", "--nprobe 1: the store's index Flat has no clusters"),
    "small part": ("--sizes 0.001,1 --k 64", "--sizes 0.001: has "),
    "large k": ("--k 1,99999", "--k 99999: larger than the datastore"),
    "limit": ("--k 1,2 --limit 0", "--limit 0"),
    "plot": ("--k 1,2 --plot FOLDER/a.gif", "must end in .png"),
    "output": ("--k 1,2 --output FOLDER/no/a.csv", "there is no folder"),
    "folder": ("--k 1,2 --output FOLDER", "a folder, not a file"),
    "another table": ("--k 1,2 --output FOLDER/other.csv", "not a table of `knnmt sweep`"),
    "damaged": ("--k 1,2 --output FOLDER/damaged.csv", "damaged.csv: damaged"),
}


@pytest.mark.parametrize(("call", "says"), WRONG.values(), ids=WRONG)
def test_wrong_calls(
    run: Run, store: Store, test_set: tuple[object, ...], tmp_path: Path, call: str, says: str
) -> None:
    (tmp_path / "other.csv").write_text("name,age\nAda,36\n")
    (tmp_path / "damaged.csv").write_text(f"{','.join(COLUMNS)}\none,{',' * (len(COLUMNS) - 2)}\n")
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    options = call.replace("FOLDER", str(tmp_path)).split()
    code, out, err = run("sweep", store.path, *test_set, "--output", tmp_path / "new.csv", *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before
