"""Links between words: what a word's place adds to attention."""

import numpy as np

from knnmt.engine.attention import AligningHeads
from knnmt.translate.aligning import MOST_DOUBT, doubt_about
from knnmt.units.links import near_diagonal


def test_undecided_words_lean_to_their_place() -> None:
    even = np.full((3, 3), 1 / 3, np.float32)
    leaning = near_diagonal(even, 4.0)
    assert leaning.argmax(axis=1).tolist() == [0, 1, 2]
    assert np.allclose(leaning.sum(axis=1), 1)
    assert np.array_equal(near_diagonal(even, 0.0), even)
    assert near_diagonal(np.empty((0, 2), np.float32), 4.0).shape == (0, 2)


def test_a_clear_link_stays() -> None:
    crossed = np.array([[0.02, 0.98], [0.98, 0.02]], np.float32)
    assert near_diagonal(crossed, MOST_DOUBT).argmax(axis=1).tolist() == [1, 0]


def test_good_heads_are_not_doubted() -> None:
    assert doubt_about(AligningHeads(((0, 0, 0),), 1.0, 50)) == 0
    assert 0 < doubt_about(AligningHeads(((0, 0, 0),), 0.9, 50)) < MOST_DOUBT
    assert doubt_about(AligningHeads(((0, 0, 0),), 0.0, 0)) == MOST_DOUBT
