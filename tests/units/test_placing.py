"""Tags return to a translation: each once, pairs nested, spacing kept."""

from collections import Counter

import numpy as np
import pytest
from contents import contents, marked, shown, texts
from hypothesis import given
from hypothesis import strategies as st

from knnmt.documents.content import Content, Tag
from knnmt.units.flat import flattened
from knnmt.units.placing import best_run, gap_for_word, nested_pairs, placed


def links(words: str, rows: int, columns: int) -> np.ndarray:
    """`0 2 1`: target word 0 is linked to source word 0, 1 to 2, 2 to 1; `0/1`: to both."""
    matrix = np.zeros((rows, columns), np.float32)
    for row, places in enumerate(words.split()):
        for place in places.split("/"):
            matrix[row, int(place)] = 1 / len(places.split("/"))
    return matrix


@pytest.mark.parametrize(
    ("source", "target", "linked", "expected"),
    [
        ("The <b>white</b> house", "La maison blanche", "0 2 1", "La maison <b>blanche</b>"),
        ("<b>The house</b>", "La maison", "0 1", "<b>La maison</b>"),
        ("<b>Note:</b> go", "Note : va", "0 1 2", "<b>Note :</b> va"),
        ("<x/>Go home.", "Rentre.", "0/1 2", "<x/>Rentre."),
        ("Go home<x/>.", "Rentre.", "0/1 2", "Rentre<x/>."),
        ("one<br/>two", "un deux", "0 1", "un<br/>deux"),
        ("one <x/> two", "un deux", "0 1", "un <x/> deux"),
        ("one <x/> two", "一二", "0 1", "一<x/>二"),
        ("Click<b> here </b>now", "Cliquez ici maintenant", "0 1 2", "Cliquez<b> ici </b>maintenant"),
        ("  <b> a</b> b ", "A B", "0 1", "  <b> A</b> B "),
        ("<a><b>x</b> y</a> z", "Z y x", "2 1 0", "Z <a>y <b>x</b></a>"),
        ("<b>a</b> <i>c</i>", "C A", "1 0", "<i>C</i> <b>A</b>"),
        ("a <b></b> c", "A C", "0 1", "A <b></b> C"),
        ("l'<b>homme</b>", "the man", "0 1", "the <b>man</b>"),
        ("the <b>man</b>", "l'homme", "0 1", "l'<b>homme</b>"),
        ("a<x/>, c", "A, C", "0 1 2", "A<x/>, C"),
        ("a is <x/>.", "A.", "0 2", "A <x/>."),
        ("a is <x/>, b", "A, B", "0 2 3", "A <x/>, B"),
        ("a is <x/> b.", "A.", "0 3", "A <x/>."),
        ("on <x/>, to b", "on to b", "0 2 3", "on <x/> to b"),
        ("on <x></x>, to b", "on to b", "0 2 3", "on <x></x> to b"),
        ("<x></x> go", "va et va", "0 0 0", "<x></x> va et va"),
        ("see <x></x>.", "see the pack.", "0 0 1 1", "see the <x></x> pack."),
        ("on (<x/> to) b", "on to b", "0 2 4", "on <x/> to b"),
        ("on it<x/>, to b", "on to b", "0 3 4", "on<x/> to b"),
        ("<b>x</b>", "", "", "<b></b>"),
    ],
)  # fmt: skip
def test_places(source: str, target: str, linked: str, expected: str) -> None:
    left, right = flattened(marked(source)), flattened((target,))
    if right.words:
        edges = [tuple(piece for piece in left.gaps[at] if isinstance(piece, str)) for at in (0, -1)]
        right = type(right)(right.words, (edges[0], *right.gaps[1:-1], edges[1]))
    found = placed(left, right, links(linked, len(right.words), len(left.words)))
    assert shown(found.content) == expected


def nested(content: Content, pairs: set[int]) -> bool:
    """Whether pairs enclose each other wholly."""
    opened: list[int] = []
    for piece in content:
        if isinstance(piece, Tag) and piece.pair in pairs:
            if piece.kind == "open":
                opened.append(piece.pair)
            elif not opened or opened.pop() != piece.pair:
                return False
    return not opened


@given(contents(), texts(), st.integers(0, 1 << 30))
def test_every_tag_is_there_once_and_pairs_are_nested(content: Content, target: str, seed: int) -> None:
    source, flat = flattened(content), flattened((target,))
    random = np.random.default_rng(seed).random((len(flat.words), len(source.words)), np.float32) + 1e-3
    found = placed(source, flat, random / random.sum(axis=1, keepdims=True) if random.size else random)
    tags = [piece for piece in found.content if isinstance(piece, Tag)]
    assert Counter(tags) == Counter(source.tags)
    assert "".join(flattened(found.content).words) == "".join(flat.words)
    whole = {source.tags[opened].pair for opened in nested_pairs(source.tags)}
    assert nested(found.content, {pair for pair in whole if pair is not None})
    assert 0 <= found.sure <= 1


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=8))
def test_the_best_run_is_the_best(shares: list[float]) -> None:
    (start, end), score = best_run(np.array(shares, np.float32))
    runs = [(a, b) for a in range(len(shares)) for b in range(a + 1, len(shares) + 1)]
    assert score == pytest.approx(max(sum(share - 0.5 for share in shares[a:b]) for a, b in runs), abs=1e-5)
    assert score == pytest.approx(sum(share - 0.5 for share in shares[start:end]), abs=1e-5)


def test_a_lost_word_goes_between_its_neighbours() -> None:
    assert gap_for_word(links("0 2 1", 3, 4), 3) == 3
    assert gap_for_word(links("0 2 3", 3, 4), 1) == 1
    assert gap_for_word(links("1 2 3", 3, 4), 0) == 0


def test_overlapping_pairs_are_single_tags() -> None:
    tags = [Tag("<1>", "open", 1), Tag("<2>", "open", 2), Tag("</1>", "close", 1), Tag("</2>", "close", 2)]
    assert nested_pairs(tags) == {0: 2}
    assert nested_pairs(tags[:2]) == {}
