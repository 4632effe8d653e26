"""Products of bytes against those of single precision."""

import pytest
import torch

from knnmt.engine.int8 import by_bytes, has_bytes, pack_bytes

pytestmark = pytest.mark.skipif(not has_bytes(torch.device("cpu")), reason="this processor has no product of bytes")


def product(states: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    found, scales = by_bytes(states, pack_bytes(weight))
    return found * scales


@pytest.mark.parametrize("dimension", [2, 33, 64])
def test_the_product_is_nearly_the_product(dimension: int) -> None:
    torch.manual_seed(0)
    weight = torch.randn(48, dimension)
    states = torch.randn(7, dimension) * torch.logspace(-3, 3, 7)[:, None]  # rows of very different size
    exact = states @ weight.T
    off = (product(states, weight) - exact).norm(dim=-1) / exact.norm(dim=-1)
    assert off.max() < 0.03


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    weight, states = torch.randn(48, 32), torch.randn(9, 32)
    alone = torch.cat([product(row[None], weight) for row in states])
    assert torch.equal(product(states, weight), alone)
