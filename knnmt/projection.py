"""From the decoder's states to the best next tokens: the largest product of a step, with no pass over it too many.

There are two ways. The exact one is the model's own projection, by packed weights or, where the vocabulary is large,
in blocks that stay in the processor's cache. The quick one finds candidates by a product of bytes and computes those
few anew in single precision; the sum over the whole vocabulary is corrected by what the candidates were off. A row's
result does not depend on the rows beside it.
"""

from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from knnmt.bytewise import by_bytes, pack
from knnmt.packed import PackedWeights, can_be_packed, version_of

BLOCK = 4096  # tokens of the vocabulary projected at a time
ROWS = 32  # rows at a time, where bytes are multiplied or exponentials summed
CHUNK = 64  # neighbouring tokens of which first only the best is looked at
SPARE = 22  # candidates more than wanted, so that an error of the bytes does not lose one
LARGE = 16_384  # tokens, from which on bytes save more than the candidates cost


class NextTokens(Protocol):
    """What may follow each of n rows."""

    def best(self, most: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits and tokens [n, most], best first."""

    def at(self, tokens: torch.Tensor) -> torch.Tensor:
        """The logits [n, k] of given tokens [n, k]."""

    def total(self) -> torch.Tensor:
        """The logarithm of the sum of all exponentials, [n, 1]: a logit less this is a logarithm of a probability."""


class Ranking(NamedTuple):
    """The model's best continuations, best first, and its total."""

    logits: torch.Tensor  # [n, most]
    tokens: torch.Tensor  # [n, most]
    total: torch.Tensor  # [n, 1]

    def certainty(self) -> torch.Tensor:
        """The probability of the best one, [n]."""
        return (self.logits[:, 0] - self.total[:, 0]).exp()


def rank(following: NextTokens, most: int) -> Ranking:
    return Ranking(*following.best(most), following.total())


class AllLogits:
    """Logits that are all there, [n, vocabulary] and perhaps columns of −∞ after that."""

    def __init__(self, logits: torch.Tensor, vocabulary: int | None = None) -> None:
        self.logits = logits.float()
        self.vocabulary = vocabulary or logits.shape[-1]

    def best(self, most: int) -> tuple[torch.Tensor, torch.Tensor]:
        return largest(self.logits, min(most, self.vocabulary))

    def at(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.logits.gather(1, tokens)

    def total(self) -> torch.Tensor:
        return torch.cat([rows.logsumexp(dim=-1, keepdim=True) for rows in torch.split(self.logits, ROWS)])


class RoughLogits:
    """Logits that are a little off; those that are looked at are computed anew."""

    def __init__(self, rough: torch.Tensor, states: torch.Tensor, projection: "Projection") -> None:
        self.rough, self.states, self.projection = AllLogits(rough, len(projection.weight)), states, projection
        self.candidates = torch.empty(len(states), 0, dtype=torch.long)

    def best(self, most: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.candidates = self.rough.best(most + SPARE)[1]
        exact, order = self.at(self.candidates).topk(min(most, self.candidates.shape[1]), dim=-1)
        return exact, self.candidates.gather(1, order)

    def at(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.projection.at(self.states, tokens)

    def total(self) -> torch.Tensor:
        if not self.candidates.shape[1]:
            self.best(1)
        total, rough, exact = self.rough.total(), self.rough.at(self.candidates), self.at(self.candidates)
        others = 1 - (rough - total).exp().sum(dim=-1, keepdim=True)
        off = (exact - rough).mean(dim=-1, keepdim=True)  # the others, it is assumed, are off by as much
        return total + ((exact - total).exp().sum(dim=-1, keepdim=True) + others.clamp_min(0) * off.exp()).log()


class Projection:
    """The weights [vocabulary, dimension] that make logits of states, and room for these that is used again."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.weight = weight.detach().float()
        self.version = version_of(weight)
        self.bias = torch.zeros(len(weight), device=weight.device) if bias is None else bias.detach().float().flatten()
        self.room = torch.empty(0)
        self.in_bytes: Any = None
        self.packed: PackedWeights | None = None
        self.is_packed = not self.is_large and can_be_packed(self.weight)

    @property
    def is_large(self) -> bool:
        return len(self.weight) >= LARGE

    def exactly(self, states: torch.Tensor) -> NextTokens:
        """The next tokens after states [n, dimension]; valid until the next call."""
        if self.is_packed:
            self.packed = self.packed or PackedWeights(*self.in_whole_chunks())
            return AllLogits(self.packed.product(states), len(self.weight))
        room = self.room_for(len(states))
        for first in range(0, len(self.weight), BLOCK):
            block = slice(first, first + BLOCK)
            columns = room[:, : len(self.weight)][:, block]
            torch.addmm(self.bias[block], states, self.weight[block].T, out=columns)
        return AllLogits(room, len(self.weight))

    def quickly(self, states: torch.Tensor) -> NextTokens:
        """The same by bytes, for a processor that has a product of them."""
        if self.in_bytes is None:
            self.in_bytes = pack(self.weight)
        room = self.room_for(len(states))
        for rows, some in zip(torch.split(room, ROWS), torch.split(states, ROWS), strict=True):
            product, scales = by_bytes(some, self.in_bytes)
            torch.addcmul(self.bias, product, scales, out=rows[:, : len(self.weight)])
        return RoughLogits(room, states, self)

    def at(self, states: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """The logits of given tokens [n, k] alone."""
        distinct, places = torch.unique(tokens, return_inverse=True)
        return torch.addmm(self.bias[distinct], states, self.weight[distinct].T).gather(1, places)

    def in_whole_chunks(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Weights and bias with more tokens at the end, whose logits are −∞."""
        more = -len(self.weight) % CHUNK
        bias = nn.functional.pad(self.bias, (0, more), value=-torch.inf)
        return nn.functional.pad(self.weight, (0, 0, 0, more)), bias

    def room_for(self, rows: int) -> torch.Tensor:
        """[rows, vocabulary], made wider to whole chunks with columns of −∞."""
        width = -(-len(self.weight) // CHUNK) * CHUNK
        if len(self.room) < rows:
            self.room = torch.full((rows, width), -torch.inf, device=self.weight.device)
        return self.room[:rows]


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
