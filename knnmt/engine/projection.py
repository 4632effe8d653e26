"""From decoder states to the best next tokens: the largest product of a step.

There are two ways. The exact one is the model's own projection, with packed weights if possible. The quick one finds
candidates by an int8 product and computes these again in single precision; the sum over the whole vocabulary is
corrected by the error of the candidates. A large vocabulary is projected for a few rows at a time, so that their logits
are still in the processor's cache when the best are chosen. A row's result does not depend on the other rows.
"""

import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from knnmt.engine import half_precision
from knnmt.engine.int8 import by_bytes, pack_bytes
from knnmt.packed_weights import PackedWeights, WeightSums, can_be_packed
from knnmt.switches import left_out

BLOCK = 4096  # tokens of the vocabulary projected at a time
ROWS = 32  # at a time: where exponentials are summed, and projected on a large vocabulary
CHUNK = 64  # neighbouring tokens of which first only the best is looked at
FEW = 32  # rows: for more, halves take as long as packed weights
SPARE = 22  # candidates more than wanted, so that an error of the bytes does not lose one
MOST_PACKED = 256 << 20  # bytes: a second copy of more would be too dear
LARGE = 16_384  # tokens, from which on bytes save more than the candidates cost


class Ranking(NamedTuple):
    """The model's best continuations, best first, and its total."""

    logits: torch.Tensor  # [n, most]
    tokens: torch.Tensor  # [n, most]
    total: torch.Tensor  # [n, 1]

    def certainty(self) -> torch.Tensor:
        """The probability of the best one, [n]."""
        return (self.logits[:, 0] - self.total[:, 0]).exp()


class NextTokens(Protocol):
    """What may follow each of n rows."""

    def rank(self, most: int) -> Ranking:
        """The best so many."""

    def at(self, tokens: torch.Tensor) -> torch.Tensor:
        """The logits [n, k] of given tokens [n, k]."""

    def among(self, rows: torch.Tensor) -> "NextTokens":
        """The same of some of the rows."""


class AllLogits:
    """Logits that are all computed, [n, vocabulary], perhaps with columns of −∞ after them."""

    def __init__(self, logits: torch.Tensor, vocabulary: int | None = None) -> None:
        self.logits = logits.float()
        self.vocabulary = vocabulary or logits.shape[-1]

    def rank(self, most: int) -> Ranking:
        best, tokens = largest(self.logits, min(most, self.vocabulary))
        if best.shape[0] <= ROWS:
            return Ranking(best, tokens, total_of(self.logits, best[:, :1], tokens[:, :1]))
        parts = (torch.split(part, ROWS) for part in (self.logits, best[:, :1], tokens[:, :1]))
        return Ranking(best, tokens, torch.cat([total_of(*block) for block in zip(*parts, strict=True)]))

    def at(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.logits.gather(1, tokens)

    def among(self, rows: torch.Tensor) -> "SomeLogits":
        return SomeLogits(self, rows)


class SomeLogits:
    """Some rows of logits that are all computed; they are not copied to look at a few tokens of each."""

    def __init__(self, every: AllLogits, rows: torch.Tensor) -> None:
        self.every, self.rows = every, rows

    def rank(self, most: int) -> Ranking:
        return AllLogits(self.every.logits[self.rows], self.every.vocabulary).rank(most)

    def at(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.every.logits[self.rows[:, None], tokens]

    def among(self, rows: torch.Tensor) -> "SomeLogits":
        return SomeLogits(self.every, self.rows[rows])


class LogitsByRows:
    """Logits that are computed for a few rows at a time while these are ranked."""

    def __init__(self, states: torch.Tensor, projection: "Projection", rank_rows: "RankRows") -> None:
        self.states, self.projection, self.rank_rows = states, projection, rank_rows

    def rank(self, most: int) -> Ranking:
        ranked = [self.rank_rows(rows, most) for rows in torch.split(self.states, ROWS)]
        return Ranking(*(torch.cat(parts) for parts in zip(*ranked, strict=True)))

    def at(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.projection.at(self.states, tokens)

    def among(self, rows: torch.Tensor) -> "LogitsByRows":
        return LogitsByRows(self.states[rows], self.projection, self.rank_rows)


RankRows = Callable[[torch.Tensor, int], Ranking]  # of states [rows, dimension], and how many are wanted


class Projection:
    """The projection weights [vocabulary, dimension], and a buffer for logits that each thread uses again."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.weight = weight.detach().float()
        self.contents = WeightSums([weight, bias])  # when this was made of them
        self.bias = torch.zeros(len(weight), device=weight.device) if bias is None else bias.detach().float().flatten()
        self.rooms = threading.local()  # two batches that are decoded in turn have a thread each
        self.in_bytes: Any = None
        self.packed: PackedWeights | None = None
        self.in_halves: Any = None
        small = self.weight.nbytes <= MOST_PACKED
        self.is_packed = small and can_be_packed(self.weight) and not left_out("packed")

    @property
    def is_large(self) -> bool:
        return self.weight.shape[0] >= LARGE

    def exactly(self, states: torch.Tensor) -> NextTokens:
        """The next tokens after states [n, dimension]; valid until the next call."""
        by_rows = self.is_large and states.device.type == "cpu"
        return LogitsByRows(states, self, self.rank_exactly) if by_rows else self.logits(states)

    def quickly(self, states: torch.Tensor) -> NextTokens:
        """The same with an int8 product first, if the processor has one."""
        return LogitsByRows(states, self, self.rank_roughly)

    def rank_exactly(self, states: torch.Tensor, most: int) -> Ranking:
        return self.logits(states).rank(most)

    def rank_roughly(self, states: torch.Tensor, most: int) -> Ranking:
        """Candidates by an int8 product; their logits are computed again, and the total is corrected by the
        difference.
        """
        rough = self.rough_logits(states).rank(most + SPARE)
        exact = self.at(states, rough.tokens)
        others = 1 - (rough.logits - rough.total).exp().sum(dim=-1, keepdim=True)
        off = (exact - rough.logits).mean(dim=-1, keepdim=True)  # the others, it is assumed, are off by as much
        shares = (exact - rough.total).exp().sum(dim=-1, keepdim=True) + others.clamp_min(0) * off.exp()
        best, order = exact.topk(min(most, exact.shape[1]), dim=-1)
        return Ranking(best, rough.tokens.gather(1, order), rough.total + shares.log())

    def logits(self, states: torch.Tensor) -> AllLogits:
        if len(states) <= FEW and self.objection_to_halves is None:
            if self.in_halves is None:
                self.in_halves = half_precision.pack_halves(*self.in_whole_chunks())
            return AllLogits(half_precision.by_halves(states, self.in_halves), self.weight.shape[0])
        if self.is_packed:
            self.packed = self.packed or PackedWeights(*self.in_whole_chunks())
            return AllLogits(self.packed.product(states), self.weight.shape[0])
        room = self.room_for(len(states))
        for first in range(0, len(self.weight), BLOCK):
            block = slice(first, first + BLOCK)
            columns = room[:, : len(self.weight)][:, block]
            torch.addmm(self.bias[block], states, self.weight[block].T, out=columns)
        return AllLogits(room, len(self.weight))

    @cached_property
    def objection_to_halves(self) -> str | None:
        """Why few rows are not multiplied in half precision."""
        return half_precision.objection_to(self.weight) if self.is_packed else "the projection is not packed"

    def rough_logits(self, states: torch.Tensor) -> AllLogits:
        """Logits with errors of about one per cent."""
        if self.in_bytes is None:
            self.in_bytes = pack_bytes(self.weight)
        room = self.room_for(len(states))
        product, scales = by_bytes(states, self.in_bytes)
        torch.addcmul(self.bias, product, scales, out=room[:, : len(self.weight)])
        return AllLogits(room, len(self.weight))

    def at(self, states: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """The logits of given tokens [n, k] alone."""
        rows = nn.functional.embedding(tokens, self.weight)  # [n, k, dimension]
        return torch.einsum("nd,nkd->nk", states, rows) + self.bias[tokens]

    def in_whole_chunks(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Weights and bias with more tokens at the end, whose logits are −∞."""
        more = -len(self.weight) % CHUNK
        bias = nn.functional.pad(self.bias, (0, more), value=-torch.inf)
        return nn.functional.pad(self.weight, (0, 0, 0, more)), bias

    def room_for(self, rows: int) -> torch.Tensor:
        """[rows, vocabulary], made wider to whole chunks with columns of −∞."""
        width = -(-len(self.weight) // CHUNK) * CHUNK
        room: torch.Tensor | None = getattr(self.rooms, "room", None)
        if room is None or len(room) < rows:
            room = self.rooms.room = torch.full((rows, width), -torch.inf, device=self.weight.device)
        return room[:rows]


def total_of(logits: torch.Tensor, highest: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """The logarithm of the sum of exponentials, [n, 1], from the highest logit [n, 1] and where it is.

    PyTorch's own softmax takes fewer passes than subtracting, raising and summing.
    """
    return highest - torch.log_softmax(logits, dim=-1).gather(1, at)


def largest(logits: torch.Tensor, most: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest of each row [n, vocabulary] and where they are.

    They lie in the chunks with the largest maxima, so that only those need to be sorted.
    """
    rows, width = logits.shape
    if width % CHUNK or width <= 2 * most * CHUNK:
        return logits.topk(most, dim=-1)
    chunks = logits.view(rows, -1, CHUNK)
    chosen = chunks.amax(dim=-1).topk(most, dim=-1).indices  # [rows, most]
    within = chunks.gather(1, chosen[:, :, None].expand(-1, -1, CHUNK)).reshape(rows, -1)
    values, at = within.topk(most, dim=-1)
    return values, chosen.gather(1, at // CHUNK) * CHUNK + at % CHUNK
