"""Fits a head: it raises the likelihood of text like the memory, and leaves general text as the model translates it.

Text of the memory itself, each sentence left out of its own search, stands for text that is like the memory. General
text stands for the rest: there the mixture is to stay what the model alone would say (KL divergence).
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import torch

from knnmt.mixing.evidence import Evidence, joined_evidence
from knnmt.mixing.fixed import mixed_likelihoods, neighbour_shares
from knnmt.mixing.heads import (
    CAUTIOUS,
    HEADS,
    NEVER,
    GateLimits,
    Head,
    Judgement,
    LearnedHead,
    RobustHead,
    gate_features,
    normalised,
)

STEPS, BATCH = 300, 1024
LEARNING_RATE, DECAY = 5e-3, 1e-2
CHECK_EVERY, PATIENCE = 20, 4
FOREIGN = 3.0  # times the divergence on general text counts in the loss
HELD_OUT = 5  # every fifth sentence says when to stop
GATE_STEPS, GATE_RATE = 300, 3e-2
TEMPERATURES = tuple(0.01 * 2 ** (step / 2) for step in range(16))  # variances of the keys
WEIGHTS = tuple(step / 20 for step in range(1, 20))
# Of the gate: a sentence is known that promises 1.5 times as much as nearly all general sentences do.
OF_GENERAL, MORE_THAN_GENERAL, KNOWN_AT_LEAST = 0.95, 1.5, 0.1
# There, searches for less than 0.02 total variation brought 0.1 to 0.3 % of the gain; in other sentences, none did.
IN_KNOWN = 0.02
PERTURBED = 0.1  # share of the distance by which the robust head's neighbours are moved
SEED = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """Rows of text that is like the memory."""

    evidence: Evidence
    hits: torch.Tensor  # [n, k] whether the neighbour's token is the reference's
    model: torch.Tensor  # [n] logarithm of the model's probability of the reference's token
    sentences: torch.Tensor  # [n] number of the row's sentence


@dataclass(frozen=True, slots=True)
class Foreign:
    """Rows of general text, translated by the model itself."""

    evidence: Evidence
    sentences: torch.Tensor  # [n]


def all_seen(parts: Sequence[Seen]) -> Seen:
    """The rows of several texts; no two of their sentences have the same number."""
    return Seen(
        joined_evidence([part.evidence for part in parts]),
        torch.cat([part.hits for part in parts]),
        torch.cat([part.model for part in parts]),
        renumbered([part.sentences for part in parts]),
    )


def all_foreign(parts: Sequence[Foreign]) -> Foreign:
    return Foreign(joined_evidence([part.evidence for part in parts]), renumbered([part.sentences for part in parts]))


def renumbered(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Numbers of sentences, those of each part after those of the parts before it."""
    counts = [int(part.max()) + 1 if len(part) else 0 for part in parts]
    firsts = [sum(counts[:at]) for at in range(len(parts))]
    return torch.cat([part + first for part, first in zip(parts, firsts, strict=True)])


@dataclass(frozen=True, slots=True)
class Fitted:
    """A head and what it reached on sentences that it was not fitted on."""

    head: Head
    base: float  # mean log-likelihood of a token by the model alone
    fixed: float  # by the best fixed values
    likelihood: float  # by the head
    divergence: float | None  # from the model on general text; None where there was none
    weight: float  # the best fixed weight,
    temperature: float  # and temperature, in variances of the keys
    foreign_weight: float | None  # the head's mean weight on general text


def likelihood(judged: Judgement, seen: Seen) -> torch.Tensor:
    """Logarithm of the mixed probability of each row's reference token, [n]."""
    by_memory = (judged.weights * seen.hits).sum(dim=-1)
    weight = torch.where(seen.evidence.distances[:, 0].isfinite(), judged.weight[:, 0], 0.0)
    return (weight * by_memory + (1 - weight) * seen.model.exp()).clamp_min(1e-9).log()


def divergence(judged: Judgement, evidence: Evidence) -> torch.Tensor:
    """KL of the mixture from the model, [n]: only the neighbours' tokens and the sum of all others are needed."""
    alone = torch.where(evidence.first_of_token(), evidence.logarithms.exp(), 0.0)
    mixed = judged.weight * evidence.masses(judged.weights) + (1 - judged.weight) * alone
    ratio = evidence.logarithms - mixed.clamp_min(1e-9).log()
    others = (1 - alone.sum(dim=-1)).clamp_min(0.0)
    return (alone * ratio).sum(dim=-1) - others * (1 - judged.weight[:, 0]).clamp_min(1e-6).log()


def effect(judged: Judgement, evidence: Evidence) -> torch.Tensor:
    """Total variation between mixture and model, [n]."""
    alone = torch.where(evidence.first_of_token(), evidence.logarithms.exp(), 0.0)
    apart = (evidence.masses(judged.weights) - alone).abs().sum(dim=-1)
    others = (1 - alone.sum(dim=-1)).clamp_min(0.0)
    return judged.weight[:, 0] * (apart + others) / 2


def fixed_likelihood(seen: Seen, weight: float, temperature: float) -> torch.Tensor:
    """The same of a fixed weight and temperature (in variances), [n]."""
    rows = len(seen.model)
    weights = normalised(seen.evidence.scores(temperature))
    return likelihood(Judgement(torch.full((rows, 1), weight), weights, torch.full((rows, 1), temperature)), seen)


def best_fixed(seen: Seen) -> tuple[float, float]:
    """The best fixed weight and temperature (in variances)."""
    distances, hits = seen.evidence.distances.numpy(), seen.hits.numpy()
    model = np.exp(seen.model.numpy().astype(np.float64))
    found = np.isfinite(distances[:, 0])
    surface = np.array(
        [
            mixed_likelihoods(model, neighbour_shares(distances, hits, temperature, [hits.shape[1]]), found, WEIGHTS)[0]
            for temperature in TEMPERATURES
        ]
    )
    temperature, weight = np.unravel_index(int(np.argmax(surface)), surface.shape)
    return WEIGHTS[weight], TEMPERATURES[temperature]


class Trainer:
    """Fits one head on rows of both kinds; every fifth sentence is held out."""

    def __init__(self, head: Head, seen: Seen, foreign: Foreign | None, *, prior: float = 0.0) -> None:
        self.head, self.seen, self.foreign, self.prior = head, seen, foreign, prior
        self.start = {name: value.detach().clone() for name, value in head.named_parameters()}
        self.inputs = head.inputs(seen.evidence)
        self.foreign_inputs = head.inputs(foreign.evidence) if foreign else torch.empty(0)
        held = seen.sentences % HELD_OUT == 0
        self.used, self.held = torch.nonzero(~held)[:, 0], torch.nonzero(held)[:, 0]
        self.random = torch.Generator().manual_seed(SEED)

    def fit(self, steps: int = STEPS) -> None:
        """Train until the held-out rows get no better, and keep the best state."""
        optimizer = torch.optim.AdamW(self.trained(), lr=LEARNING_RATE, weight_decay=DECAY)
        best, state, waited = self.held_out_loss(), deepcopy(self.head.state_dict()), 0
        for step in range(1, steps + 1):
            optimizer.zero_grad()
            torch.autograd.backward(self.loss())
            optimizer.step()
            if step % CHECK_EVERY:
                continue
            now = self.held_out_loss()
            if now < best:
                best, state, waited = now, deepcopy(self.head.state_dict()), 0
            elif (waited := waited + 1) >= PATIENCE:
                break
        self.head.load_state_dict(state)

    def trained(self) -> Iterator[torch.nn.Parameter]:
        return (value for name, value in self.head.named_parameters() if not name.startswith("gate."))

    def loss(self) -> torch.Tensor:
        """Of a random batch of each kind."""
        rows = self.used[torch.randint(len(self.used), (min(BATCH, len(self.used)),), generator=self.random)]
        loss = -self.likelihoods(rows, perturb=isinstance(self.head, RobustHead)).mean()
        if self.foreign is not None:
            some = torch.randint(len(self.foreign.sentences), (BATCH // 2,), generator=self.random)
            loss = loss + FOREIGN * self.divergences(some).mean()
        if self.prior:
            moved = sum((value - self.start[name]).square().sum() for name, value in self.head.named_parameters())
            loss = loss + self.prior * moved
        return loss

    def likelihoods(self, rows: torch.Tensor, *, perturb: bool = False) -> torch.Tensor:
        seen = Seen(self.seen.evidence.rows(rows), self.seen.hits[rows], self.seen.model[rows], rows)
        if not perturb:
            return likelihood(self.head.judge(self.inputs[rows], seen.evidence), seen)
        seen = perturbed(seen, self.random)
        return likelihood(self.head(seen.evidence), seen)

    def divergences(self, rows: torch.Tensor) -> torch.Tensor:
        assert self.foreign is not None
        evidence = self.foreign.evidence.rows(rows)
        return divergence(self.head.judge(self.foreign_inputs[rows], evidence), evidence)

    @torch.no_grad()
    def held_out_loss(self) -> float:
        loss = -float(self.likelihoods(self.held).mean()) if len(self.held) else 0.0
        if self.foreign is None:
            return loss
        return loss + FOREIGN * float(self.divergences(torch.arange(len(self.foreign.sentences))).mean())

    def fit_gate(self, gate: torch.nn.Module) -> None:
        """Teach the head's gate to foresee how far the mixture will be from the model."""
        with torch.no_grad():
            known = [(self.seen.evidence, effect(self.head.judge(self.inputs, self.seen.evidence), self.seen.evidence))]
            if self.foreign is not None:
                judged = self.head.judge(self.foreign_inputs, self.foreign.evidence)
                known.append((self.foreign.evidence, effect(judged, self.foreign.evidence)))
            inputs = torch.cat([gate_features(evidence.best, evidence.signals) for evidence, _ in known])
            wanted = torch.cat([each for _, each in known]).clamp(0.0, 1.0)
        optimizer = torch.optim.AdamW(gate.parameters(), lr=GATE_RATE, weight_decay=DECAY)
        for _ in range(GATE_STEPS):
            rows = torch.randint(len(wanted), (min(4 * BATCH, len(wanted)),), generator=self.random)
            optimizer.zero_grad()
            guess = gate(inputs[rows])[:, 0]
            torch.autograd.backward(torch.nn.functional.binary_cross_entropy_with_logits(guess, wanted[rows]))
            optimizer.step()

    @torch.no_grad()
    def limits(self, head: LearnedHead) -> GateLimits:
        """When to search: a sentence is known to the memory that promises more than general sentences do."""
        if self.foreign is None or not len(self.foreign.sentences):
            return CAUTIOUS
        promise = head.promise(one_of_each(self.foreign.evidence.signals, self.foreign.sentences))
        usual = MORE_THAN_GENERAL * float(torch.quantile(promise, OF_GENERAL))
        return GateLimits(min(usual, KNOWN_AT_LEAST), IN_KNOWN, NEVER)


def one_of_each(rows: torch.Tensor, sentences: torch.Tensor) -> torch.Tensor:
    """One row of each sentence."""
    ordered, places = sentences.sort(stable=True)
    return rows[places[torch.cat([torch.ones(1, dtype=torch.bool), ordered[1:] != ordered[:-1]])]]


def perturbed(seen: Seen, random: torch.Generator) -> Seen:
    """Neighbours that are a little nearer or farther than they were found, as Jiang et al. train with."""
    noise = torch.empty_like(seen.evidence.distances).normal_(generator=random) * PERTURBED
    distances = seen.evidence.distances * (1 + noise).clamp_min(0.1)
    return replace(seen, evidence=replace(seen.evidence, distances=distances))


def new_head(kind: str) -> Head:
    """A head that has learned nothing yet, the same one in every run."""
    with torch.random.fork_rng(devices=[]):  # a program's own random numbers stay as they are
        torch.manual_seed(SEED)
        return HEADS[kind]()


def fit_head(head: Head, seen: Seen, foreign: Foreign | None, *, fresh: bool, prior: float = 0.0) -> Fitted:
    """Fit a head; `fresh`: one that has learned nothing yet."""
    weight, temperature = best_fixed(seen)
    if fresh and isinstance(head, LearnedHead):
        both = [seen.evidence, *([foreign.evidence] if foreign else [])]
        head.standardise(torch.cat([head.inputs(evidence) for evidence in both]))
        head.start_at(weight, temperature)
    trainer = Trainer(head, seen, foreign, prior=prior)
    trainer.fit()
    if isinstance(head, LearnedHead):
        trainer.fit_gate(head.gate)
        head.limits.copy_(torch.tensor(trainer.limits(head)))
    with torch.no_grad():
        reached = trainer.likelihoods(trainer.held)
        apart = trainer.divergences(torch.arange(len(foreign.sentences))) if foreign else None
        on_foreign = head.judge(trainer.foreign_inputs, foreign.evidence).weight if foreign else None
    return Fitted(
        head=head,
        base=float(seen.model[trainer.held].mean()),
        fixed=float(fixed_likelihood(seen, weight, temperature)[trainer.held].mean()),
        likelihood=float(reached.mean()),
        divergence=None if apart is None else float(apart.mean()),
        weight=weight,
        temperature=temperature,
        foreign_weight=None if on_foreign is None else float(on_foreign.mean()),
    )
