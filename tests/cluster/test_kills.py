"""Whatever dies on a cluster, and whenever: each build and each answer is whole or one clear error; nothing is lost."""

import logging
import os
import random
import re
import shutil
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ray_nodes import worked_while_killing

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'knnmt[cluster]'")

from knnmt import BuildSettings, ClusterError, Store, Translator, build_store  # noqa: E402
from knnmt.cli.demo import demo_corpus, read_demo  # noqa: E402
from knnmt.cluster.sharded_retriever import ShardedRetriever  # noqa: E402
from knnmt.cluster.workers import RayWorkers  # noqa: E402
from knnmt.models.translation_model import TranslationModel  # noqa: E402
from knnmt.store.verification import problems_of  # noqa: E402

KILLS = int(os.environ.get("KNNMT_KILLS", "4"))
BUILDS = KILLS // 2  # kills during builds
ANSWERS = KILLS - BUILDS  # kills while sentences are translated
RECOVERING = 12.0  # seconds, in which shards that died are mostly back
SETTINGS = BuildSettings(limit=120, part_entries=150, batch_tokens=512, index="IVF16,PQ32x4fs")
NAMED = re.compile(r"slice \d+ of the corpus: |clusters of part \d+: |shard \d of 2")

log = logging.getLogger(__name__)


@pytest.fixture(scope="module")
def local(embedded: TranslationModel, tmp_path_factory: pytest.TempPathFactory) -> Store:
    return build_store(tmp_path_factory.mktemp("local") / "store", embedded, [demo_corpus("memory")], SETTINGS)


def content(store: Store) -> list[str]:
    return [record.sha256 for record in store.files().values()]


def test_builds(cluster: Any, local: Store, embedded: TranslationModel, tmp_path: Path) -> None:
    """One that ends with an error is resumed."""
    chosen, seen, ends = random.Random(1), Counter[str](), Counter[str]()
    while seen.total() < BUILDS:
        path, resume = tmp_path / f"store-{ends['whole']}", False
        while not (path / "manifest.json").exists():
            work = partial(built, path, embedded, resume=resume)
            end, killed = worked_while_killing(cluster, "make", BUILDS - seen.total(), 5.0, chosen, work)
            seen.update(killed)
            ends[end], resume = ends[end] + 1, True
        store = Store.open(path)
        assert content(store) == content(local)
        assert list(problems_of(store)) == []
        log.info("kills %s, builds %s", dict(seen), dict(ends))
        shutil.rmtree(path)
    assert {*ends} <= {"whole", "error"}


def built(path: Path, model: TranslationModel, *, resume: bool) -> str:
    """How a build ended."""
    try:
        build_store(path, model, [demo_corpus("memory")], replace(SETTINGS, resume=resume), workers=RayWorkers())
    except ClusterError as error:
        return "error" if NAMED.match(str(error)) else repr(error)
    return "whole"


def test_translations(cluster: Any, local: Store) -> None:
    texts = [pair.source for pair in read_demo("test")[:4]]
    expected = Translator.from_store(local.path, k=4).translate(texts)
    chosen, seen, ends = random.Random(2), Counter[str](), Counter[str]()
    translator = Translator.from_store(local.path, k=4, searched_by=ShardedRetriever)
    while seen.total() < ANSWERS:
        work = partial(answered, translator, texts, expected)
        end, killed = worked_while_killing(cluster, "ShardActor", ANSWERS - seen.total(), RECOVERING, chosen, work)
        seen.update(killed)
        ends[end] += 1
        log.info("kills %s, answers %s", dict(seen), dict(ends))
    assert translator.translate(texts) == expected
    assert {*ends} <= {"whole", "error"}


def answered(translator: Translator, texts: list[str], expected: list[str]) -> str:
    """How a translation ended."""
    try:
        return "whole" if translator.translate(texts) == expected else "wrong"
    except ClusterError as error:
        return "error" if NAMED.match(str(error)) else repr(error)
