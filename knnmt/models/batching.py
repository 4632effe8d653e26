"""Batches of similar length, to reduce padding."""

from collections.abc import Iterator, Sequence

import torch


def batches_by_tokens(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Positions grouped by length, longest first, at most `budget` padded tokens a batch.

    The longest batch comes first so that a batch that does not fit in memory fails at once.
    """
    batch: list[int] = []
    longest = 0
    for position in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        longest = longest or lengths[position]
        if batch and longest * (len(batch) + 1) > budget:
            yield batch
            batch, longest = [], lengths[position]
        batch.append(position)
    if batch:
        yield batch


def pad(rows: Sequence[Sequence[int]], padding: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and mask, both [rows, longest]."""
    longest = max((len(row) for row in rows), default=0)
    ids = [[*row, *[padding] * (longest - len(row))] for row in rows]
    lengths = torch.tensor([len(row) for row in rows])
    mask = (torch.arange(longest) < lengths[:, None]).long()
    return torch.tensor(ids, dtype=torch.long).reshape(len(rows), longest), mask
