"""Queries near the keys of a store, and neighbours that are the same bit for bit."""

import numpy as np

from knnmt import Store
from knnmt.mixing.neighbours import Neighbours


def queries_near(store: Store, count: int) -> np.ndarray:
    random = np.random.default_rng(5)
    near = store.gather("keys", random.integers(0, store.entries, count)).astype(np.float32)
    noise = random.normal(size=near.shape) * 0.3
    noise[::4] = 0  # some meet keys exactly, and with them all that are equal
    return (near + noise).astype(np.float32)


def same(left: Neighbours, right: Neighbours) -> None:
    np.testing.assert_array_equal(left.entries, right.entries)
    np.testing.assert_array_equal(left.distances.view(np.uint32), right.distances.view(np.uint32))
    np.testing.assert_array_equal(left.tokens, right.tokens)
    assert (left.trust is None) == (right.trust is None)
    if left.trust is not None and right.trust is not None:
        np.testing.assert_array_equal(left.trust, right.trust)
