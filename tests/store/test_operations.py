"""Thousands of random changes of a store against a plain list of sentence pairs that does the same."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule
from living import HashModel, corpus_of, key_of, use_hash_keys

from knnmt import BuildSettings, Store, build_store
from knnmt.errors import SettingsError
from knnmt.retrieval.local_retriever import LocalRetriever
from knnmt.store.adding import AddSettings, add_to_store
from knnmt.store.compacting import compact_store
from knnmt.store.filters import Condition
from knnmt.store.merging import merge_stores
from knnmt.store.removing import remove_from_store
from knnmt.store.verification import problems_of
from knnmt.store.versions import VERSIONS_KEPT, roll_back

MODEL = HashModel()
STEPS = 50
EXAMPLES = int(os.environ.get("KNNMT_OPERATIONS", "500")) // STEPS  # 10,000 operations take some minutes
WORDS = st.sampled_from(["ein", "zwei", "drei", "vier"])
TEXTS = st.lists(WORDS, min_size=1, max_size=2).map(" ".join)
PAIRS = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4)
CORPORA = st.sampled_from(["house", "client"])


class Known(NamedTuple):
    """What the plain model remembers of a segment."""

    source: str
    target: str
    corpus: str


class PulledPlugError(BaseException):
    pass


class LivingStore(RuleBasedStateMachine):
    readers = Bundle("readers")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "store"
        self.versions: dict[int, list[Known]] = {}

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @property
    def memory(self) -> list[Known]:
        return self.versions[max(self.versions)]

    def changed(self, memory: list[Known]) -> None:
        """The next version of the plain model; those that are too old are forgotten, as by the store."""
        self.versions[max(self.versions, default=0) + 1] = memory
        for version in list(self.versions):
            if version <= max(self.versions) - VERSIONS_KEPT:
                del self.versions[version]

    @initialize(pairs=PAIRS, corpus=CORPORA)
    def build(self, pairs: list[tuple[str, str]], corpus: str) -> None:
        text = corpus_of(self.folder, pairs, corpus)
        build_store(self.path, MODEL, [text], BuildSettings(part_entries=6))  # type: ignore[arg-type]
        self.changed([Known(*pair, corpus) for pair in pairs])

    @rule(pairs=PAIRS, corpus=CORPORA, replace=st.booleans())
    def add(self, pairs: list[tuple[str, str]], corpus: str, replace: bool) -> None:
        add_to_store(
            self.path,
            MODEL,  # type: ignore[arg-type]
            [corpus_of(self.folder, pairs, corpus)],
            AddSettings(replace=replace, part_entries=6),
        )
        after = added(self.memory, pairs, corpus, replace=replace)
        if after != self.memory:
            self.changed(after)

    @precondition(lambda self: self.memory)
    @rule(dice=st.randoms(use_true_random=False))
    def remove_a_source(self, dice: np.random.Generator) -> None:
        source = dice.choice(self.memory).source
        remove_from_store(self.path, source_texts=[source])
        self.changed([known for known in self.memory if known.source != source])

    @rule(corpus=CORPORA)
    def remove_a_corpus(self, corpus: str) -> None:
        left = [known for known in self.memory if known.corpus != corpus]
        if left == self.memory:
            with pytest.raises(SettingsError):
                remove_from_store(self.path, corpora=[corpus])
            return
        remove_from_store(self.path, where=[f"corpus={corpus}"])
        self.changed(left)

    @precondition(lambda self: self.memory)
    @rule(dice=st.randoms(use_true_random=False))
    def remove_a_segment(self, dice: np.random.Generator) -> None:
        segments = list(Store.open(self.path).all_segments())
        place = dice.randrange(len(segments))
        remove_from_store(self.path, segments=[segments[place].segment])
        self.changed([known for number, known in enumerate(self.memory) if number != place])

    @rule(pairs=PAIRS, corpus=CORPORA)
    def merge(self, pairs: list[tuple[str, str]], corpus: str) -> None:
        other = self.folder / "other"
        build_store(other, MODEL, [corpus_of(self.folder, pairs, corpus)])  # type: ignore[arg-type]
        merge_stores(self.path, [other])
        shutil.rmtree(other)
        self.changed(added(self.memory, pairs, corpus, replace=False))

    @precondition(lambda self: self.memory)
    @rule()
    def compact(self) -> None:
        compact_store(self.path, part_entries=8)
        self.changed(self.memory)
        self.versions = {max(self.versions): self.memory}

    @precondition(lambda self: len(self.versions) > 1)
    @rule(dice=st.randoms(use_true_random=False))
    def go_back(self, dice: np.random.Generator) -> None:
        version = dice.choice(sorted(self.versions)[:-1])
        roll_back(self.path, version)
        self.changed(self.versions[version])

    @precondition(lambda self: self.memory)
    @rule(pairs=PAIRS, steps=st.integers(0, 30), what=st.sampled_from(["add", "remove", "compact"]))
    def crash(self, pairs: list[tuple[str, str]], steps: int, what: str) -> None:
        """The change stops dead before one of its flushes to disk; what comes later finds the old state or the new."""
        text, source = corpus_of(self.folder, pairs, "house"), self.memory[0].source
        change: dict[str, Callable[[], object]] = {
            "add": lambda: add_to_store(self.path, MODEL, [text]),  # type: ignore[arg-type]
            "remove": lambda: remove_from_store(self.path, source_texts=[source]),
            "compact": lambda: compact_store(self.path),
        }
        new = {
            "add": added(self.memory, pairs, "house", replace=False),
            "remove": [known for known in self.memory if known.source != source],
            "compact": self.memory,
        }[what]
        before = max(self.versions)
        stop_dead(change[what], steps)
        now = Store.open(self.path).manifest.version
        if now > before:
            self.changed(new)
            if what == "compact":  # the past is forgotten in the same moment
                self.versions = {max(self.versions): new}

    @rule(target=readers)
    def open_a_reader(self) -> tuple[Store, list[Known]]:
        store = Store.open(self.path)
        store.hold()
        return store, list(self.memory)

    @rule(reader=readers)
    def a_reader_sees_what_it_opened(self, reader: tuple[Store, list[Known]]) -> None:
        store, memory = reader
        assert known_in(store) == memory

    @invariant()
    def same_memory(self) -> None:
        if self.versions:
            store = Store.open(self.path)
            assert known_in(store) == self.memory
            assert store.manifest.version == max(self.versions)
            assert store.live_segments == len(self.memory)
            assert store.live_entries == sum(len(known.target.split()) + 1 for known in self.memory)

    @precondition(lambda self: self.versions and self.memory)
    @rule(corpus=CORPORA)
    def every_pair_is_found_and_no_other(self, corpus: str) -> None:
        store = Store.open(self.path)
        assert list(problems_of(store)) == []
        assert found(store, self.memory) == set(self.memory)
        wanted = [known for known in self.memory if known.corpus == corpus]
        if wanted:
            assert found(store, wanted, where=[Condition("corpus", "=", corpus)]) == set(wanted)


def added(memory: list[Known], pairs: list[tuple[str, str]], corpus: str, *, replace: bool) -> list[Known]:
    """What `add` promises, on a plain list."""
    last = dict(pairs)
    after = list(memory)
    for source, target in pairs:
        if replace and last[source] != target:
            continue
        if replace:
            after = [known for known in after if known.source != source or known.target == target]
        if not any((known.source, known.target) == (source, target) for known in after):
            after.append(Known(source, target, corpus))
    return after


def known_in(store: Store) -> list[Known]:
    return [Known(segment.source, segment.target, segment.corpus) for segment in store.all_segments()]


def found(store: Store, memory: list[Known], **options: object) -> set[Known]:
    """All that a search for every pair's first key finds."""
    queries = np.stack([key_of(known.source, known.target, 0) for known in memory]).astype(np.float32)
    retriever = LocalRetriever([store], **options)  # type: ignore[arg-type]
    entries = retriever.search(queries, retriever.entries).entries
    segments = map(store.segment, set(store.segment_numbers(entries[entries >= 0]).tolist()))
    return {Known(segment.source, segment.target, segment.corpus) for segment in segments}


def stop_dead(change: Callable[[], object], steps: int) -> None:
    """Run a change up to a number of flushes; then nothing more of it happens, not even its own tidying up."""
    left = iter(range(steps))

    def flush(_: int) -> None:
        if next(left, None) is None:
            raise PulledPlugError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", flush)
        patch.setattr("knnmt.store.versions.clear", lambda _: None)
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        try:
            change()
        except PulledPlugError:
            return


@pytest.fixture(autouse=True)
def in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    use_hash_keys(monkeypatch)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # the crashes here are of the process, not of the machine


LivingStore.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


class TestLivingStore(LivingStore.TestCase):  # type: ignore[misc, name-defined]
    @pytest.fixture(autouse=True)
    def _in_memory(self, in_memory: None) -> None:
        pass
