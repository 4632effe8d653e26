"""The mathematics against literal numbers, and against a dense reference that shares no code with it."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from torch.utils._python_dispatch import TorchDispatchMode

from knnmt.engine.projection import AllLogits
from knnmt.mixing.mixture import alike, grouped, groups_of, mix, mix_at, mix_best, neighbour_weights, token_masses

INF = math.inf
LN2 = math.log(2.0)
FAR = float(np.float32(1e30))
EVEN = [0.0, 0.0, 0.0, 0.0]  # logits of a model that gives each of four tokens a quarter


@pytest.mark.parametrize(
    ("distances", "temperature", "expected"),
    [
        ([0.0, 0.0], 10.0, [1 / 2, 1 / 2]),
        ([0.0, LN2], 1.0, [2 / 3, 1 / 3]),
        ([0.0, 10 * LN2], 10.0, [2 / 3, 1 / 3]),
        ([5.0, 5.0 + LN2, 5.0 + 2 * LN2], 1.0, [4 / 7, 2 / 7, 1 / 7]),
        ([3.0, INF], 1.0, [1.0, 0.0]),
        ([INF, 3.0, INF], 1.0, [0.0, 1.0, 0.0]),
        ([INF, INF], 1.0, [0.0, 0.0]),
        ([1e30, 2e30], 1e-3, [1.0, 0.0]),
        ([1e-3, 2e-3], 1e-6, [1.0, 0.0]),
        ([0.0, 1.0], 1e9, [1 / 2, 1 / 2]),
        ([7.0], 100.0, [1.0]),
    ],
)
def test_neighbour_weights(distances: list[float], temperature: float, expected: list[float]) -> None:
    weights = neighbour_weights(torch.tensor([distances]), temperature)
    np.testing.assert_allclose(weights[0].numpy(), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("tokens", "weights", "expected"),
    [
        ([3, 1], [0.75, 0.25], [0.75, 0.25]),
        ([3, 3], [0.75, 0.25], [1.0, 1.0]),
        ([3, 1, 3], [0.5, 0.3, 0.2], [0.7, 0.3, 0.7]),
        ([0, 0, 2], [0.0, 0.4, 0.6], [0.4, 0.4, 0.6]),
        ([0, 0], [0.0, 0.0], [0.0, 0.0]),
    ],
)
def test_token_masses(tokens: list[int], weights: list[float], expected: list[float]) -> None:
    masses = token_masses(alike(torch.tensor([tokens])), torch.tensor([weights]))
    np.testing.assert_allclose(masses[0].numpy(), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("logits", "tokens", "weights", "weight", "expected"),
    [
        (EVEN, [1], [1.0], 0.0, [0.25, 0.25, 0.25, 0.25]),
        (EVEN, [1], [1.0], 0.5, [0.125, 0.625, 0.125, 0.125]),
        (EVEN, [1], [1.0], 1.0, [0.0, 1.0, 0.0, 0.0]),
        (EVEN, [1, 2, 1], [0.5, 0.2, 0.3], 0.5, [0.125, 0.525, 0.225, 0.125]),
        (EVEN, [3, 0], [1.0, 0.0], 0.2, [0.2, 0.2, 0.2, 0.4]),  # token 0 stands for a neighbour that was not found
        (EVEN, [0, 0], [0.0, 0.0], 0.7, [0.25, 0.25, 0.25, 0.25]),  # no neighbour at all: the model alone
        ([LN2, 0.0, -INF, 0.0], [2], [1.0], 0.5, [0.25, 0.125, 0.5, 0.125]),  # a token that the model rules out
        ([1000.0, 0.0, 0.0, 0.0], [1], [1.0], 0.25, [0.75, 0.25, 0.0, 0.0]),
    ],
)
def test_mix(
    logits: list[float], tokens: list[int], weights: list[float], weight: float, expected: list[float]
) -> None:
    mixed = mix(torch.tensor([logits]), torch.tensor([tokens]), torch.tensor([weights]), weight)
    np.testing.assert_allclose(mixed[0].exp().numpy(), expected, atol=1e-6)


def test_rows_are_mixed_one_by_one() -> None:
    logits = torch.tensor([EVEN, EVEN])
    tokens = torch.tensor([[1, 1], [0, 0]])
    weights = torch.tensor([[0.5, 0.5], [0.0, 0.0]])
    expected = [[0.125, 0.625, 0.125, 0.125], [0.25, 0.25, 0.25, 0.25]]
    np.testing.assert_allclose(mix(logits, tokens, weights, 0.5).exp().numpy(), expected, atol=1e-6)


properties = settings(max_examples=80, deadline=None, derandomize=True)


@st.composite
def searches(draw: st.DrawFn) -> dict[str, Any]:
    """A model's logits and what a search may have found for them: repeated tokens, gaps, nothing at all."""
    n, vocabulary, k = draw(st.integers(1, 3)), draw(st.integers(2, 6)), draw(st.integers(1, 5))
    number = st.floats(0, 50, width=32)
    distances = draw(arrays(np.float32, (n, k), elements=number | st.sampled_from([INF, 1e4, 3e8, FAR])))
    tokens = draw(arrays(np.int64, (n, k), elements=st.integers(0, vocabulary - 1)))
    return {
        "logits": draw(arrays(np.float32, (n, vocabulary), elements=st.floats(-30, 30, width=32))),
        "distances": distances,
        "tokens": np.where(np.isinf(distances), 0, tokens),
        "temperature": draw(st.sampled_from([0.03, 1.0, 10.0, 1000.0])),
        "weight": draw(st.sampled_from([0.0, 1.0]) | st.floats(0, 1)),
    }


def dense_mixture(search: dict[str, Any]) -> NDArray[np.float64]:
    """p [n, vocabulary] by the paper's formula, token by token, in double precision."""
    mixture = []
    for logits, distances, tokens in zip(search["logits"], search["distances"], search["tokens"], strict=True):
        model = np.exp(logits.astype(np.float64) - logits.max())
        model /= model.sum()
        exact = distances.astype(np.float64)
        found = np.isfinite(exact)
        if not found.any():
            mixture.append(model)
            continue
        shares = np.where(found, np.exp(-(exact - exact.min()) / search["temperature"]), 0.0)
        neighbours = np.zeros_like(model)
        for token, share in zip(tokens, shares / shares.sum(), strict=True):
            neighbours[token] += share
        mixture.append(search["weight"] * neighbours + (1 - search["weight"]) * model)
    return np.array(mixture)


def mixed(search: dict[str, Any]) -> torch.Tensor:
    weights = neighbour_weights(torch.from_numpy(search["distances"]), search["temperature"])
    return mix(torch.from_numpy(search["logits"]), torch.from_numpy(search["tokens"]), weights, search["weight"])


@properties
@given(searches())
def test_mix_is_the_distribution_of_the_dense_reference(search: dict[str, Any]) -> None:
    scores = mixed(search)
    assert torch.isfinite(scores).all()
    np.testing.assert_allclose(scores.exp().sum(dim=-1).numpy(), 1.0, atol=1e-5)
    np.testing.assert_allclose(scores.exp().numpy(), dense_mixture(search), atol=2e-4)


@properties
@given(searches())
def test_weights_and_masses_are_shares(search: dict[str, Any]) -> None:
    weights = neighbour_weights(torch.from_numpy(search["distances"]), search["temperature"])
    found = np.isfinite(search["distances"])
    np.testing.assert_allclose(weights.sum(dim=-1).numpy(), found.any(axis=1), atol=1e-5)
    assert (weights.numpy()[~found] == 0).all()
    masses = token_masses(alike(torch.from_numpy(search["tokens"])), weights).numpy()
    for row, tokens in enumerate(search["tokens"]):
        once = {token: masses[row, column] for column, token in enumerate(tokens)}
        assert sum(once.values()) == pytest.approx(float(found[row].any()), abs=1e-5)
        assert [once[token] for token in tokens] == masses[row].tolist()  # the same token has the same mass everywhere


@properties
@given(searches(), st.integers(1, 9))
def test_mix_best_is_the_best_of_mix(search: dict[str, Any], most: int) -> None:
    most = min(most, search["logits"].shape[1])
    logits, tokens = torch.from_numpy(search["logits"]), torch.from_numpy(search["tokens"])
    weights = neighbour_weights(torch.from_numpy(search["distances"]), search["temperature"])
    everything = mix(logits, tokens, weights, search["weight"])
    following = AllLogits(logits)
    ranking = following.rank(most)
    scores, best = mix_best(ranking, following.at(tokens), tokens, weights, search["weight"])
    np.testing.assert_allclose(scores.numpy(), everything.topk(most).values.numpy(), atol=1e-4)
    np.testing.assert_allclose(scores.numpy(), everything.gather(-1, best).numpy(), atol=1e-4)
    assert all(len(set(row)) == most for row in best.tolist())
    wanted = torch.arange(logits.shape[1]).expand(len(logits), -1)
    given_tokens = mix_at(torch.log_softmax(logits, dim=-1), wanted, tokens, weights, search["weight"])
    np.testing.assert_allclose(given_tokens.numpy(), everything.numpy(), atol=1e-4)


def test_a_distance_that_is_no_number_takes_nothing_from_the_others() -> None:
    weights = neighbour_weights(torch.tensor([[1.0, torch.nan, 1.0], [torch.nan, torch.nan, torch.nan]]), 10.0)
    assert weights.tolist() == [[0.5, 0.0, 0.5], [0.0, 0.0, 0.0]]


class LargestTensor(TorchDispatchMode):
    """Watches every tensor that is made."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        tensors = [made] if isinstance(made, torch.Tensor) else [t for t in made if isinstance(t, torch.Tensor)]
        self.elements = max([self.elements, *(tensor.numel() for tensor in tensors)])
        return made


@pytest.mark.parametrize(("n", "vocabulary", "k"), [(8, 250_000, 64), (3, 100, 64)])
def test_nothing_of_vocabulary_times_k_is_made(n: int, vocabulary: int, k: int) -> None:
    logits, tokens = torch.zeros(n, vocabulary), torch.zeros(n, k, dtype=torch.int64)
    with LargestTensor() as largest:
        weights = neighbour_weights(torch.ones(n, k), 10.0)
        mix(logits, tokens, weights, 0.5)
        following = AllLogits(logits)
        mix_best(following.rank(10), following.at(tokens), tokens, weights, 0.5)
    assert 0 < largest.elements <= n * max(vocabulary, k * k)


@pytest.mark.parametrize(
    ("distances", "trust", "expected"),
    [
        ([1.0, 1.0], [1.0, 1.0], [0.5, 0.5]),
        ([1.0, 1.0], [1.0, 0.5], [2 / 3, 1 / 3]),
        ([1.0, 1.0], [3.0, 1.0], [0.75, 0.25]),
        ([1.0, float("inf")], [0.1, 1.0], [1.0, 0.0]),
    ],
)
def test_trust_multiplies_mass(distances: list[float], trust: list[float], expected: list[float]) -> None:
    weights = neighbour_weights(torch.tensor([distances]), 10.0, torch.tensor([trust]))
    np.testing.assert_allclose(weights.numpy(), [expected], rtol=1e-6)


@given(st.lists(st.lists(st.integers(0, 5), min_size=7, max_size=7), min_size=1, max_size=5))
def test_groups_are_first_places(rows: list[list[int]]) -> None:
    expected = [[row.index(token) for token in row] for row in rows]
    assert groups_of(torch.tensor(rows)).tolist() == grouped(torch.tensor(rows)).tolist() == expected
