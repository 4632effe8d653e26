"""Down-sampling: exactly so many entries of each token, evenly spread, the same after a kill, and traceable."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from command_line import Run
from hypothesis import given
from hypothesis import strategies as st

from knnmt import BuildSettings, Corpus, SettingsError, Store, StoreError, Translator, build_store
from knnmt.cli.demo import demo_corpus
from knnmt.models.translation_model import TranslationModel
from knnmt.store.building import plan_of
from knnmt.store.downsampling import Downsampling
from knnmt.store.verification import problems_of

CAP = 3
PAIRS = 80


@pytest.fixture(scope="module")
def capped(embedded: TranslationModel, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """As the store of conftest, but of at most three entries a token; its last part has very few."""
    path = tmp_path_factory.mktemp("stores") / "capped"
    settings = BuildSettings(limit=PAIRS, part_entries=400, cap=CAP)
    return build_store(path, embedded, [demo_corpus("memory")], settings)


def thinned(targets: list[list[int]], cap: int) -> list[tuple[int, ...]]:
    sampling = Downsampling(cap)
    sampling.count(targets, done=0)
    return [sampling.kept_of(target) for target in targets]


@pytest.mark.parametrize(
    ("targets", "cap", "kept"),
    [
        ([[5, 5, 5, 5]], 1, [(0,)]),
        ([[5, 5, 5, 5]], 2, [(0, 2)]),
        ([[5, 6, 5], [5, 5, 7], [5, 5, 5]], 2, [(0, 1), (2,), (0,)]),
        ([[1, 2], [2, 1]], 2, [(0, 1), (0, 1)]),
        ([[], [9]], 1, [(), (0,)]),
    ],
)
def test_which_are_kept(targets: list[list[int]], cap: int, kept: list[tuple[int, ...]]) -> None:
    assert thinned(targets, cap) == kept


texts = st.lists(st.lists(st.integers(0, 4), max_size=12), max_size=12)


@given(texts, st.integers(1, 9))
def test_exactly_so_many_of_each_token(targets: list[list[int]], cap: int) -> None:
    totals = Counter(token for target in targets for token in target)
    kept = Counter(target[at] for target, places in zip(targets, thinned(targets, cap), strict=True) for at in places)
    assert kept == {token: min(total, cap) for token, total in totals.items()}


@given(texts, st.integers(1, 9), st.integers(0, 12))
def test_going_on_later_makes_no_difference(targets: list[list[int]], cap: int, done: int) -> None:
    resumed = Downsampling(cap)
    resumed.count(targets, done=done)
    assert [resumed.kept_of(target) for target in targets[done:]] == thinned(targets, cap)[done:]


def test_a_capped_store(store: Store, capped: Store) -> None:
    before, after = Counter(store.values.tolist()), Counter(capped.values.tolist())
    assert after == {token: min(total, CAP) for token, total in before.items()}
    assert capped.manifest.downsampling == {"cap": CAP, "dropped": store.entries - capped.entries}
    assert (capped.manifest.segments, capped.bytes < store.bytes) == (store.manifest.segments, True)
    assert [part.consumed for part in capped.manifest.parts] == [part.consumed for part in store.manifest.parts]
    assert list(problems_of(capped)) == []


def places_in(store: Store) -> list[tuple[int, int]]:
    """Segment and position of every entry."""
    segments = store.segment_numbers(np.arange(store.entries)).tolist()
    return list(zip(segments, np.concatenate(list(store.columns("positions"))).tolist(), strict=True))


def test_kept_entries_are_those_of_the_whole_store(store: Store, capped: Store) -> None:
    places = {place: entry for entry, place in enumerate(places_in(store))}
    kept = places_in(capped)
    entries = np.array([places[place] for place in kept])
    assert (np.diff(entries) > 0).all()
    assert (store.values[entries] == capped.values).all()
    # Batches differ in nothing but what is written, so that even the keys are the same.
    assert (store.gather("keys", entries) == np.concatenate(list(capped.columns("keys")))).all()


def test_neighbours_are_traced(capped: Store) -> None:
    explanation = Translator.from_store(capped.path, k=4, beam=2).explain("Prüfen Sie den Akku.")
    for token in explanation.tokens:
        for neighbour in token.neighbours:
            written = neighbour.prefix + neighbour.text
            assert neighbour.target.startswith(written)
            assert neighbour.token.replace("▁", "") in written.replace(" ", "") or neighbour.token == "</s>"


def test_a_part_without_entries(embedded: TranslationModel, tmp_path: Path) -> None:
    """All tokens of the later lines are those of the first."""
    (tmp_path / "same.tsv").write_text("Hallo Welt.\tHello world.\n" * 6, encoding="utf-8")
    store = build_store(tmp_path / "s", embedded, [Corpus(tmp_path / "same.tsv")], BuildSettings(cap=1, part_entries=5))
    parts = [part.entries for part in store.manifest.parts]
    assert (len(parts), parts[0], sum(parts[1:]), store.manifest.segments) == (6, store.entries, 0, 6)
    assert list(problems_of(store)) == []
    assert Translator.from_store(store.path, k=2, weight=1.0).translate(["Hallo Welt."]) == ["Hello world."]


class PulledPlugError(Exception):
    pass


@pytest.mark.parametrize("calls_before", [0, 3, 5])
def test_a_killed_build_goes_on_to_the_same_store(
    embedded: TranslationModel, memory_file: Path, tmp_path: Path, calls_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import knnmt.store.building as building

    corpora, settings = [Corpus(memory_file)], {"part_entries": 200, "batch_tokens": 256, "cap": 2, "limit": 40}
    whole, calls = building.teacher_forced_keys, iter(range(calls_before))

    def fail_later(*arguments: object) -> object:
        if next(calls, None) is None:
            raise PulledPlugError
        return whole(*arguments)  # type: ignore[arg-type]

    undisturbed = build_store(tmp_path / "whole", embedded, corpora, BuildSettings(**settings))
    with monkeypatch.context() as patch:
        patch.setattr(building, "teacher_forced_keys", fail_later)
        with pytest.raises(PulledPlugError):
            build_store(tmp_path / "broken", embedded, corpora, BuildSettings(**settings))
    with pytest.raises(StoreError, match="but cap changed"):
        build_store(tmp_path / "broken", embedded, corpora, BuildSettings(**settings | {"cap": 3}, resume=True))
    resumed = build_store(tmp_path / "broken", embedded, corpora, BuildSettings(**settings, resume=True))
    assert resumed.fingerprint == undisturbed.fingerprint
    assert resumed.manifest.downsampling == undisturbed.manifest.downsampling


def test_a_build_without_cap_can_go_on_with_an_older_plan(embedded: TranslationModel, memory_file: Path) -> None:
    assert plan_of(embedded, [Corpus(memory_file)], BuildSettings())["cap"] is None


def test_a_cap_of_nothing() -> None:
    with pytest.raises(SettingsError, match="--cap 0: must be at least 1"):
        BuildSettings(cap=0)


def test_the_command(run: Run, memory_file: Path, tmp_path: Path) -> None:
    place = tmp_path / "store"
    built = run("build", place, "--model", "builtin:de-en", "--corpus", memory_file, "--cap", 1, "--limit", 5)
    facts = json.loads(run("info", place, "--json").out)
    dropped = facts["downsampling"]["dropped"]
    assert dropped > 5
    assert f"left out: {dropped:,} entries above --cap 1" in built.err
    assert f"at most 1 entries of each target token: {dropped:,} left out" in " ".join(run("info", place).out.split())
