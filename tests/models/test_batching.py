"""Batches hold every position once and stay within their budget."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt.models.batching import batches_by_tokens, pad

STEADILY = settings(deadline=None, derandomize=True)
LENGTHS = st.lists(st.integers(0, 50), max_size=60)
BUDGET = st.integers(1, 200)


@pytest.mark.parametrize(
    ("lengths", "budget", "expected"),
    [
        ([], 10, []),
        ([3], 10, [[0]]),
        ([30], 10, [[0]]),
        ([2, 5, 3], 100, [[1, 2, 0]]),
        ([2, 5, 3], 10, [[1, 2], [0]]),
        ([2, 5, 3], 9, [[1], [2, 0]]),
        ([2, 5, 3], 1, [[1], [2], [0]]),
        ([4, 4, 4, 4], 8, [[0, 1], [2, 3]]),
        ([1, 20, 1], 10, [[1], [0, 2]]),
        ([0, 0, 0], 1, [[0, 1, 2]]),
        ([0, 3, 0], 3, [[1], [0, 2]]),
    ],
)
def test_batches(lengths: list[int], budget: int, expected: list[list[int]]) -> None:
    assert list(batches_by_tokens(lengths, budget)) == expected


@given(LENGTHS, BUDGET)
@STEADILY
def test_each_position_is_in_one_batch(lengths: list[int], budget: int) -> None:
    batches = list(batches_by_tokens(lengths, budget))
    assert all(batches)
    assert sorted(position for batch in batches for position in batch) == list(range(len(lengths)))


@given(LENGTHS, BUDGET)
@STEADILY
def test_a_batch_keeps_its_budget_unless_one_item_is_longer(lengths: list[int], budget: int) -> None:
    for batch in batches_by_tokens(lengths, budget):
        padded = len(batch) * max(lengths[position] for position in batch)
        assert padded <= budget or len(batch) == 1


@given(LENGTHS, BUDGET)
@STEADILY
def test_longest_first_and_equal_lengths_in_their_order(lengths: list[int], budget: int) -> None:
    order = [position for batch in batches_by_tokens(lengths, budget) for position in batch]
    assert order == sorted(range(len(lengths)), key=lambda position: (-lengths[position], position))


@given(LENGTHS, BUDGET)
@STEADILY
def test_no_batch_could_have_taken_the_next_item(lengths: list[int], budget: int) -> None:
    batches = list(batches_by_tokens(lengths, budget))
    for batch in batches[:-1]:
        assert (len(batch) + 1) * lengths[batch[0]] > budget


@pytest.mark.parametrize(
    ("rows", "ids", "mask"),
    [
        ([[1, 2, 3]], [[1, 2, 3]], [[1, 1, 1]]),
        ([[1], [2, 3]], [[1, 9], [2, 3]], [[1, 0], [1, 1]]),
        ([[9, 1], [2]], [[9, 1], [2, 9]], [[1, 1], [1, 0]]),
        ([[], [4]], [[9], [4]], [[0], [1]]),
    ],
)
def test_pad(rows: list[list[int]], ids: list[list[int]], mask: list[list[int]]) -> None:
    padded = pad(rows, 9)
    assert [tensor.tolist() for tensor in padded] == [ids, mask]


@given(st.lists(st.lists(st.integers(0, 2**31), max_size=8), max_size=6), st.integers(0, 2**31))
@STEADILY
def test_padded_rows_give_back_the_rows(rows: list[list[int]], padding: int) -> None:
    ids, mask = pad(rows, padding)
    assert ids.shape == mask.shape == (len(rows), max(map(len, rows), default=0))
    assert ids.dtype == mask.dtype == torch.long
    assert [row[kept.bool()].tolist() for row, kept in zip(ids, mask, strict=True)] == rows
    assert bool((ids[mask == 0] == padding).all())
    assert mask.sum(dim=1).tolist() == [len(row) for row in rows]
