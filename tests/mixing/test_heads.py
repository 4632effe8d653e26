"""Heads: what they decide is a distribution, losses are those of whole distributions, fitting helps."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save

from knnmt import StoreError
from knnmt.engine.projection import AllLogits
from knnmt.mixing.coverage import Coverage
from knnmt.mixing.evidence import NEIGHBOURS, RANKED, Evidence
from knnmt.mixing.head_mixer import HeadMixer, digest, head_bytes, read_head
from knnmt.mixing.heads import CAUTIOUS, EVIDENCE, FEATURES, HEADS, NEVER, GateLimits, LearnedHead, RobustHead, features
from knnmt.mixing.mixture import mix
from knnmt.mixing.neighbours import Neighbours
from knnmt.mixing.reasons import IN_WORDS, because
from knnmt.mixing.training import (
    IN_KNOWN,
    Foreign,
    Seen,
    Trainer,
    divergence,
    effect,
    fit_head,
    likelihood,
    new_head,
)
from knnmt.translate.mixer_choice import builtin_head

VOCABULARY, ROWS = 40, 60
every_head = pytest.mark.parametrize("kind", HEADS)


def situation(missing: int = 0) -> tuple[Neighbours, torch.Tensor, torch.Tensor]:
    """Neighbours, logits and signals of some rows; of the last, some neighbours are missing."""
    random = np.random.default_rng(1)
    distances = np.sort(random.gamma(2.0, 20.0, (ROWS, NEIGHBOURS)), axis=1).astype(np.float32)
    tokens = random.integers(0, VOCABULARY, (ROWS, NEIGHBOURS))
    entries = random.integers(0, 999, (ROWS, NEIGHBOURS))
    if missing:
        distances[-1, -missing:], entries[-1, -missing:], tokens[-1, -missing:] = np.inf, -1, 0
    logits = torch.from_numpy(random.normal(0, 3, (ROWS, VOCABULARY))).float()
    return Neighbours(distances, entries, tokens), logits, torch.from_numpy(random.random((ROWS, 3))).float()


def evidence_of(missing: int = 0) -> tuple[Evidence, torch.Tensor]:
    found, logits, signals = situation(missing)
    following = AllLogits(logits)
    at = following.at(torch.from_numpy(found.tokens))
    return Evidence.of(found, following.rank(RANKED), at, signals, 100.0), logits


@every_head
@pytest.mark.parametrize("missing", [0, 5, NEIGHBOURS])
def test_a_judgement_is_a_distribution(kind: str, missing: int) -> None:
    evidence, _ = evidence_of(missing)
    judged = HEADS[kind]()(evidence)
    sums = judged.weights.sum(dim=-1)
    assert torch.allclose(sums[:-1], torch.ones(ROWS - 1), atol=1e-5)
    assert float(sums[-1].detach()) == pytest.approx(0.0 if missing == NEIGHBOURS else 1.0, abs=1e-5)
    assert ((judged.weight >= 0) & (judged.weight <= 1)).all()
    assert (judged.temperature > 0).all()
    assert all(part.isfinite().all() for part in judged)


def test_as_many_features_as_are_said() -> None:
    evidence, _ = evidence_of(3)
    assert features(evidence).shape == (ROWS, FEATURES)
    assert features(evidence).isfinite().all()


@every_head
def test_divergence_and_effect_are_those_of_whole_distributions(kind: str) -> None:
    evidence, logits = evidence_of()
    judged = HEADS[kind]()(evidence)
    mixed, alone = mix(logits, evidence.tokens, judged.weights, judged.weight), torch.log_softmax(logits, dim=-1)
    assert torch.allclose(divergence(judged, evidence), (alone.exp() * (alone - mixed)).sum(dim=-1), atol=1e-3)
    assert torch.allclose(effect(judged, evidence), (mixed.exp() - alone.exp()).abs().sum(dim=-1) / 2, atol=1e-3)


@every_head
def test_likelihood_is_that_of_the_whole_distribution(kind: str) -> None:
    evidence, logits = evidence_of()
    judged = HEADS[kind]()(evidence)
    wanted = torch.arange(ROWS) % VOCABULARY
    alone = torch.log_softmax(logits, dim=-1)[torch.arange(ROWS), wanted]
    seen = Seen(evidence, evidence.tokens == wanted[:, None], alone, torch.arange(ROWS))
    mixed = mix(logits, evidence.tokens, judged.weights, judged.weight)[torch.arange(ROWS), wanted]
    assert torch.allclose(likelihood(judged, seen), mixed, atol=1e-3)


def test_fitting_believes_a_memory_that_is_right_and_not_on_foreign_text() -> None:
    evidence, logits = evidence_of(5)
    wanted = evidence.tokens[:, 0]
    alone = torch.log_softmax(logits, dim=-1)[torch.arange(ROWS), wanted]
    near = Evidence(**{name: getattr(evidence, name) for name in evidence.__slots__} | {"signals": torch.ones(ROWS, 3)})
    far = Evidence(**{name: getattr(evidence, name) for name in evidence.__slots__} | {"signals": torch.zeros(ROWS, 3)})
    seen = Seen(near, near.tokens == wanted[:, None], alone, torch.arange(ROWS))
    fitted = fit_head(LearnedHead(), seen, Foreign(far, torch.arange(ROWS)), fresh=True)
    assert fitted.likelihood > fitted.base
    assert fitted.foreign_weight is not None
    assert fitted.foreign_weight < 0.2 < float(fitted.head(near).weight.mean())


@every_head
def test_a_head_comes_back_from_its_file(kind: str, tmp_path: Path) -> None:
    head, (evidence, _) = HEADS[kind](), evidence_of()
    (tmp_path / "head.safetensors").write_bytes(head_bytes(head, {"made": "here"}))
    again, about = read_head(tmp_path / "head.safetensors")
    assert about == {"made": "here"}
    assert torch.equal(again(evidence).weight, head(evidence).weight)
    (tmp_path / "head.safetensors").write_bytes(b"no head")
    with pytest.raises(StoreError, match=r"head\.safetensors"):
        read_head(tmp_path / "head.safetensors")


@every_head
def test_the_same_head_has_the_same_name_and_file_in_every_run(kind: str) -> None:
    head = HEADS[kind]()
    assert len({digest(head) for _ in range(20)}) == 1
    assert len({head_bytes(head, {"a": 1, "b": 2}) for _ in range(20)}) == 1
    assert digest(head) != digest(HEADS[kind]())


@every_head
def test_a_new_head_is_the_same_in_every_run(kind: str) -> None:
    before = torch.random.get_rng_state()
    assert digest(new_head(kind)) == digest(new_head(kind))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_each_feature_is_of_one_kind() -> None:
    assert sorted(column for columns in EVIDENCE.values() for column in columns) == list(range(FEATURES))


def test_reasons_are_what_the_weight_would_lose() -> None:
    """Of one kind of evidence, if it were as it was on average when the head was fitted."""
    evidence, _ = evidence_of()
    head = builtin_head()
    assert isinstance(head, LearnedHead)
    reasons = head.reasons(evidence)
    assert set(reasons) == set(EVIDENCE) == set(IN_WORDS)
    usual = evidence.rows(torch.arange(ROWS))
    inputs = head.inputs(usual)
    columns = list(EVIDENCE["coverage"])
    inputs[:, columns] = head.mean[columns]
    expected = head(evidence).weight - head.judge(inputs, usual).weight
    assert torch.allclose(reasons["coverage"], expected[:, 0], atol=1e-6)
    assert RobustHead().reasons(evidence) == {}


def test_reasons_in_words() -> None:
    effects = {"coverage": -0.4, "distance": 0.01, "agreement": 0.1, "model": 0.0}
    assert because(effects) == "the memory hardly covers the sentence (-0.40), the neighbours agree (+0.10)"
    assert because({"coverage": 0.001}) == ""


def test_the_built_in_head_leaves_text_that_is_not_covered_to_the_model() -> None:
    found, logits, _ = situation()
    following = AllLogits(logits)
    ranking, at = following.rank(RANKED), following.at(torch.from_numpy(found.tokens))
    mixer = HeadMixer(builtin_head(), Coverage(), 100.0, entries=999)
    none, whole = torch.zeros(ROWS, 3), torch.ones(ROWS, 3)
    assert float(mixer.mixture(found, ranking, at, none).weight.mean()) < 0.1
    assert float(mixer.mixture(found, ranking, at, whole).weight.mean()) > 0.2
    assert mixer.asks(ranking, mixer.with_limits(whole)).all()
    assert mixer.asks(ranking, mixer.with_limits(none)).float().mean() < 0.1


@pytest.mark.parametrize("kind", sorted(set(HEADS) - {"learned"}))
def test_heads_of_the_literature_ask_at_every_step(kind: str) -> None:
    """They were published so; only the learned head can foresee what a search would bring."""
    _, logits, signals = situation()
    mixer = HeadMixer(new_head(kind), Coverage(), 100.0, entries=NEIGHBOURS)
    assert mixer.asks(AllLogits(logits).rank(RANKED), mixer.with_limits(torch.zeros_like(signals))).all()


def test_a_sentence_is_known_that_promises_more_than_general_text() -> None:
    """In such a sentence a search is made for less, in others for more; a memory of general text knows it, too."""
    evidence, _ = evidence_of()
    seen = Seen(evidence, evidence.tokens == 3, torch.full((ROWS,), -3.0), torch.arange(ROWS))
    signals = torch.rand(ROWS, 3, generator=torch.Generator().manual_seed(0))
    general = Foreign(replace(evidence, signals=signals * 0.2), torch.arange(ROWS))
    head = builtin_head()
    assert isinstance(head, LearnedHead)
    assert GateLimits(*head.limits.tolist()) == pytest.approx(CAUTIOUS)  # it was not fitted to any one memory
    found = Trainer(head, seen, general).limits(head)
    promise = head.promise(general.evidence.signals)
    assert found.known == pytest.approx(min(0.1, 1.5 * float(torch.quantile(promise, 0.95))))
    assert (found.in_known, found.in_others) == (IN_KNOWN, NEVER)
    assert Trainer(head, seen, None).limits(head) == CAUTIOUS
    head.limits.copy_(torch.tensor(found))
    _, logits, _ = situation()
    mixer = HeadMixer(head, Coverage(), 100.0, entries=999)
    ranking = AllLogits(logits).rank(RANKED)
    unknown = torch.zeros(ROWS, 3)
    assert not mixer.asks(ranking, mixer.with_limits(unknown)).any()  # and the gate is not even run
    some = torch.cat([unknown[1:], torch.ones(1, 3)])
    assert mixer.asks(ranking, mixer.with_limits(some)).tolist() == [False] * (ROWS - 1) + [True]


def test_a_head_that_was_not_fitted_to_the_memory_is_cautious() -> None:
    head = builtin_head()
    limits = head.worthwhile(torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]))[:, 0].tolist()
    assert limits == pytest.approx([CAUTIOUS.in_others, CAUTIOUS.in_known])


def test_a_head_of_before_has_the_usual_limits(tmp_path: Path) -> None:
    before = {name: value for name, value in new_head("learned").state_dict().items() if name != "limits"}
    notes = {"format": "1", "kind": "learned", "about": {}}
    (tmp_path / "head").write_bytes(save(before, {"knnmt": json.dumps(notes)}))
    head = read_head(tmp_path / "head")[0]
    assert GateLimits(*head.state_dict()["limits"].tolist()) == pytest.approx(CAUTIOUS)
    (tmp_path / "head").write_bytes(save(before | {"more": torch.zeros(1)}, {"knnmt": json.dumps(notes)}))
    with pytest.raises(StoreError, match="damaged"):
        read_head(tmp_path / "head")
    del before["mean"]
    (tmp_path / "head").write_bytes(save(before, {"knnmt": json.dumps(notes)}))
    with pytest.raises(StoreError, match="damaged"):
        read_head(tmp_path / "head")


def test_a_memory_smaller_than_k_serves_too() -> None:
    found, logits, signals = situation()
    few = Neighbours(found.distances[:, :5], found.entries[:, :5], found.tokens[:, :5])
    following = AllLogits(logits)
    mixer = HeadMixer(builtin_head(), Coverage(), 100.0, entries=5)
    at = following.at(torch.from_numpy(few.tokens))
    ranking = following.rank(RANKED)
    mixture = mixer.mixture(few, ranking, at, signals)
    scores, best = mixture.best(ranking, at)
    assert torch.allclose(scores, mixture.distribution(logits).gather(1, best), atol=1e-4)
    assert mixer.needs.neighbours == 5
    assert torch.allclose(mixture.distribution(logits).exp().sum(dim=-1), torch.ones(ROWS), atol=1e-4)
