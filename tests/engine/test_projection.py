"""The best next tokens, computed exactly and quickly, against one plain product."""

import pytest
import torch

from knnmt.engine.int8 import has_bytes
from knnmt.engine.projection import FEW, AllLogits, NextTokens, Projection, largest
from knnmt.packed_weights import can_be_packed

VOCABULARY, DIMENSION, ROWS = 9001, 64, 40
SIZES = torch.ones(ROWS, 1)
SIZES[3] = 50.0  # one row with far larger numbers must not spoil the others

needs_bytes = pytest.mark.skipif(not has_bytes(torch.device("cpu")), reason="this processor has no product of bytes")
needs_packing = pytest.mark.skipif(not can_be_packed(torch.empty(1, 1)), reason="PyTorch cannot pack weights here")


def make() -> tuple[Projection, torch.Tensor, torch.Tensor]:
    """A projection, states, and the logits that they must give."""
    random = torch.Generator().manual_seed(0)
    weight = torch.randn(VOCABULARY, DIMENSION, generator=random) * 0.4
    bias = torch.randn(1, VOCABULARY, generator=random) * 0.1
    states = torch.randn(ROWS, DIMENSION, generator=random) * SIZES
    return Projection(weight, bias), states, states @ weight.T + bias


def parts_of(following: NextTokens, tokens: torch.Tensor) -> list[torch.Tensor]:
    ranking = following.rank(10)
    return [ranking.logits, ranking.tokens, following.at(tokens), ranking.total]


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("packed", [False, pytest.param(True, marks=needs_packing)])
def test_exactly(packed: bool, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    projection, states, logits = make()
    projection.is_packed = packed
    monkeypatch.setattr("knnmt.engine.projection.LARGE", VOCABULARY if large else VOCABULARY + 1)
    tokens = torch.randint(0, VOCABULARY, (ROWS, 7))
    best, best_tokens, at, total = parts_of(projection.exactly(states), tokens)
    torch.testing.assert_close(best, logits.topk(10).values)
    assert torch.equal(best_tokens, logits.topk(10).indices)
    scale = logits.abs().amax(dim=-1, keepdim=True)  # rounding follows a row's largest numbers
    torch.testing.assert_close(at / scale, logits.gather(1, tokens) / scale)
    torch.testing.assert_close(total, logits.logsumexp(-1, keepdim=True))
    some = torch.tensor([0, ROWS - 1])
    for fewer, whole in zip(
        parts_of(projection.exactly(states).among(some), tokens[some]), (best, best_tokens, at, total), strict=True
    ):
        torch.testing.assert_close(fewer, whole[some])


def of_halves() -> tuple[Projection, torch.Tensor, torch.Tensor]:
    projection, states, _ = make()
    weight = projection.weight.half().float()
    return Projection(weight, projection.bias), states, states @ weight.T + projection.bias


@needs_bytes
@needs_packing
def test_weights_that_are_halves_are_read_as_such_for_few_rows() -> None:
    projection, states, logits = of_halves()
    tokens = torch.randint(0, VOCABULARY, (FEW, 7))
    best, best_tokens, at, total = parts_of(projection.exactly(states[:FEW]), tokens)
    assert projection.in_halves is not None
    torch.testing.assert_close(best, logits[:FEW].topk(10).values)
    assert torch.equal(best_tokens, logits[:FEW].topk(10).indices)
    torch.testing.assert_close(at, logits[:FEW].gather(1, tokens), atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(total, logits[:FEW].logsumexp(-1, keepdim=True))


@needs_bytes
@needs_packing
def test_what_is_not_read_as_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    projection, states, _ = of_halves()
    projection.exactly(states[: FEW + 1])
    assert projection.in_halves is None  # more rows
    others, states, _ = make()
    others.exactly(states[:FEW])
    assert (others.in_halves, others.objection_to_halves) == (None, "the weights are no halves")
    assert Projection(torch.full((9, 8), 1e6), None).objection_to_halves == "the weights are no halves"
    monkeypatch.setenv("KNNMT_PLAIN", "halves")
    assert of_halves()[0].objection_to_halves == "KNNMT_PLAIN"
    monkeypatch.setenv("KNNMT_PLAIN", "packed")
    assert of_halves()[0].objection_to_halves == "the projection is not packed"


@needs_bytes
def test_quickly_finds_the_same_tokens_and_nearly_the_same_total() -> None:
    projection, states, logits = make()
    tokens = torch.randint(0, VOCABULARY, (ROWS, 7))
    best, best_tokens, at, total = parts_of(projection.quickly(states), tokens)
    assert torch.equal(best_tokens, logits.topk(10).indices)
    torch.testing.assert_close(best, logits.topk(10).values)  # those looked at are exact
    torch.testing.assert_close(at / SIZES, logits.gather(1, tokens) / SIZES)
    torch.testing.assert_close(total, logits.logsumexp(-1, keepdim=True), atol=0.02, rtol=0)


@needs_bytes
def test_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    projection, states, _ = make()
    together = projection.quickly(states).rank(1).total
    alone = torch.cat([projection.quickly(row[None]).rank(1).total for row in states])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)


def test_room_is_used_again_for_fewer_rows() -> None:
    projection, states, logits = make()
    projection.is_packed = False
    projection.exactly(states)
    torch.testing.assert_close(projection.exactly(states[:5]).rank(3).logits, logits[:5].topk(3).values)


def test_no_more_than_the_vocabulary_is_proposed() -> None:
    projection = Projection(torch.eye(3), None)
    ranking = projection.exactly(torch.eye(3)).rank(10)
    assert ranking.logits.shape == (3, 3)
    assert ranking.tokens.max() == 2


@pytest.mark.parametrize(("width", "most"), [(6400, 10), (64, 10), (6401, 10), (640, 1), (128, 128)])
def test_largest_is_topk(width: int, most: int) -> None:
    logits = torch.randn(6, width, generator=torch.Generator().manual_seed(1))
    values, places = largest(logits, most)
    torch.testing.assert_close(values, logits.topk(most).values)
    torch.testing.assert_close(logits.gather(1, places), values)


def test_certainty_is_the_probability_of_the_best() -> None:
    logits = torch.tensor([[0.0, 0.0, 0.0, 0.0], [100.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(AllLogits(logits).rank(2).certainty(), torch.tensor([0.25, 1.0]))
