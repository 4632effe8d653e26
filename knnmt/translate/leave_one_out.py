"""Searches for sentences of the memory as if they were new: without themselves, their copies and near-copies."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.layout.bitmaps import as_array
from knnmt.layout.records import HASHES
from knnmt.mixing.coverage import Coverage
from knnmt.mixing.evidence import NEIGHBOURS, RANKED, joined_evidence
from knnmt.mixing.neighbours import Neighbours
from knnmt.mixing.training import Foreign, Seen
from knnmt.models.translation_model import TranslationModel
from knnmt.retrieval.retriever import Retriever
from knnmt.store.datastore import Store
from knnmt.store.filters import numbers_below
from knnmt.translate.observing import Forced, evidence_of, forced, search_for

SEGMENTS = 400
POSITIONS = 6000  # of them that are searched for, where they are long
SPARE = 64  # neighbours searched beyond those that are kept, because some are left out
COPIED = 0.6  # of a sentence's tokens found in one other sentence: that is a near-copy
LONGEST = 80  # tokens of a sentence that is looked at
SEED = 0


def seen_text(
    model: TranslationModel,
    store: Store,
    retriever: Retriever,
    coverage: Coverage,
    variance: float,
    *,
    segments: int = SEGMENTS,
) -> Seen:
    """Observations of some of the memory's own sentences, each left out of its own search."""
    numbers = sampled(store, segments)
    pairs = store.segments_at(numbers)
    sources = model.encode_sources([pair.source for pair in pairs])
    targets = model.encode_targets([pair.target for pair in pairs])
    short = [row for row in range(len(pairs)) if max(len(sources[row]), len(targets[row])) <= LONGEST]
    sources, targets, numbers = [sources[row] for row in short], [targets[row] for row in short], numbers[short]
    ignored = special_tokens(model)
    shares = [coverage.shares(counted_tokens(source, ignored), without_itself=True) for source in sources]
    leaving = LeavingOut(store)

    def found(said: Forced) -> Neighbours:
        return leaving.out(said, search_for(said, retriever, NEIGHBOURS + SPARE), numbers)

    said = forced(model, sources, targets, positions=POSITIONS)
    return rows_of(said, found, torch.tensor(shares, dtype=torch.float), variance)


def new_text(
    model: TranslationModel,
    retriever: Retriever,
    coverage: Coverage,
    variance: float,
    sources: Sequence[str],
    references: Sequence[str],
) -> Seen | None:
    """Observations of text that is not in the memory, with known translations; None if no pair can be used."""
    encoded = zip(model.encode_sources(sources), model.encode_targets(references), strict=True)
    pairs = [(source, target) for source, target in encoded if max(len(source), len(target)) <= LONGEST]
    if not pairs:
        return None
    ignored = special_tokens(model)
    shares = [coverage.shares(counted_tokens(source, ignored)) for source, _ in pairs]
    said = forced(model, [source for source, _ in pairs], [target for _, target in pairs])
    return rows_of(said, lambda one: search_for(one, retriever), torch.tensor(shares, dtype=torch.float), variance)


def rows_of(
    said: Iterable[Forced], search: Callable[[Forced], Neighbours], signals: torch.Tensor, variance: float
) -> Seen:
    """What is seen at each position; `signals` are those of each pair."""
    parts, hits, alone, sentences = [], [], [], []
    for one in said:
        ranking = one.following.rank(RANKED)
        evidence = evidence_of(one, ranking, search(one), signals[one.pairs], variance)
        parts.append(evidence)
        hits.append(evidence.distances.isfinite() & (evidence.tokens == one.tokens[:, None]))
        alone.append((one.following.at(one.tokens[:, None]) - ranking.total)[:, 0])
        sentences.append(torch.from_numpy(one.pairs))
    return Seen(joined_evidence(parts), torch.cat(hits), torch.cat(alone), torch.cat(sentences))


def foreign_rows(
    model: TranslationModel,
    retriever: Retriever,
    coverage: Coverage,
    variance: float,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
) -> Foreign:
    """Observations of general text with translations by the model itself."""
    ignored = special_tokens(model)
    signals = torch.tensor([coverage.shares(counted_tokens(source, ignored)) for source in sources], dtype=torch.float)
    parts, sentences = [], []
    for said in forced(model, sources, targets):
        ranking, found = said.following.rank(RANKED), search_for(said, retriever)
        parts.append(evidence_of(said, ranking, found, signals[said.pairs], variance))
        sentences.append(torch.from_numpy(said.pairs))
    return Foreign(joined_evidence(parts), torch.cat(sentences))


def sampled(store: Store, count: int) -> NDArray[np.int64]:
    """Live segments from the whole store, each with a different source, ascending."""
    live = as_array(numbers_below(store.manifest.segments) - store.removed)
    chosen = np.random.default_rng(SEED).permutation(live)[: 2 * count]
    hashes = np.concatenate([np.array(column[:, 0]) for column in store.columns(HASHES)])
    _, firsts = np.unique(hashes[chosen], return_index=True)
    return np.sort(chosen[np.sort(firsts)][:count])


def special_tokens(model: TranslationModel) -> frozenset[int]:
    """Tokens that say nothing about a sentence, such as its end or its language."""
    return frozenset(model.tokenizer.all_special_ids)


def counted_tokens(source: Sequence[int], ignored: frozenset[int]) -> list[int]:
    return [token for token in source if token not in ignored]


class LeavingOut:
    """Takes out of each row's neighbours what comes from its own sentence or from one that is nearly the same."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.hashes = np.concatenate([np.array(column[:, 0]) for column in store.columns(HASHES)])

    def out(self, said: Forced, found: Neighbours, numbers: NDArray[np.int64]) -> Neighbours:
        """`numbers` are the segments of the pairs that were looked at."""
        known = found.entries >= 0
        owners = np.full(found.entries.shape, -1)
        owners[known] = self.store.segment_numbers(found.entries[known])
        own = numbers[said.pairs][:, None]
        gone = ~known | (owners == own) | (self.hashes[owners] == self.hashes[own])
        hits = ~gone & (found.tokens == said.tokens.numpy()[:, None])
        for pair in np.unique(said.pairs):
            rows = said.pairs == pair
            copies = near_copies(owners[rows], hits[rows])
            gone[rows] |= np.isin(owners[rows], copies)
        return remaining(found, gone)


def near_copies(owners: NDArray[np.int64], hits: NDArray[np.bool_]) -> list[int]:
    """Other sentences with nearly all of a sentence's tokens at the same positions: owners and hits are [tokens, k]."""
    found = Counter(one for row, hit in zip(owners, hits, strict=True) for one in set(row[hit].tolist()))
    return [one for one, times in found.items() if times >= max(3, COPIED * len(owners))]


def remaining(found: Neighbours, gone: NDArray[np.bool_]) -> Neighbours:
    """Neighbours without some of them, still nearest first; free places are empty."""
    order = np.argsort(gone, axis=1, kind="stable")
    missing = np.take_along_axis(gone, order, 1)
    distances = np.where(missing, np.inf, np.take_along_axis(found.distances, order, 1)).astype(np.float32)
    entries = np.where(missing, -1, np.take_along_axis(found.entries, order, 1))
    tokens = np.where(missing, 0, np.take_along_axis(found.tokens, order, 1))
    return replace(found, distances=distances, entries=entries, tokens=tokens)
