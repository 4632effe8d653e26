"""A stand-in for a model, fast enough for thousands of changes of a store: keys are made from hashes of the text."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from knnmt import BuildSettings, Corpus, build_store
from knnmt.layout.parts import PartWriter
from knnmt.retrieval.local_retriever import LocalRetriever
from knnmt.store.adding import AddSettings, add_to_store
from knnmt.store.datastore import Store

DIMENSION = 8
END = 1


@dataclass(frozen=True)
class HashModel:
    """Words are tokens; what a translation model does with them is left out."""

    name: str = "hash-model"
    fingerprint: str = "f" * 16
    dimension: int = DIMENSION
    positions: int = 64
    decoder_prefix: tuple[int, ...] = (0,)
    source_lang: str = "de"
    target_lang: str = "en"
    source_prefix: str = ""
    key_site: Any = field(default_factory=lambda: SimpleNamespace(path="nowhere"))
    network: Any = field(default_factory=lambda: SimpleNamespace(config=SimpleNamespace(model_type="hash")))

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        return [[number_of(word) for word in text.split()] for text in texts]

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        return [[*(number_of(word) for word in text.split()), END] for text in texts]


def number_of(word: str) -> int:
    return 2 + int.from_bytes(hashlib.blake2b(word.encode(), digest_size=2).digest(), "little")


def key_of(source: str, target: str, position: int) -> np.ndarray:
    digest = hashlib.blake2b(f"{source}\n{target}\n{position}".encode(), digest_size=DIMENSION).digest()
    return np.frombuffer(digest, np.uint8).astype(np.float32) / 32


def write_hash_keys(writer: PartWriter, *_: object) -> None:
    """In place of `building.write_keys`."""
    for position, encoded in enumerate(writer.segments):
        pair = encoded.segment
        keys = [key_of(pair.source, pair.target, at) for at in range(len(encoded.target))]
        writer.put(position, np.stack(keys))


def use_hash_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("knnmt.store.building.write_keys", write_hash_keys)
    monkeypatch.setattr("knnmt.store.adding.write_keys", write_hash_keys)


def corpus_of(folder: Path, pairs: Iterable[tuple[str, str]], name: str = "memory") -> Corpus:
    file = folder / f"{name}.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return Corpus(file, languages=("de", "en"))


def pairs_in(store: Store) -> list[tuple[str, str]]:
    return [(segment.source, segment.target) for segment in store.all_segments()]


MODEL = HashModel()
PAIRS = [("eins", "one"), ("zwei", "two"), ("drei vier", "three four")]


def made(path: Path, pairs: list[tuple[str, str]], name: str = "memory", **settings: object) -> Store:
    folder = path.with_name(f"{path.name}-text")
    folder.mkdir()
    corpus = corpus_of(folder, pairs, name)
    return build_store(path, MODEL, [corpus], BuildSettings(**settings))  # type: ignore[arg-type]


def add(store: Store, pairs: list[tuple[str, str]], name: str = "more", **settings: object) -> object:
    folder = store.path.with_name("added-text")
    folder.mkdir(exist_ok=True)
    return add_to_store(store.path, MODEL, [corpus_of(folder, pairs, name)], AddSettings(**settings))  # type: ignore[arg-type]


def found_pairs(store: Store, queries: np.ndarray, k: int, **options: object) -> set[tuple[str, str]]:
    """Every pair that is a neighbour of some query."""
    found = LocalRetriever([store], **options).search(queries.astype(np.float32), k)  # type: ignore[arg-type]
    segments = store.segment_numbers(np.unique(found.entries[found.entries >= 0]))
    return {(store.segment(int(n)).source, store.segment(int(n)).target) for n in segments}


def everywhere(pairs: list[tuple[str, str]]) -> np.ndarray:
    return np.stack([key_of(source, target, 0) for source, target in pairs])
