"""The sentences of a store whose sources have most in common with a text (BM25), for searching among theirs alone."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.store.datastore import Store
from knnmt.translate.retriever import Neighbours

SATURATION, LENGTH = 1.2, 0.75  # BM25's usual k1 and b
UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")  # scripts without spaces: pairs of characters serve as words


def words_of(text: str) -> Iterator[str]:
    for word in re.findall(r"\w+", text.lower()):
        if UNSPACED.search(word):
            yield from (word[at : at + 2] for at in range(max(1, len(word) - 1)))
        else:
            yield word


class Similar:
    """An inverted file over the sources of a store."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.numbers: dict[str, int] = {}
        words, segments = [], []
        lengths = np.zeros(len(texts))
        for segment, text in enumerate(texts):
            found = set(words_of(text))
            lengths[segment] = len(found)
            words += [self.numbers.setdefault(word, len(self.numbers)) for word in found]
            segments += [segment] * len(found)
        counts = np.bincount(words, minlength=len(self.numbers))
        self.segments = np.array(segments)[np.argsort(words, kind="stable")]
        self.starts = np.concatenate([[0], np.cumsum(counts)])
        self.rarity = np.log(1 + (len(texts) - counts + 0.5) / (counts + 0.5))
        self.share = (SATURATION + 1) / (1 + SATURATION * (1 - LENGTH + LENGTH * lengths / lengths.mean()))

    def nearest(self, text: str, most: int) -> NDArray[np.int64]:
        """The most similar sentences that share a word with the text, in ascending order."""
        scores = np.zeros(len(self.share))
        for word in {self.numbers[word] for word in words_of(text) if word in self.numbers}:
            here = self.segments[self.starts[word] : self.starts[word + 1]]
            scores[here] += self.rarity[word] * self.share[here]
        best = np.argpartition(-scores, min(most, len(scores) - 1))[:most]
        return np.sort(best[scores[best] > 0])


class Subset:
    """The entries of some sentences, all of which are looked at."""

    def __init__(self, store: Store, segments: NDArray[np.int64]) -> None:
        self.entries = store.entries_of(segments)
        self.tokens = torch.from_numpy(store.values[self.entries].astype(np.int64))
        self.keys = torch.from_numpy(store.gather("keys", self.entries)).float()
        self.lengths = self.keys.square().sum(dim=1)

    def search(self, queries: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Squared distances and tokens, both [queries, k]; infinite where there are fewer."""
        distances = torch.full((len(queries), k), torch.inf)
        tokens = torch.zeros(len(queries), k, dtype=torch.long)
        found = min(k, len(self.entries))
        if found:
            products = torch.addmm(self.lengths, queries, self.keys.T, alpha=-2)
            nearest, at = products.topk(found, largest=False)
            distances[:, :found] = nearest + queries.square().sum(dim=1, keepdim=True)
            tokens[:, :found] = self.tokens[at]
        return distances, tokens


class Subsets:
    """A subset for each sentence of a batch, asked as a datastore is; `running` says whose rows the queries are."""

    def __init__(self, subsets: Sequence[Subset], entries: int) -> None:
        self.subsets, self.entries = subsets, entries
        self.running: Any = None  # the beam search, once there is one

    def search(self, queries: NDArray[np.float32], k: int) -> Neighbours:
        sentences = self.running.active.tolist()
        rows = torch.from_numpy(queries).view(len(sentences), -1, queries.shape[1])
        found = [self.subsets[sentence].search(row, k) for sentence, row in zip(sentences, rows, strict=True)]
        distances, tokens = (torch.cat(parts).numpy() for parts in zip(*found, strict=True))
        return Neighbours(distances, np.full(distances.shape, -1), tokens)
