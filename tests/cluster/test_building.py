"""A store built on a cluster is the store that one machine builds, whatever dies on the way."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray_nodes import workers_of

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'knnmt[cluster]'")

from knnmt import BuildSettings, Corpus, ModelError, Store, build_store  # noqa: E402
from knnmt.cli.demo import demo_corpus  # noqa: E402
from knnmt.cluster.build_tasks import assign_part, loaded, plainly  # noqa: E402
from knnmt.cluster.slices import read_slice, write_slice  # noqa: E402
from knnmt.cluster.workers import Gauge, RayWorkers  # noqa: E402
from knnmt.layout.parts import EncodedSegment  # noqa: E402
from knnmt.models.translation_model import TranslationModel  # noqa: E402
from knnmt.search.centroids import MANY, Centroids  # noqa: E402
from knnmt.store.building import SCRATCH, Slice, model_record  # noqa: E402
from knnmt.store.verification import problems_of  # noqa: E402
from knnmt.text.corpus import Segment  # noqa: E402

KILLS = 2  # each costs the start of a process that loads the libraries; `test_kills.py` does more
SETTINGS = BuildSettings(limit=40, part_entries=150, batch_tokens=512, index="IVF8,PQ32x4fs")


def content(store: Store) -> list[str]:
    return [record.sha256 for record in store.files().values()]


def told(store: Store) -> Any:
    """The manifest without its times."""
    parts = [replace(part, created="") for part in store.manifest.parts]
    return replace(store.manifest, parts=parts, created="", changed="")


@pytest.fixture(scope="module")
def local(embedded: TranslationModel, tmp_path_factory: pytest.TempPathFactory) -> Store:
    return build_store(tmp_path_factory.mktemp("local") / "store", embedded, [demo_corpus("memory")], SETTINGS)


def test_build_equals_the_local_one(cluster: Any, local: Store, embedded: TranslationModel, tmp_path: Path) -> None:
    built = build_store(tmp_path / "store", embedded, [demo_corpus("memory")], SETTINGS, workers=RayWorkers())
    assert len(built.manifest.parts) > 3
    assert content(built) == content(local)
    assert told(built) == told(local)
    assert not (built.path / SCRATCH).exists()
    assert list(problems_of(built)) == []


@pytest.fixture
def killer(cluster: Any) -> Iterator[list[int]]:
    """Kills a worker as soon as there is one, again and again."""
    killed: list[int] = []
    stop = threading.Event()

    def kill() -> None:
        while not stop.wait(0.02) and len(killed) < KILLS:
            for pid in workers_of(cluster, "make")[:1]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
                stop.wait(0.5)

    thread = threading.Thread(target=kill)
    thread.start()
    yield killed
    stop.set()
    thread.join()


def test_killed_workers_cost_their_slices(
    cluster: Any, local: Store, embedded: TranslationModel, tmp_path: Path, killer: list[int]
) -> None:
    built = build_store(tmp_path / "store", embedded, [demo_corpus("memory")], SETTINGS, workers=RayWorkers())
    assert killer
    assert content(built) == content(local)


SCRIPT = """
import sys
from knnmt.cluster.connection import connected
from knnmt import BuildSettings, build_store, load_model
from knnmt.cli.demo import demo_corpus
settings = BuildSettings(limit=40, part_entries=150, batch_tokens=512, index="IVF8,PQ32x4fs", resume=True)
with connected(sys.argv[2]):
    from knnmt.cluster.workers import RayWorkers
    build_store(sys.argv[1], load_model("builtin:de-en"), [demo_corpus("memory")], settings, workers=RayWorkers())
"""


def test_a_killed_driver_is_resumed_by_either_kind_of_build(
    cluster: Any, local: Store, embedded: TranslationModel, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(path), cluster.address])
    while not (path / "parts/000001").exists() and process.poll() is None:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (path / "manifest.json").exists()
    assert (path / SCRATCH).is_dir()
    resumed = build_store(path, embedded, [demo_corpus("memory")], replace(SETTINGS, resume=True))
    assert content(resumed) == content(local)
    assert not (path / SCRATCH).exists()


def test_what_was_made_out_of_order_is_not_made_again(
    cluster: Any, local: Store, embedded: TranslationModel, tmp_path: Path
) -> None:
    """As a driver leaves it that was killed while its third slice was late."""
    import shutil

    path = Path(shutil.copytree(local.path, tmp_path / "store"))
    (path / "manifest.json").unlink()
    (path / "index.faiss").unlink()
    shutil.rmtree(path / "versions")
    (path / SCRATCH / "done").mkdir(parents=True)
    for number in range(2, len(local.manifest.parts)):
        (path / f"parts/{number:06d}").rename(path / SCRATCH / f"done/{number:06d}")
    shutil.rmtree(path / SCRATCH / "done/000002")
    from knnmt.files import write_json
    from knnmt.store.building import plan_of

    write_json(path / "building.json", plan_of(embedded, [demo_corpus("memory")], SETTINGS))
    kept = {part.name: part.created for part in local.manifest.parts}
    resumed = build_store(path, embedded, [demo_corpus("memory")], replace(SETTINGS, resume=True), workers=RayWorkers())
    assert content(resumed) == content(local)
    again = [part.name for part in resumed.manifest.parts if part.created != kept[part.name]]
    assert again in ([], ["000002"])  # times have whole seconds


def test_a_slice_comes_back_as_it_was(tmp_path: Path) -> None:
    segments = [
        EncodedSegment(Segment("a", "b", "c", 7, "2020-01-01T00:00:00Z", {"client": "x"}), [1, 2], [3], (0,)),
        EncodedSegment(Segment("", "ü\n", "c", 8), [], [4, 5], None),
        EncodedSegment(Segment("d", "e", "c", 9), [1], [4, 5], ()),
    ]
    one = Slice(3, segments, 12, {"too long": 2}, 5)
    write_slice(tmp_path / "slice", one)
    assert read_slice(tmp_path / "slice") == one


def test_clusters_are_those_that_one_process_finds(tmp_path: Path) -> None:
    """So many that codes find them."""
    random = np.random.default_rng(0)
    centroids = random.normal(size=(MANY, 128)).astype(np.float32)
    keys = random.normal(size=(3000, 128)).astype(np.float16)
    for name, array in (("centroids", centroids), ("keys", keys)):
        np.save(tmp_path / f"{name}.npy", array)
    assign_part(tmp_path / "centroids.npy", tmp_path / "keys.npy", tmp_path / "owners.npy")
    among = Centroids(centroids)
    assert among.coded is not None
    np.testing.assert_array_equal(np.load(tmp_path / "owners.npy"), among.owners(keys.astype(np.float32)))


def test_a_worker_refuses_another_model(embedded: TranslationModel) -> None:
    record = replace(model_record(embedded), fingerprint="another")
    with pytest.raises(ModelError, match=r"builtin:de-en: another model on"):
        loaded(*plainly(record))


def test_the_bar_never_goes_back(cluster: Any) -> None:
    seen: list[tuple[int, int]] = []
    gauge = Gauge(lambda steps, tokens: seen.append((steps, tokens)), None)
    for report in ((0, 5, 50), (1, 2, 20), (0, 0, 0), (0, 8, 80)):  # slice 0 was started again
        gauge.set(*report)
    assert seen == [(5, 50), (2, 20), (0, 0), (3, 30)]


def test_an_unfit_corpus_is_the_same_error_as_on_one_machine(
    cluster: Any, embedded: TranslationModel, tmp_path: Path
) -> None:
    from knnmt import CorpusError

    file = tmp_path / "long.tsv"
    file.write_text("ein Wort " * 2000 + "\ta word\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="no pair is short enough"):
        build_store(tmp_path / "store", embedded, [Corpus(file)], BuildSettings(), workers=RayWorkers())
