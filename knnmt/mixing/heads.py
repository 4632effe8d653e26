"""Heads: small networks that choose weight and temperature at each step."""

from typing import NamedTuple

import torch
from torch import nn

from knnmt.mixing.evidence import NEIGHBOURS, RANKED, SIGNALS, Evidence
from knnmt.mixing.reasons import Reasons

RANKS = (1, 2, 4, 8, 16, 32, 64)
NEAR = 8  # neighbours whose mean distance counts
USUAL_TEMPERATURE = 0.08  # variances of the keys: the best fixed temperature was 0.07 to 0.085 in several models
UNITS = 32
GATE_UNITS = 8


class Judgement(NamedTuple):
    """What a head decides for each of n rows."""

    weight: torch.Tensor  # [n, 1] of all neighbours together
    weights: torch.Tensor  # [n, k] of each among the neighbours; a row sums to 1
    temperature: torch.Tensor  # [n, 1] in variances of the keys


class Head(nn.Module):
    """A network that computes weight and temperature from the evidence."""

    kind = ""

    def forward(self, evidence: Evidence) -> Judgement:
        return self.judge(self.inputs(evidence), evidence)

    def inputs(self, evidence: Evidence) -> torch.Tensor:
        """What the network sees of each row, [n, inputs]; training computes it once."""
        return distances_and_counts(evidence)

    def judge(self, inputs: torch.Tensor, evidence: Evidence) -> Judgement:
        raise NotImplementedError

    def reasons(self, evidence: Evidence) -> Reasons:  # noqa: ARG002 - for heads that can tell
        """What each kind of evidence did to the weight; nothing where the network's inputs have no such kinds."""
        return {}

    def foreseen(self, best: torch.Tensor, signals: torch.Tensor) -> torch.Tensor:  # noqa: ARG002 - for heads that can
        """How far the mixture is likely to be from the model, [n], known before any search; here as far as can be."""
        return torch.ones(len(best), device=best.device)

    def worthwhile(self, signals: torch.Tensor) -> torch.Tensor:
        """How far it must be for a search, of each sentence, [sentences, 1]; here every search is made."""
        return torch.zeros(len(signals), 1)


def entropy_of(best: torch.Tensor) -> torch.Tensor:
    """Of the best few tokens and the rest as one, [n, 1], from logarithms [n, RANKED]."""
    shares = best.exp()
    rest = (1 - shares.sum(dim=-1, keepdim=True)).clamp_min(1e-6)
    return -(shares * best).sum(dim=-1, keepdim=True) - rest * rest.log()


def gate_features(best: torch.Tensor, signals: torch.Tensor) -> torch.Tensor:
    return torch.cat([best[:, :2].exp(), entropy_of(best), signals], dim=-1)


GATE_FEATURES = 2 + 1 + SIGNALS


class GateLimits(NamedTuple):
    """How far the mixture must be expected to be from the model (total variation) for a search to be made."""

    known: float  # a sentence is known to the memory where the gate expects this much at a step of usual certainty
    in_known: float  # in sentences that are known
    in_others: float  # in all others


NEVER = 2.0  # no two distributions are as far apart
# Of a head that was not fitted to the memory in question.
CAUTIOUS = GateLimits(known=0.04, in_known=0.0, in_others=0.15)


def features(evidence: Evidence) -> torch.Tensor:
    """Numbers about each row, [n, FEATURES]."""
    near = evidence.near
    logs = near.log()
    first = evidence.first_of_token()
    guess = torch.softmax((near[:, :1] - near) / USUAL_TEMPERATURE + evidence.trust, dim=-1)
    masses = evidence.masses(guess)
    heaviest = masses.argmax(dim=-1, keepdim=True)  # [n, 1]
    top = masses.gather(1, heaviest)
    chosen = evidence.tokens.gather(1, heaviest)
    others = masses.scatter(1, heaviest, 0.0).amax(dim=-1, keepdim=True)
    at_ranks = [rank - 1 for rank in RANKS]
    counts = first.float().cumsum(dim=-1)[:, at_ranks[1:]] / torch.tensor(RANKS[1:], device=near.device)
    of_neighbours = torch.where(first, evidence.logarithms.exp(), 0.0).sum(dim=-1, keepdim=True)
    return torch.cat(
        [
            logs[:, at_ranks],
            logs[:, :NEAR].mean(dim=-1, keepdim=True),
            near[:, [1, NEAR - 1]] - near[:, :1],  # gaps
            counts,
            top,
            others,
            evidence.best[:, :2].exp(),
            evidence.best.exp().sum(dim=-1, keepdim=True),
            entropy_of(evidence.best),
            of_neighbours,
            evidence.logarithms[:, :1],
            evidence.logarithms.gather(1, heaviest),
            (chosen == evidence.best_tokens[:, :1]).float(),
            evidence.signals,
        ],
        dim=-1,
    )


DISTANCES = len(RANKS) + 1 + 2
AGREEMENT = len(RANKS) - 1 + 2
CONFIDENCE = 2 + 1 + 1
SHARED = 1 + 1 + 1 + 1
FEATURES = DISTANCES + AGREEMENT + CONFIDENCE + SHARED + SIGNALS
# The columns of `features` that are columns of `gate_features`, too: the best two probabilities and the entropy.
USUAL_CERTAINTY = [DISTANCES + AGREEMENT + at for at in (0, 1, 3)]
# What the columns of `features` tell of: the neighbours' agreement is with each other and with the model.
EVIDENCE = {
    "distance": range(DISTANCES),
    "agreement": [
        *range(DISTANCES, DISTANCES + AGREEMENT),
        *range(DISTANCES + AGREEMENT + CONFIDENCE, FEATURES - SIGNALS),
    ],
    "model": range(DISTANCES + AGREEMENT, DISTANCES + AGREEMENT + CONFIDENCE),
    "coverage": range(FEATURES - SIGNALS, FEATURES),
}


class LearnedHead(Head):
    """Features of the row and the coverage of the sentence → weight and temperature.

    A neighbour's score is −distance / temperature + a · log p_model(its token). A gate guesses beforehand whether
    searching is worth it.
    """

    kind = "learned"
    limits: torch.Tensor  # [3] as in `GateLimits`

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(FEATURES))
        self.register_buffer("scale", torch.ones(FEATURES))
        self.register_buffer("limits", torch.tensor(CAUTIOUS))
        self.hidden = nn.Linear(FEATURES, UNITS)
        self.output = nn.Linear(UNITS, 2)
        self.agreement = nn.Parameter(torch.zeros(()))  # a
        self.gate = nn.Sequential(nn.Linear(GATE_FEATURES, GATE_UNITS), nn.Tanh(), nn.Linear(GATE_UNITS, 1))

    def standardise(self, seen: torch.Tensor) -> None:
        """Learn the usual size of each feature, [n, FEATURES]."""
        self.mean, self.scale = seen.mean(dim=0), seen.std(dim=0).clamp_min(1e-3)

    def start_at(self, weight: float, temperature: float) -> None:
        """Begin as a fixed weight and temperature (in variances)."""
        with torch.no_grad():
            self.output.weight.mul_(0.1)
            self.output.bias.copy_(torch.tensor([weight, temperature]).clamp(1e-4).log())
            self.output.bias[0] -= torch.tensor(1 - weight).clamp_min(1e-4).log()

    def inputs(self, evidence: Evidence) -> torch.Tensor:
        return features(evidence)

    def judge(self, inputs: torch.Tensor, evidence: Evidence) -> Judgement:
        weight, temperature = self.outputs((inputs - self.mean) / self.scale)
        temperature = temperature.clamp(-7.0, 3.0).exp()
        scores = evidence.scores(temperature) + self.agreement * evidence.logarithms
        return Judgement(torch.sigmoid(weight), normalised(scores), temperature)

    def outputs(self, standard: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Weight and temperature before they are squashed, each [n, 1], of features in their usual size."""
        weight, temperature = self.output(torch.tanh(self.hidden(standard))).split(1, dim=-1)
        return weight, temperature

    def foreseen(self, best: torch.Tensor, signals: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.gate(gate_features(best, signals)))[:, 0]

    def promise(self, signals: torch.Tensor) -> torch.Tensor:
        """What the gate expects of each sentence at a step of usual certainty, [sentences, 1]."""
        usual = self.mean[USUAL_CERTAINTY].expand(len(signals), -1)
        return torch.sigmoid(self.gate(torch.cat([usual, signals], dim=-1)))

    def worthwhile(self, signals: torch.Tensor) -> torch.Tensor:
        limits = GateLimits(*self.limits.tolist())
        return torch.where(self.promise(signals) >= limits.known, limits.in_known, limits.in_others)

    def reasons(self, evidence: Evidence) -> Reasons:
        standard = (self.inputs(evidence) - self.mean) / self.scale
        weight = torch.sigmoid(self.outputs(standard)[0])
        without = {kind: standard.index_fill(1, torch.tensor(list(at)), 0.0) for kind, at in EVIDENCE.items()}
        return {kind: (weight - torch.sigmoid(self.outputs(usual)[0]))[:, 0] for kind, usual in without.items()}


def distances_and_counts(evidence: Evidence) -> torch.Tensor:
    """Of the first k neighbours for every k: the distance of the last, and the distinct tokens; [n, 2 · NEIGHBOURS]."""
    counts = evidence.first_of_token().float().cumsum(dim=-1) / NEIGHBOURS
    return torch.cat([evidence.near, counts], dim=-1)


class AdaptiveHead(Head):
    """The meta-k network of Zheng et al. (ACL 2021): how many neighbours to use, none among the choices."""

    kind = "adaptive"
    choices = (1, 2, 4, 8, 16, 32, 64)

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(2 * NEIGHBOURS, UNITS)
        self.output = nn.Linear(UNITS, len(self.choices) + 1)
        self.temperature = nn.Parameter(torch.tensor(USUAL_TEMPERATURE).log())

    def judge(self, inputs: torch.Tensor, evidence: Evidence) -> Judgement:
        inner = torch.relu(self.hidden(inputs))
        shares = torch.softmax(self.output(inner), dim=-1)  # [n, none and choices]
        temperature = self.temperature.exp().expand(len(shares), 1)
        scores = evidence.scores(temperature)
        ranks = torch.arange(scores.shape[1], device=scores.device)
        weights = sum(
            shares[:, at + 1 : at + 2] * normalised(scores.masked_fill(ranks >= k, -torch.inf))
            for at, k in enumerate(self.choices)
        )
        weight = 1 - shares[:, :1]
        return Judgement(weight, torch.as_tensor(weights) / weight.clamp_min(1e-6), temperature)


class RobustHead(Head):
    """Distribution calibration of Jiang et al. (EMNLP 2022): the model's confidence weighs neighbours and memory.

    It is trained with neighbours that are perturbed on purpose (`knnmt.mixing.training`).
    """

    kind = "robust"

    def __init__(self) -> None:
        super().__init__()
        self.distance = nn.Sequential(nn.Linear(2 * NEIGHBOURS, UNITS), nn.Tanh(), nn.Linear(UNITS, 2))
        self.confidence = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
        self.model = nn.Linear(RANKED + NEIGHBOURS, 1)

    def judge(self, inputs: torch.Tensor, evidence: Evidence) -> Judgement:
        memory, temperature = self.distance(inputs).split(1, dim=-1)
        temperature = (temperature.clamp(-5.0, 5.0)).exp() * USUAL_TEMPERATURE
        most = evidence.best[:, :1].expand_as(evidence.logarithms)
        belief = self.confidence(torch.stack([evidence.logarithms, most], dim=-1).exp())[:, :, 0]
        alone = self.model(torch.cat([evidence.best.exp(), evidence.logarithms.exp()], dim=-1))
        scores = evidence.scores(temperature) + belief
        return Judgement(torch.sigmoid(memory - alone), normalised(scores), temperature)


HEADS: dict[str, type[Head]] = {head.kind: head for head in (LearnedHead, AdaptiveHead, RobustHead)}


def normalised(scores: torch.Tensor) -> torch.Tensor:
    """Weights that sum to 1 a row, and to 0 where no score is finite."""
    found = scores.isfinite().any(dim=-1, keepdim=True)
    return torch.where(found, torch.softmax(torch.where(found, scores, 0.0), dim=-1), 0.0)
