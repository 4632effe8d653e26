"""Link strengths between the words of a translation and the words of its source."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from knnmt.units.flat import CLASSES, Span
from knnmt.units.protected import things

Matrix = NDArray[np.float32]

# Marks that stand for each other where languages write them differently.
SAME_MARK = {
    "。": ".", "．": ".", "，": ",", "、": ",", "：": ":", "；": ";", "！": "!", "？": "?", "（": "(", "）": ")",
    "؟": "?", "،": ",", "؛": ";", "।": ".",
}  # fmt: skip


def word_links(
    attention: Matrix, source: tuple[Sequence[int], Sequence[Span]], target: tuple[Sequence[int], Sequence[Span]]
) -> Matrix:
    """Attention between tokens [target tokens, source tokens] as shares between words [target words, source words].

    A side is where each token ends in its text (one more than tokens: the start comes first) and where words stand.
    """
    sources, targets = (shares(*side) for side in (source, target))  # [tokens, words]
    of_words = targets / np.maximum(targets.sum(axis=0, keepdims=True), 1e-9)
    links: Matrix = of_words.T @ attention @ sources
    total = links.sum(axis=1, keepdims=True)
    even: Matrix = np.full_like(links, 1 / max(1, links.shape[1]))
    return np.where(total > 0, links / np.maximum(total, 1e-9), even)


def shares(ends: Sequence[int], spans: Sequence[Span]) -> Matrix:
    """The part of each token that is in each word, [tokens, words]."""
    bounds = np.asarray(ends, np.float32)
    words = np.asarray(spans, np.float32).reshape(-1, 2)
    overlap = np.minimum(bounds[1:, None], words[None, :, 1]) - np.maximum(bounds[:-1, None], words[None, :, 0])
    overlap = np.maximum(overlap, 0)
    parts: Matrix = (overlap / np.maximum(overlap.sum(axis=1, keepdims=True), 1e-9)).astype(np.float32)
    return parts


def balanced(links: Matrix) -> Matrix:
    """Links with less weight on source words that every target word looks at."""
    columns = links / np.sqrt(np.maximum(links.sum(axis=0, keepdims=True), 1e-6))
    even: Matrix = columns / np.maximum(columns.sum(axis=1, keepdims=True), 1e-9)
    return even


def near_diagonal(links: Matrix, strength: float) -> Matrix:
    """Links with less weight on words elsewhere in the sentence, because order rarely differs completely."""
    targets, sources = links.shape
    places = [(np.arange(count, dtype=np.float32) + 0.5) / max(1, count) for count in (targets, sources)]
    leaning: Matrix = links * np.exp(-strength * np.abs(places[0][:, None] - places[1][None, :]))
    even: Matrix = leaning / np.maximum(leaning.sum(axis=1, keepdims=True), 1e-9)
    return even


def with_certain(links: Matrix, source: Sequence[str], target: Sequence[str]) -> Matrix:
    """The links, made certain where there can hardly be a doubt: the same placeholder, number, mark or name.

    A network attends to punctuation for reasons of its own.
    """
    certain = links.copy()
    there = places(target)
    for name, left in places(source).items():
        right = there.get(name, [])
        if len(left) == len(right):
            certain[right] = 0
            certain[right, left] = 1
    return certain


def places(words: Sequence[str]) -> dict[str, list[int]]:
    """The positions of words that a translation repeats: placeholders, numbers, punctuation, names."""
    found: dict[str, list[int]] = defaultdict(list)
    for at, word in enumerate(words):
        if CLASSES[ord(word[0])] in "pa" or is_thing(word) or is_name(word):
            found[SAME_MARK.get(word, word)].append(at)
    return {word: at for word, at in found.items() if len(at) == 1 or not is_name(word)}


def is_name(word: str) -> bool:
    """Whether a word that occurs on both sides is a name: `Evolution`, `PDF`, `ssh2`, but not `die` or `a`."""
    return len(word) >= 3 and (len(word) >= 5 or not word.islower())


@lru_cache(maxsize=1 << 14)
def is_thing(word: str) -> bool:
    found = things(word)
    return len(found) == 1 and found[0].text == word


def is_anchor(word: str, counts: Counter[str]) -> bool:
    """Whether a word on both sides is the same word: it has more than one character and occurs once on each."""
    return counts[word] == 1 and (len(word) > 1 or word.isdecimal())


def anchors(source: Sequence[str], target: Sequence[str]) -> list[tuple[int, int]]:
    """Positions of words that occur once on both sides, such as numbers and names; they measure alignment."""
    left, right = Counter(source), Counter(target)
    return [
        (source.index(word), at)
        for at, word in enumerate(target)
        if is_anchor(word, left) and is_anchor(word, right) and CLASSES[ord(word[0])] not in "pa"
    ]
