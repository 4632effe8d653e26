"""Puts the tags of a source into its translation: each exactly once, pairs properly nested, spacing kept.

The tags of a unit are a tree: a pair holds what stands between its two tags. A pair goes around the run of target words
whose links lie inside it; what stands inside the pair is then placed inside that run, so that nesting holds by
construction. A tag that stands alone goes between the words that are linked to what stood before and after it.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest

import numpy as np
from numpy.typing import NDArray

from knnmt.documents.content import Content, Tag
from knnmt.units.flat import CLASSES, Flat, Gap, Span, joined_content, white
from knnmt.units.links import Matrix

BELONGS = 0.5  # a word belongs to a pair where more than this of its links lies inside it
NEAR = 0.5  # how much less each further word says about where a single tag stands
SURE = 0.55  # below, a place is a guess


@dataclass(slots=True)
class TagNode:
    """A pair or a single tag, with the gaps of the source that contain it."""

    tags: tuple[Tag, ...]  # one, or two of a pair
    first: int
    last: int
    order: int
    children: list["TagNode"] = field(default_factory=list)
    place: Span = (0, 0)  # gaps of the target

    @property
    def is_pair(self) -> bool:
        return len(self.tags) == 2


@dataclass(frozen=True, slots=True)
class Placed:
    """A translation with its tags."""

    content: Content
    sure: float  # 1: every tag's place follows from where it stood; lower: links decided, and how clearly


def placed(source: Flat, target: Flat, links: Matrix) -> Placed:
    """Put the tags of the source into a target that has none; links are [target words, source words]."""
    roots = tree(source)
    surest = Places(links).place(roots, (0, len(source.words)), (0, len(target.words)))
    return Placed(joined_content([*words_and_tags(source, target, [*arranged(roots, 0, len(target.words))])]), surest)


def tree(flat: Flat) -> list[TagNode]:
    """The tags as nodes; pairs that overlap, or of which a half is missing, are single tags."""
    standing = [(tag, gap) for gap, pieces in enumerate(flat.gaps) for tag in pieces if isinstance(tag, Tag)]
    partners = nested_pairs([tag for tag, _ in standing])
    roots: list[TagNode] = []
    open_nodes: list[TagNode] = []
    for order, (tag, gap) in enumerate(standing):
        siblings = open_nodes[-1].children if open_nodes else roots
        if order in partners:
            close, last = standing[partners[order]]
            open_nodes.append(TagNode((tag, close), gap, last, order))
            siblings.append(open_nodes[-1])
        elif order in partners.values():
            open_nodes.pop()
        else:
            siblings.append(TagNode((tag,), gap, gap, order))
    return roots


def nested_pairs(tags: Sequence[Tag]) -> dict[int, int]:
    """From each opening tag to its closing one, by position, where the two enclose whole pairs only."""
    found: dict[int, int] = {}
    stack: list[int] = []
    for at, tag in enumerate(tags):
        if tag.pair is None or tag.kind == "empty":
            continue
        if tag.kind == "open":
            stack.append(at)
            continue
        opened = next((one for one in reversed(stack) if tags[one].pair == tag.pair), None)
        if opened is not None:
            del stack[stack.index(opened) :]  # what was opened in between and not closed overlaps
            found[opened] = at
    return {opened: close for opened, close in found.items() if is_nested(opened, close, found)}


def is_nested(opened: int, close: int, pairs: dict[int, int]) -> bool:
    return not any(one < opened < other < close for one, other in pairs.items())


class Places:
    """Finds places by links [target words, source words]."""

    def __init__(self, links: Matrix) -> None:
        self.links = links

    def place(self, nodes: Sequence[TagNode], source: Span, target: Span) -> float:
        """Place siblings inside a run of the target that stands for a run of the source; how sure the worst one is."""
        sure, taken = 1.0, list[Span]()
        pairs = [node for node in nodes if node.is_pair and node.first < node.last]
        for node in sorted(pairs, key=lambda node: -self.clearness(node, target)):
            node.place, certainty = self.run_for(node, source, target, taken)
            taken.append(node.place)
            sure = min(sure, certainty, self.place(node.children, (node.first, node.last), node.place))
        for node in nodes:
            if node not in pairs:
                node.place, certainty = self.point_for(node, source, target, taken)
                sure = min(sure, certainty, self.place(node.children, (node.first, node.last), node.place))
        return sure

    def clearness(self, node: TagNode, target: Span) -> float:
        """What the best run for a pair scores where nothing else is in its way."""
        return best_run(self.inside(node, target))[1]

    def inside(self, node: TagNode, target: Span) -> Matrix:
        """For each word of a run of the target, how much of its links lies in a pair."""
        low, high = target
        shares: Matrix = self.links[low:high, node.first : node.last].sum(axis=1)
        return shares

    def run_for(self, node: TagNode, source: Span, target: Span, taken: Sequence[Span]) -> tuple[Span, float]:
        """The run of free target words that a pair goes around, and how sure that is."""
        if (node.first, node.last) == source:
            return target, 1.0
        free = gaps_between(target, taken)
        if not free:
            return self.point_for(node, source, target, taken)
        runs = [(best_run(self.inside(node, span)), span) for span in free]
        (run, _), (low, _) = max(runs, key=lambda found: found[0][1])
        place = (low + run[0], low + run[1])
        return place, self.certainty(node, target, place)

    def certainty(self, node: TagNode, target: Span, place: Span) -> float:
        """How clearly links tell the words inside from those outside: 1 where each word's links are all on its side."""
        shares = self.inside(node, target)
        within = np.zeros(len(shares), bool)
        within[place[0] - target[0] : place[1] - target[0]] = True
        return float(min(shares[within].mean(), 1 - shares[~within].max(initial=0.0)))

    def point_for(self, node: TagNode, source: Span, target: Span, taken: Sequence[Span]) -> tuple[Span, float]:
        """The gap of the target for what stands alone, outside of pairs beside it, and how sure that is."""
        low, high = target
        if node.first == source[0] or low == high:
            return (low, low), 1.0
        if node.first == source[1]:
            return (high, high), 1.0
        scores = self.scores(node.first, node.first, source, target)
        gaps = [at for at in range(high - low + 1) if not any(a < low + at < b for a, b in taken)]
        best = max(gaps, key=lambda at: scores[at])
        others = [scores[at] for at in gaps if at != best]
        margin = float(scores[best] - max(others)) if others else 1.0
        return (low + best, low + best), min(1.0, 0.5 + margin)

    def scores(self, first: int, last: int, source: Span, target: Span) -> NDArray[np.float32]:
        """How well each gap of a run parts the words linked to what is before `first` from those linked after `last`.

        Words near by say more than words far away.
        """
        words = np.arange(*source)
        nearness = NEAR ** np.abs(words + 0.5 - (first + last) / 2).astype(np.float32)
        side = np.where(words < first, 1, np.where(words >= last, -1, 0))
        lean = self.links[target[0] : target[1], source[0] : source[1]] @ (nearness * side)  # above 0: belongs before
        return np.concatenate([[0.0], np.cumsum(lean)]).astype(np.float32)


def gap_for_word(links: Matrix, word: int) -> int:
    """The gap of the target where a word of the source that has no translation belongs."""
    if not len(links):
        return 0
    return int(Places(links).scores(word, word + 1, (0, links.shape[1]), (0, len(links))).argmax())


def best_run(shares: Matrix) -> tuple[Span, float]:
    """The run of words that gains most, where a word gains what of it lies inside beyond the bar; never empty."""
    best, best_score, start, score = (0, 1), -np.inf, 0, 0.0
    for at, share in enumerate(shares.tolist()):
        if score <= 0:
            start, score = at, 0.0
        score += share - BELONGS
        if score > best_score:
            best, best_score = (start, at + 1), score
    return best, float(best_score)


def gaps_between(target: Span, taken: Sequence[Span]) -> list[Span]:
    """The runs of a run that are free, without empty ones."""
    free, low = [], target[0]
    for start, end in sorted(taken):
        free.append((low, start))
        low = max(low, end)
    return [(start, end) for start, end in [*free, (low, target[1])] if start < end]


def arranged(nodes: Sequence[TagNode], low: int, high: int) -> Iterator[int | Tag]:
    """Word numbers and tags, in order."""
    at = low
    for node in sorted(nodes, key=lambda node: (node.place[0], node.place[1], node.order)):
        yield from range(at, node.place[0])
        yield node.tags[0]
        yield from arranged(node.children, *node.place)
        yield from node.tags[1:]
        at = max(at, node.place[1])
    yield from range(at, high)


# Spacing


def words_and_tags(source: Flat, target: Flat, order: Sequence[int | Tag]) -> Iterator[str | Tag]:
    """The words of the target with their gaps, in which tags have the white space that they had in the source."""
    known = {gap_tags(gap): gap for gap in source.gaps if gap_tags(gap)}
    sides = sides_of(source)
    group: list[Tag] = []
    for piece in [*order, len(target.words)]:
        if isinstance(piece, Tag):
            group.append(piece)
            continue
        if group:
            yield from gap_with(tuple(group), target, piece, known, sides, source)
            group = []
        else:
            yield white(target.gaps[piece])
        if piece < len(target.words):
            yield target.words[piece]


def gap_tags(gap: Gap) -> tuple[Tag, ...]:
    return tuple(piece for piece in gap if isinstance(piece, Tag))


@dataclass(frozen=True, slots=True)
class Sides:
    """Whether a tag is attached to the text before or after it."""

    left: bool
    right: bool


def sides_of(flat: Flat) -> dict[int, Sides]:
    """By the identity of the tag object: how each stood in the source."""
    sides = {}
    for at, gap in enumerate(flat.gaps):
        for number, piece in enumerate(gap):
            if isinstance(piece, Tag):
                before = white(gap[:number]) != "" or (at == 0 and piece.kind != "close")
                after = white(gap[number + 1 :]) != "" or (at == len(flat.words) and piece.kind != "open")
                if piece.kind == "empty":
                    before, after = before or begins_after(flat, at), after or ends_before(flat, at)
                sides[id(piece)] = clinging(piece, before, after)
        sides |= sides_of_hollow(flat, at)
    return sides


def sides_of_hollow(flat: Flat, at: int) -> dict[int, Sides]:
    """Of a gap with nothing but a pair with nothing in it, which stands as a single tag does: `<x></x>`."""
    first, *between, last = flat.gaps[at] if len(flat.gaps[at]) > 1 else ("", "")
    tags = gap_tags(flat.gaps[at])
    if len(tags) != 2 or (tags[0].kind, tags[1].kind) != ("open", "close") or white(tuple(between)):
        return {}
    before = first is not tags[0] or at == 0 or begins_after(flat, at)
    after = last is not tags[1] or at == len(flat.words) or ends_before(flat, at)
    return {id(tags[0]): Sides(left=not before, right=True), id(tags[1]): Sides(left=True, right=not after)}


def begins_after(flat: Flat, at: int) -> bool:
    """Whether a gap is behind an opening mark: what begins there is not part of a word before it."""
    return at > 0 and unicodedata.category(flat.words[at - 1][-1]) in ("Ps", "Pi")


def ends_before(flat: Flat, at: int) -> bool:
    """Whether a gap is before a closing mark, such as a comma."""
    return at < len(flat.words) and unicodedata.category(flat.words[at][0]) in ("Pe", "Pf", "Po")


def clinging(tag: Tag, before: bool, after: bool) -> Sides:
    """An opening tag clings to what it opens and a closing one to what it closes, unless its spaces say otherwise."""
    if tag.kind == "open":
        return Sides(left=after and not before, right=not after or before)
    if tag.kind == "close":
        return Sides(left=not before or after, right=before and not after)
    return Sides(left=not before, right=not after)


def gap_with(
    tags: tuple[Tag, ...],
    target: Flat,
    at: int,
    known: dict[tuple[Tag, ...], Gap],
    sides: dict[int, Sides],
    source: Flat,
) -> Iterator[str | Tag]:
    """A gap of the target with the tags that are put into it."""
    space = white(target.gaps[at])
    original = known.get(tags)
    if original is not None and stands_alike(source, original, target, at):
        yield from original
        return
    for slot, tag in zip_longest(slots_at(target, at, [sides[id(tag)] for tag in tags]), tags):
        yield (space or " ") if slot else ""
        yield tag or ""


def slots_at(target: Flat, at: int, sides: Sequence[Sides]) -> list[bool]:
    """Before, between and after the tags of a gap: where there is white space."""
    if at in (0, len(target.words)):  # white space at the ends of a unit is outside of what has moved there
        return [at == 0, *[False] * (len(sides) - 1), at != 0] if white(target.gaps[at]) else [False] * (len(sides) + 1)
    spaced = bool(white(target.gaps[at]))
    slots = slots_for(sides, spaced)
    if not spaced:
        before, after = takes_space(target, at)
        slots = [slots[0] and before, *(slot and before and after for slot in slots[1:-1]), slots[-1] and after]
    return slots


def stands_alike(source: Flat, original: Gap, target: Flat, at: int) -> bool:
    """Whether a gap of the source can be taken over as it is: where it stood, and whether there is space, agree."""
    there = next(number for number, gap in enumerate(source.gaps) if gap is original)
    if (there == 0, there == len(source.words)) != (at == 0, at == len(target.words)):
        return False
    if at in (0, len(target.words)) or source.is_glued(there):
        return True
    if isinstance(original[-1], Tag) and ends_before(source, there) and not ends_before(target, at):  # `<x/>, word`
        return False
    if isinstance(original[0], Tag) and begins_after(source, there) and not begins_after(target, at):  # `(<x/> word`
        return False
    if white(original) and is_mark(source.words[there]) and is_mark(target.words[at]):  # `word <x/>.`
        return True
    return bool(white(original)) == bool(white(target.gaps[at]))


def is_mark(word: str) -> bool:
    return CLASSES[ord(word[0])] == "p"


def slots_for(sides: Sequence[Sides], spaced: bool) -> list[bool]:
    """The same by how each tag clings to its neighbours."""
    free = [not sides[0].left]
    free += [not left.right and not right.left for left, right in pairwise(sides)]
    free += [not sides[-1].right]
    if not spaced:  # words stand side by side: only what stood between two spaces wants some
        both = [False, *(not side.left and not side.right for side in sides), False]
        return [slot and (before or after) for slot, (before, after) in zip(free, pairwise(both), strict=True)]
    if not any(free) and not all(side.left and side.right for side in sides):
        free[0] = True
    return free


def takes_space(target: Flat, at: int) -> tuple[bool, bool]:
    """Whether a space may stand at the beginning and at the end of a gap that has none: beside words alone, and not in
    scripts without spaces or at an apostrophe.
    """
    left, right = (CLASSES[ord(sign)] for sign in (target.words[at - 1][-1], target.words[at][0]))
    allowed = {left, right} <= {"w", "p"}
    return allowed and left == "w", allowed and right == "w"
