"""A lost placeholder comes back, one too many goes."""

from collections.abc import Sequence

import numpy as np
import pytest
from contents import texts
from hypothesis import given

from knnmt.units.flat import flattened
from knnmt.units.mending import mended
from knnmt.units.protected import balance

WORDS = {"file": "datei", "is": "ist", "gone": "fort"}


def known_links(source: Sequence[str], target: Sequence[str]) -> np.ndarray:
    """Links of words that mean the same here."""
    same = [[WORDS.get(left.lower(), left.lower()) == right.lower() for left in source] for right in target]
    matrix = np.array(same, np.float32) + 0.01
    return matrix / matrix.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("File %s is gone", "Datei ist fort", "Datei %s ist fort"),
        ("%s is gone", "ist fort", "%s ist fort"),
        ("gone: %s", "fort:", "fort: %s"),
        ("gone %s.", "fort.", "fort %s."),
        ("a {0} b {1} c", "A B C", "A {0} B {1} C"),
        ("a b c", "A %s B C", "A B C"),
        ("%s a", "%s %s A", "%s A"),
        ("a 3 c", "A C", "A 3 C"),
        ("* https://a.org/b file", ".-datei", "https://a.org/b .-datei"),
    ],
)
def test_mended(source: str, target: str, expected: str) -> None:
    left, right = flattened((source,)), flattened((target,))
    found = mended(left, right, known_links(left.words, right.words))
    assert found.target.text() == expected
    assert found.flags
    assert found.links is not None
    assert found.links.shape == (len(found.target.words), len(left.words))


@given(texts(), texts())
def test_afterwards_nothing_is_lost(source: str, target: str) -> None:
    left, right = flattened((source,)), flattened((target,))
    found = mended(left, right, None)
    assert balance(left.text(), found.target.text()).holds
    assert bool(found.flags) == (not balance(left.text(), right.text()).holds)
