"""The parts of the recipe of the embedded model, each by itself: schedule, loss, batches, optimizer."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import MarianMTModel


@pytest.mark.parametrize(
    ("step", "used", "expected"),
    [(0, 0.0, 0.25), (1, 0.0, 0.5), (3, 0.0, 1.0), (3, 0.25, 1.0), (9, 0.5, 1.0), (9, 0.75, 0.5), (9, 1.0, 0.0)],
)
def test_rate_factor(recipe: SimpleNamespace, step: int, used: float, expected: float) -> None:
    assert recipe.schedule.rate_factor(step=step, warmup=4, used=used, decay=0.5) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("asked", "flags", "expected"),
    [
        ("auto", {"fma", "avx512_bf16"}, "bfloat16"),
        ("auto", {"amx_bf16"}, "bfloat16"),
        ("auto", {"avx2", "fma"}, "float32"),
        ("float32", {"avx512_bf16"}, "float32"),
        ("bfloat16", {"avx2"}, "bfloat16"),
    ],
)
def test_precision(recipe: SimpleNamespace, asked: str, flags: set[str], expected: str) -> None:
    assert recipe.precision.resolve(asked, frozenset(flags)) == expected


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_pytorch(recipe: SimpleNamespace, smoothing: float) -> None:
    generator = torch.Generator().manual_seed(0)
    given_logits = torch.randn(7, 11, generator=generator) * 5
    labels = torch.randint(0, 11, (7,), generator=generator)
    ours, theirs = (given_logits.clone().requires_grad_() for _ in range(2))
    loss = recipe.loss.cross_entropy_sum(ours, labels, smoothing=smoothing)
    expected = functional.cross_entropy(theirs, labels, label_smoothing=smoothing, reduction="sum")
    (3 * loss).backward()
    (3 * expected).backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_the_loss_leaves_its_logits_alone(recipe: SimpleNamespace) -> None:
    logits = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    before = logits.clone()
    recipe.loss.cross_entropy_sum(logits, torch.tensor([0, 4, 2]), smoothing=0.1)
    torch.testing.assert_close(logits, before)


def test_either_attention_gives_the_same_loss(recipe: SimpleNamespace, tmp_path: Path) -> None:
    shape = recipe.model.Shape(dimension=16, feed_forward=32, heads=2, encoder_layers=2, decoder_layers=2)
    model = MarianMTModel(
        recipe.model.make_config(shape, {"</s>": 0, "<pad>": 19, **{str(n): n for n in range(1, 19)}})
    )
    source = torch.tensor([[3, 4, 5, 0], [6, 0, 19, 19]])
    target = torch.tensor([[7, 8, 0], [9, 0, 19]])
    losses = {}
    for precision in recipe.precision.PRECISIONS[1:]:
        recipe.model.choose_attention(model, precision)
        losses[model.config._attn_implementation] = recipe.model.loss_sum(model, source, target, smoothing=0.1)[0]
    assert set(losses) == {"eager", "sdpa"}
    torch.testing.assert_close(losses["eager"], losses["sdpa"])


@pytest.mark.parametrize(
    ("budget", "step", "seconds", "expected"),
    [
        ({"steps": 10}, 0, 99.0, 0.0),
        ({"steps": 10}, 5, 99.0, 0.5),
        ({"steps": 10}, 12, 99.0, 1.0),
        ({"minutes": 2}, 5, 30.0, 0.25),
        ({"minutes": 2}, 5, 121.0, 1.0),
    ],
)
def test_budget_used(
    recipe: SimpleNamespace, budget: dict[str, float], step: int, seconds: float, expected: float
) -> None:
    assert recipe.schedule.Budget(**budget).used(step=step, seconds=seconds) == pytest.approx(expected)


@pytest.mark.parametrize("budget", [{}, {"steps": 1, "minutes": 1.0}, {"steps": 0}, {"minutes": -1.0}])
def test_budget_is_checked(recipe: SimpleNamespace, budget: dict[str, float]) -> None:
    with pytest.raises(recipe.text.RecipeError, match="--steps"):
        recipe.schedule.Budget(**budget)


@pytest.mark.parametrize(
    ("source", "target", "tokens", "expected"),
    [
        ([], [], 10, []),
        ([2, 2, 2], [3, 3, 3], 10, [(0, 2), (2, 3)]),
        ([2, 2, 2], [3, 3, 3], 15, [(0, 3)]),
        ([1, 4, 1], [1, 1, 1], 10, [(0, 2), (2, 3)]),  # padding to the longest counts
        ([9, 1, 1], [9, 1, 1], 10, [(0, 1), (1, 3)]),  # a pair above the budget stands alone
    ],
)
def test_cut_batches(
    recipe: SimpleNamespace, source: list[int], target: list[int], tokens: int, expected: list[tuple[int, int]]
) -> None:
    cuts = recipe.batches.cut_batches(np.array(source), np.array(target), tokens=tokens)
    assert [(cut.start, cut.stop) for cut in cuts] == expected


@pytest.mark.parametrize(
    ("weights", "first", "second"),
    [
        ((1.0, 1.0), [1, 1, 1, 1], [1, 1]),
        ((2.0, 0.5), [2, 2, 2, 2], [0, 1]),
        ((1.5, 3.0), [1, 1, 2, 2], [3, 3]),
        ((0.25, 1.0), [0, 0, 0, 1], [1, 1]),
    ],
)
def test_a_round_draws_by_weight(
    recipe: SimpleNamespace, weights: tuple[float, float], first: list[int], second: list[int]
) -> None:
    drawn = recipe.batches.sample_round([4, 2], weights, np.random.default_rng(3))
    times = np.bincount(drawn, minlength=6).tolist()
    assert (sorted(times[:4]), sorted(times[4:])) == (first, second)


def plan(recipe: SimpleNamespace, *, seed: int = 1, index: int = 0) -> list[list[int]]:
    source, target = np.arange(1, 41) % 7 + 1, np.arange(1, 41) % 5 + 1
    batches = recipe.batches.plan_round(
        sizes=[30, 10], weights=[1.0, 2.0], source=source, target=target, tokens=24, seed=seed, index=index
    )
    return [batch.tolist() for batch in batches]


def test_the_plan_is_a_function_of_seed_and_round(recipe: SimpleNamespace) -> None:
    assert plan(recipe) == plan(recipe)
    assert plan(recipe) != plan(recipe, index=1)
    assert plan(recipe) != plan(recipe, seed=2)
    assert sorted(pair for batch in plan(recipe) for pair in batch) == sorted([*range(40), *range(30, 40)])


def test_orthogonalise(recipe: SimpleNamespace) -> None:
    matrix = torch.randn(6, 24, generator=torch.Generator().manual_seed(0))
    for shape in (matrix, matrix.T):
        values = torch.linalg.svdvals(recipe.optimizer.orthogonalise(shape))
        assert values.min() > 0.6
        assert values.max() < 1.3


def test_averaged_weights(recipe: SimpleNamespace, tmp_path: Path) -> None:
    for position, value in enumerate((1.0, 2.0, 6.0)):
        weight = torch.full((2,), value)
        torch.save({"weight": weight, "tied": weight}, tmp_path / f"weights-{position}.pt")
    average = recipe.checkpoint.average_weights(recipe.checkpoint.weight_files(tmp_path))
    assert {name: tensor.tolist() for name, tensor in average.items()} == {"weight": [3.0, 3.0], "tied": [3.0, 3.0]}


def test_split_by_resemblance(recipe: SimpleNamespace) -> None:
    sample = recipe.split.count_words([["council", "votes"], ["the", "council"]] * 5)
    lines = [["the", "council", "votes"], ["a", "dog", "runs"], ["council", "votes"], ["a", "cat", "runs"]]
    assert recipe.split.resembles(lines, sample, rounds=3) == [True, False, True, False]


def test_unequal_files_are_refused(recipe: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("eins\nzwei\n", encoding="utf-8")
    (tmp_path / "b").write_text("one\n", encoding="utf-8")
    with pytest.raises(recipe.text.RecipeError, match="differ in their number of lines"):
        list(recipe.text.read_pairs(tmp_path / "a", tmp_path / "b"))
