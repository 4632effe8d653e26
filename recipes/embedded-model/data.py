"""The training text as arrays of token ids, tokenised once and cached."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from batches import Indices
from languages import language_of
from text import RecipeError, read_lines, read_pairs
from vocabulary import Encoder, load_encoder, tokenizer_files

Tokens = npt.NDArray[np.uint16]
REASONS = ("excluded", "empty", "long")


@dataclass(frozen=True, kw_only=True)
class Source:
    """One corpus as asked for on the command line."""

    source: Path
    target: Path
    weight: float = 1.0
    languages: tuple[str, str] | None = None  # of a model that has a token for each

    @property
    def name(self) -> str:
        name = self.source.name.removesuffix(".gz")
        return f"{name}-{self.languages[1]}" if self.languages else name


def parse_source(words: Sequence[str], *, many_languages: bool = False) -> Source:
    if len(words) not in (2, 3):
        raise RecipeError("--corpus takes SOURCE TARGET [WEIGHT]")
    try:
        weight = float(words[2]) if len(words) == 3 else 1.0
    except ValueError as error:
        raise RecipeError(f"--corpus {words[0]}: the weight {words[2]!r} is not a number") from error
    if weight <= 0:
        raise RecipeError(f"--corpus {words[0]}: the weight must be above zero")
    source, target = Path(words[0]), Path(words[1])
    languages = (language_of(source), language_of(target)) if many_languages else None
    return Source(source=source, target=target, weight=weight, languages=languages)


@dataclass(frozen=True)
class Side:
    """One language of many pairs: pair i is flat[ends[i-1]:ends[i]]."""

    flat: Tokens
    ends: Indices

    @property
    def lengths(self) -> Indices:
        return np.diff(self.ends, prepend=0)

    def line(self, index: int) -> Tokens:
        return self.flat[self.ends[index - 1] if index else 0 : self.ends[index]]

    def take(self, kept: npt.NDArray[np.bool_]) -> Side:
        return Side(self.flat[np.repeat(kept, self.lengths)], np.cumsum(self.lengths[kept]))

    def padded(self, pairs: Indices, pad: int) -> Tensor:
        """Shape (pairs, longest)."""
        rows = [torch.from_numpy(self.line(int(pair)).astype(np.int64)) for pair in pairs]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad)


def join_lines(lines: Sequence[Tokens]) -> Side:
    flat = np.concatenate(lines) if lines else np.empty(0, dtype=np.uint16)
    return Side(flat, np.cumsum([len(line) for line in lines], dtype=np.int64))


def join_sides(sides: Sequence[Side]) -> Side:
    firsts = np.cumsum([0] + [len(side.flat) for side in sides[:-1]])
    ends = [side.ends + first for side, first in zip(sides, firsts, strict=True)]
    return Side(np.concatenate([side.flat for side in sides]), np.concatenate(ends))


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """One corpus, tokenised, with what was left out and why."""

    name: str
    weight: float
    source: Side
    target: Side
    dropped: dict[str, int]

    def __len__(self) -> int:
        return len(self.source.ends)

    def take(self, kept: npt.NDArray[np.bool_]) -> Corpus:
        return Corpus(
            name=self.name, weight=self.weight, dropped=self.dropped,
            source=self.source.take(kept), target=self.target.take(kept),
        )  # fmt: skip


def fingerprint(paths: Iterable[Path], *words: object) -> str:
    digest = hashlib.sha256(repr(words).encode())
    for path in paths:
        if not path.is_file():
            raise RecipeError(f"{path}: no such file; check the path")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def tokenise(source: Source, encoders: tuple[Encoder, Encoder], *, longest: int, exclude: frozenset[str]) -> Corpus:
    """Tokenise one corpus, leaving out pairs that are excluded, empty or too long."""
    pairs = list(read_pairs(source.source, source.target))
    allowed = [pair for pair in pairs if pair[0] not in exclude]
    filled = [pair for pair in allowed if pair[0] and pair[1]]
    sides = [encoder([pair[side] for pair in filled]) for side, encoder in enumerate(encoders)]
    short = [both for both in zip(*sides, strict=True) if max(map(len, both)) <= longest]
    counts = (len(pairs) - len(allowed), len(allowed) - len(filled), len(filled) - len(short))
    kept = [join_lines([both[side] for both in short]) for side in range(2)]
    dropped = dict(zip(REASONS, counts, strict=True))
    return Corpus(name=source.name, weight=source.weight, source=kept[0], target=kept[1], dropped=dropped)


def load_corpus(
    source: Source, vocabulary: Path, cache: Path, *, longest: int, exclude: frozenset[str] = frozenset()
) -> Corpus:
    """Tokenise, or take the cached arrays if neither text nor vocabulary nor limits have changed."""
    files = [source.source, source.target, *tokenizer_files(vocabulary)]
    languages = source.languages or ()
    path = cache / f"{fingerprint(files, longest, sorted(exclude), *languages)}.npz"
    if not path.is_file():
        first, second = languages or (None, None)
        encoders = (load_encoder(vocabulary, "source", first), load_encoder(vocabulary, "target", second))
        write_cache(path, tokenise(source, encoders, longest=longest, exclude=exclude))
    return read_cache(path, source)


def write_cache(path: Path, corpus: Corpus) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".partial")
    with temporary.open("wb") as stream:
        np.savez(
            stream, source=corpus.source.flat, source_ends=corpus.source.ends,
            target=corpus.target.flat, target_ends=corpus.target.ends,
            dropped=np.array([corpus.dropped[reason] for reason in REASONS]),
        )  # fmt: skip
    temporary.replace(path)


def read_cache(path: Path, source: Source) -> Corpus:
    with np.load(path) as arrays:
        return Corpus(
            name=source.name, weight=source.weight,
            source=Side(arrays["source"], arrays["source_ends"]),
            target=Side(arrays["target"], arrays["target_ends"]),
            dropped=dict(zip(REASONS, arrays["dropped"].tolist(), strict=True)),
        )  # fmt: skip


def read_excluded(paths: Iterable[Path]) -> frozenset[str]:
    return frozenset(line for path in paths for line in read_lines(path))


def hold_out(corpus: Corpus, count: int) -> tuple[Corpus, Corpus]:
    """Split into training and validation pairs; the latter are spread evenly over the corpus."""
    if count >= len(corpus):
        raise RecipeError(f"{corpus.name}: has {len(corpus)} usable pairs, too few for --held-out {count}")
    held = np.zeros(len(corpus), dtype=bool)
    held[np.linspace(0, len(corpus), count, endpoint=False).astype(np.int64)] = True
    return corpus.take(~held), corpus.take(held)
