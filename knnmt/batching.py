"""Batches of similar length, so that little of the work is padding."""

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
    ids = torch.full((len(rows), longest), padding, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = torch.tensor(row, dtype=torch.long)
        mask[number, : len(row)] = 1
    return ids, mask
