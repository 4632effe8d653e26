"""Searching on a real cluster: the neighbours of local search, whatever dies, or one clear error."""

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from command_line import Run
from near import queries_near, same
from ray_nodes import NODE

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'knnmt[cluster]'")


from knnmt import BuildSettings, ClusterError, Store, StoreError, Translator, build_store  # noqa: E402
from knnmt.cli.demo import demo_corpus  # noqa: E402
from knnmt.cluster.connection import NOT_NICE  # noqa: E402
from knnmt.cluster.sharded_retriever import ShardedRetriever  # noqa: E402
from knnmt.models.translation_model import TranslationModel  # noqa: E402
from knnmt.retrieval.local_retriever import LocalRetriever  # noqa: E402

SETTINGS = BuildSettings(limit=80, part_entries=400, index="IVF16,PQ32x4fs")
KILLS = 3  # every third one for good; `test_kills.py` does more


@pytest.fixture(scope="module")
def coded(embedded: TranslationModel, tmp_path_factory: pytest.TempPathFactory) -> Store:
    return build_store(tmp_path_factory.mktemp("stores") / "store", embedded, [demo_corpus("memory")], SETTINGS)


@pytest.fixture(scope="module")
def spread(cluster: Any, coded: Store) -> ShardedRetriever:
    return ShardedRetriever([coded], shards=2)


def pids(retriever: ShardedRetriever) -> list[int]:
    return [ray.get(actor.pid.remote(), timeout=30) for actor in retriever.shards.actors]


@pytest.mark.parametrize("plain", ["", "lines"])
def test_a_thousand_queries(
    spread: ShardedRetriever, coded: Store, plain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KNNMT_PLAIN", plain)
    queries, local = queries_near(coded, 1000), LocalRetriever([coded])
    for first in range(0, 1000, 100):
        some = queries[first : first + 100]
        same(spread.search(some, 16), local.search(some, 16))
    found = spread.search(queries[:5], 4)
    assert spread.locate(found.entries.ravel().tolist()) == local.locate(found.entries.ravel().tolist())


def test_shards_are_asked_over_lines(spread: ShardedRetriever, coded: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the first request."""
    queries = queries_near(coded, 5)
    spread.search(queries, 4)
    monkeypatch.setattr(spread.shards, "search_some", None)
    same(spread.search(queries, 4), LocalRetriever([coded]).search(queries, 4))


@pytest.mark.parametrize("plain", ["", "lines"])
def test_killed_actors_come_back_and_every_answer_is_whole(
    spread: ShardedRetriever, coded: Store, plain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KNNMT_PLAIN", plain)
    queries, local = queries_near(coded, 50), LocalRetriever([coded])
    expected, chosen = local.search(queries, 16), random.Random(3)
    for number in range(KILLS):
        victim = chosen.choice(spread.shards.actors)
        if number % 3 == 2:
            ray.kill(victim)  # for good: a new one takes its place
        else:
            os.kill(ray.get(victim.pid.remote(), timeout=30), signal.SIGKILL)
        same(spread.search(queries, 16), expected)


def test_two_batches_in_flight(cluster: Any, coded: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """While an actor dies; each batch gets its own neighbours. A trial decides over a graph, which rounds otherwise."""
    monkeypatch.setenv("KNNMT_PLAIN", "compiled")
    texts = [f"Prüfen Sie den Akku {number}." for number in range(8)]
    plain = Translator.from_store(coded.path, k=4).translations(texts, batch_tokens=20)
    translator = Translator.from_store(coded.path, k=4, searched_by=ShardedRetriever)
    assert isinstance(translator.retriever, ShardedRetriever)
    victim = pids(translator.retriever)[0]
    killed = threading.Timer(0.3, os.kill, [victim, signal.SIGKILL])
    killed.start()
    for _ in range(2):
        assert translator.translations(texts, batch_tokens=20) == plain
    killed.join()


def test_opening_may_take_longer_than_an_answer(cluster: Any, coded: Store) -> None:
    """A new process alone takes longer than this to start."""
    assert ShardedRetriever([coded], shards=1, patience=0.01).entries == coded.entries


@pytest.mark.parametrize("plain", ["", "lines"])
def test_a_shard_that_is_silent_is_named(
    cluster: Any, coded: Store, plain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KNNMT_PLAIN", plain)
    retriever = ShardedRetriever([coded], shards=2)
    retriever.search(queries_near(coded, 3), 4)
    stopped = pids(retriever)[1]
    retriever.shards.patience = 1.0
    os.kill(stopped, signal.SIGSTOP)
    try:
        with pytest.raises(ClusterError, match=r"shard 2 of 2: no answer within 1 s"):
            retriever.search(queries_near(coded, 3), 4)
    finally:
        os.kill(stopped, signal.SIGKILL)


def test_what_a_shard_cannot_open_is_an_error_that_names_it(cluster: Any, coded: Store, tmp_path: Path) -> None:
    import shutil

    copied = Store.open(Path(shutil.copytree(coded.path, tmp_path / "store")))
    retriever = ShardedRetriever([copied], shards=2)
    (copied.path / "index.faiss").unlink()
    for pid in pids(retriever):
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(StoreError, match=r"shard \d of 2: .*index\.faiss: missing"):
        retriever.search(queries_near(coded, 3), 4)


def test_a_node_that_goes_takes_nothing_with_it(cluster: Any, coded: Store) -> None:
    """While sentences are translated."""
    texts = ["Prüfen Sie den Akku.", "Schalten Sie das Gerät aus.", "Die Datei wurde gespeichert."]
    plain = Translator.from_store(coded.path, k=4).translate(texts)
    node = cluster.add_node(**NODE)
    translator = Translator.from_store(coded.path, k=4, searched_by=ShardedRetriever)
    gone = threading.Thread(target=lambda: cluster.remove_node(node, allow_graceful=False))
    gone.start()
    for _ in range(3):
        assert translator.translate(texts) == plain
    gone.join()
    assert translator.translate(texts) == plain


def test_the_command_line(cluster: Any, coded: Store, run: Run) -> None:
    text = "Prüfen Sie den Akku.\n".encode()
    plain = run("translate", "--store", coded.path, "--k", 4, stdin=text)
    spread = run("translate", "--store", coded.path, "--k", 4, "--ray", cluster.address, "--shards", 3, stdin=text)
    assert (spread.code, spread.out) == (0, plain.out)
    for arguments, complaint in (
        (["--store", coded.path, "--shards", 2], "--shards 2: only with --ray"),
        (["--model", "builtin:de-en", "--ray"], "--ray auto: only with --store"),
        (["--store", coded.path, "--ray", cluster.address, "--shards", 0], "--shards 0: must be at least 1"),
    ):
        refused = run("translate", *arguments, stdin=text)
        assert refused.code == 2
        assert complaint in refused.err


def test_nothing_answers_at_a_wrong_address(monkeypatch: pytest.MonkeyPatch) -> None:
    from knnmt.cluster import connection

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(ClusterError, match=r"--ray 127\.0\.0\.1:9: no cluster answers there"):
        connection.connect("127.0.0.1:9")


STARTED = """
import os
from knnmt.cluster.connection import connected
with connected("local", cpus=5):
    import ray
    print(ray.cluster_resources()["CPU"], os.nice(0), ray.get(ray.remote(lambda: os.nice(0)).remote()))
"""


def test_a_cluster_that_is_started_here(cluster: Any) -> None:
    """It is a new one beside that which is there, and as important as who starts it: Ray would make workers nice."""
    variables = {name: value for name, value in os.environ.items() if name not in NOT_NICE}
    process = subprocess.run([sys.executable, "-c", STARTED], env=variables, capture_output=True, text=True, check=True)
    cpus, here, there = process.stdout.split()
    assert (cpus, there) == ("5.0", here)


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (["build", "S", "--ray"], ["build", "S", "--ray", "auto"]),
        (["--ray", "--shards", "2"], ["--ray", "auto", "--shards", "2"]),
        (["--ray", "file.docx"], ["--ray", "auto", "file.docx"]),
        (["--ray", "10.0.0.1:6379", "x"], ["--ray", "10.0.0.1:6379", "x"]),
        (["--ray", "local"], ["--ray", "local"]),
        (["--raymond"], ["--raymond"]),
    ],
)
def test_an_address_may_be_left_out(given: list[str], taken: list[str]) -> None:
    from knnmt.cli.main import with_addresses

    assert with_addresses(given) == taken
