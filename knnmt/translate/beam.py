"""Beam search, token for token what `generate` does, without the work that it wastes.

Sentences that are done leave the batch; only the best few continuations of each beam are scored; neighbours are mixed
in at their own tokens alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.arrays import picked
from knnmt.engine.projection import NextTokens
from knnmt.engine.stepping import Step, Stepper
from knnmt.models.translation_model import TranslationModel

# Names of `generate`'s settings that change which tokens may follow, and that this search does not know.
# A model that asks for one of them is left to `generate` itself.
FOREIGN_RULES = {
    "do_sample": (None, False),
    "encoder_no_repeat_ngram_size": (None, 0),
    "encoder_repetition_penalty": (None, 1.0),
    "exponential_decay_length_penalty": (None,),
    "begin_suppress_tokens": (None,),
    "guidance_scale": (None, 1, 1.0),
    "no_repeat_ngram_size": (None, 0),
    "num_beam_groups": (None, 1),
    "repetition_penalty": (None, 1.0),
    "sequence_bias": (None,),
    "min_new_tokens": (None, 0),
    "max_new_tokens": (None,),
    "constraints": (None,),
    "force_words_ids": (None,),
    "penalty_alpha": (None,),
    "remove_invalid_values": (None, False),
    "diversity_penalty": (None, 0.0),
    "max_time": (None,),
    "num_return_sequences": (None, 1),
    "stop_strings": (None,),
    "watermarking_config": (None,),
}


Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]


class Proposal(NamedTuple):
    """The best continuations of each row, best first, as logarithms of probabilities."""

    scores: torch.Tensor  # [rows, most]
    tokens: torch.Tensor  # [rows, most]
    discount: torch.Tensor  # [rows, 1]: logit + discount is the score of any token that no neighbour speaks for


Propose = Callable[[Step, int], Proposal]  # from what the model's step gave, and how many are wanted


@dataclass(frozen=True, slots=True)
class BeamRules:
    """What may be generated, and when to stop."""

    beam: int
    max_length: int
    min_length: int
    end: int
    forced_end: int | None
    banned: tuple[int, ...]
    renormalize: bool  # whether what banned tokens had is given to the others
    length_penalty: float
    early_stopping: bool | str


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A finished translation, its log-probability, and its score: that divided by length as the penalty says."""

    score: float
    total: float
    tokens: list[int]


def rules_of(model: TranslationModel, beam: int) -> BeamRules | None:
    """The model's own rules; None where they hold something that only `generate` knows."""
    settings = model.network.generation_config
    bad_words = settings.bad_words_ids or []
    foreign = any(getattr(settings, name, None) not in plain for name, plain in FOREIGN_RULES.items())
    if foreign or isinstance(settings.eos_token_id, list) or any(len(word) > 1 for word in bad_words):
        return None
    return BeamRules(
        beam=beam,
        max_length=longest_output(model),
        min_length=settings.min_length or 0,
        end=model.end_token,
        forced_end=settings.forced_eos_token_id,
        banned=tuple({word[0] for word in bad_words} | set(settings.suppress_tokens or [])),
        renormalize=bool(getattr(settings, "renormalize_logits", None)),
        length_penalty=1.0 if settings.length_penalty is None else settings.length_penalty,
        early_stopping=settings.early_stopping or False,
    )


def longest_output(model: TranslationModel) -> int:
    """The model's own limit of output tokens, the start token included; where it names none, all its positions."""
    return int(model.network.generation_config.max_length or model.positions)


def propose_plainly(step: Step, most: int) -> Proposal:
    """The model's own best continuations."""
    ranking = step.following.rank(most)
    return Proposal(ranking.logits - ranking.total, ranking.tokens, -ranking.total)


class Finished:
    """The best hypotheses of one sentence so far, as many as there are beams."""

    def __init__(self, rules: BeamRules) -> None:
        self.rules = rules
        self.best: list[Hypothesis] = []

    def add(self, total: float, tokens: list[int], length: int) -> None:
        self.best.append(Hypothesis(total / length**self.rules.length_penalty, total, tokens))
        self.best.sort(key=lambda hypothesis: -hypothesis.score)
        del self.best[self.rules.beam :]

    def cannot_improve(self, running: float, length: int) -> bool:
        """Whether the best running hypothesis, if it ended now, would not be among the best."""
        if len(self.best) < self.rules.beam:
            return False
        if self.rules.early_stopping is True:
            return True
        if self.rules.early_stopping == "never" and self.rules.length_penalty > 0:
            length = self.rules.max_length - 1
        worst = self.best[-1].score
        return bool(running / length**self.rules.length_penalty <= worst)


class BeamSearch:
    """The search over one batch of sentences. Its books are numpy's, whose calls are cheaper than torch's."""

    def __init__(self, model: TranslationModel, rules: BeamRules, propose: Propose, *, quick: bool = False) -> None:
        self.model = model
        self.rules = rules
        self.propose = propose
        self.stepper = Stepper(model, rules.beam, quick=quick)
        self.device = model.network.device

    @torch.inference_mode()
    def run(self, ids: torch.Tensor, mask: torch.Tensor) -> list[Hypothesis]:
        """The best output of each source, its tokens after the decoder's prefix; ids and mask are [sentences, time]."""
        self.finished = [Finished(self.rules) for _ in ids]
        self.active = np.arange(len(ids))  # numbers of the sentences still running
        # [sentences, beams, time]; at first all beams are one
        self.sequences = np.tile(np.array(self.model.decoder_prefix), (len(ids), 1, 1))
        self.scores = np.zeros((len(ids), 1), np.float32)  # [sentences, beams]
        with self.stepper.attached():
            self._advance(self.stepper.begin(ids, mask))
            while len(self.active):
                self._advance(self.stepper.step(self._tensor(self.sequences[:, :, -1].reshape(-1))))
        return [finished.best[0] for finished in self.finished]

    def _tensor(self, numbers: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(numbers).to(self.device)

    def _advance(self, step: Step) -> None:
        """One step: choose continuations, set the finished ones aside, go on with the others."""
        beam, length = self.rules.beam, self.sequences.shape[-1] + 1
        scores, parents, tokens = self._continuations(step, 2 * beam)
        ended = (tokens == self.rules.end) | (length >= self.rules.max_length)
        self._set_aside(scores[:, :beam], parents[:, :beam], tokens[:, :beam], ended[:, :beam])
        self.scores, order = best_of(scores + ended * np.float32(-1e9), beam)
        parents, tokens = picked(parents, order), picked(tokens, order)
        kept = picked(self.sequences, parents)
        self.sequences = np.concatenate([kept, tokens[:, :, None]], axis=-1)
        self._keep_running(parents, length)

    def _continuations(self, step: Step, most: int) -> tuple[Floats, Numbers, Numbers]:
        """The best over all beams of a sentence: scores, parent beams and tokens, each [sentences, most]."""
        scores, tokens = self._allowed(step, most)
        width, sentences = scores.shape[-1], len(self.active)
        best, at = best_of((self.scores.reshape(-1, 1) + scores).reshape(sentences, -1), most)
        return best, at // width, picked(tokens.reshape(sentences, -1), at)

    def _allowed(self, step: Step, most: int) -> tuple[Floats, Numbers]:
        """The best continuations of each row; what the rules do not allow is infinitely bad."""
        length = self.sequences.shape[-1]
        if self.rules.forced_end is not None and length == self.rules.max_length - 1:
            return self._forced(self.scores.size, most, self.rules.forced_end)
        banned = [*self.rules.banned, *([self.rules.end] if length < self.rules.min_length else [])]
        proposal = self.propose(step, most + len(banned))
        scores, tokens = proposal.scores.cpu().numpy(), proposal.tokens.cpu().numpy()
        if banned and self.rules.renormalize:
            scores = scores - self._share_left(step.following, proposal, banned)
        for token in banned:
            scores = np.where(tokens == token, np.float32(-np.inf), scores)
        return scores, tokens

    def _share_left(self, following: NextTokens, proposal: Proposal, banned: list[int]) -> Floats:
        """The logarithm of what tokens that are not banned have together, [rows, 1]."""
        never = torch.tensor(banned, device=self.device).expand(len(proposal.scores), -1)
        lost = (following.at(never) + proposal.discount).exp().sum(dim=-1, keepdim=True)
        left: Floats = torch.log1p(-lost).cpu().numpy()
        return left

    def _forced(self, rows: int, most: int, token: int) -> tuple[Floats, Numbers]:
        """One token and no other."""
        scores = np.full((rows, most), -np.inf, np.float32)
        scores[:, 0] = 0.0
        return scores, np.full((rows, most), token)

    def _set_aside(self, scores: Floats, parents: Numbers, tokens: Numbers, ended: NDArray[np.bool_]) -> None:
        prefix = len(self.model.decoder_prefix)
        length = self.sequences.shape[-1]  # of the new hypothesis without the start token, as `generate` counts
        for row, place in zip(*np.nonzero(ended), strict=True):
            before = self.sequences[row, parents[row, place], prefix:].tolist()
            finished = self.finished[self.active[row]]
            finished.add(float(scores[row, place]), [*before, int(tokens[row, place])], length)

    def _keep_running(self, parents: Numbers, length: int) -> None:
        """Drop the sentences that are done, and bring the caches in line with the beams that go on."""
        runs = np.array(
            [
                length < self.rules.max_length and not self.finished[sentence].cannot_improve(best, length - 1)
                for sentence, best in zip(self.active, self.scores[:, 0].tolist(), strict=True)
            ]
        )
        stay = np.flatnonzero(runs)
        rows = (stay[:, None] * self.rules.beam + parents[stay]).reshape(-1)
        all_stay = len(stay) == len(runs)
        if not all_stay:
            self.active, self.scores, self.sequences = self.active[stay], self.scores[stay], self.sequences[stay]
        moved = not all_stay or not np.array_equal(rows, np.arange(len(rows)))
        if len(stay) and moved:
            self.stepper.keep(None if all_stay else self._tensor(stay), self._tensor(rows))


def best_of(scores: Floats, most: int) -> tuple[Floats, Numbers]:
    """The largest of each row, at most so many, largest first, and where they are."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :most]
    return picked(scores, order), order
