"""Beam search with the same result as `generate`, token for token, and less work.

Finished sentences leave the batch. Only the best few continuations of each beam are scored. Neighbours are mixed in at
their own tokens only.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.arrays import picked
from knnmt.engine.projection import NextTokens, Ranking
from knnmt.engine.stepping import Step, Stepper
from knnmt.models.translation_model import TranslationModel

log = logging.getLogger(__name__)

# Settings of `generate` that this search follows.
FOLLOWED = {
    "bad_words_ids", "bos_token_id", "decoder_start_token_id", "early_stopping", "eos_token_id", "forced_bos_token_id",
    "forced_eos_token_id", "length_penalty", "max_length", "min_length", "num_beams", "pad_token_id",
    "renormalize_logits", "suppress_tokens",
}  # fmt: skip
# Settings that cannot change which tokens beam search chooses: how to compute, what else to return, how to sample.
WITHOUT_EFFECT = {
    "_from_model_config", "cache_config", "cache_implementation", "compile_config", "disable_compile", "epsilon_cutoff",
    "eta_cutoff", "is_encoder_decoder", "low_memory", "max_cache_len", "min_p", "output_attentions",
    "output_hidden_states", "output_logits", "output_scores", "prefill_chunk_size", "return_dict_in_generate",
    "temperature", "top_h", "top_k", "top_p", "transformers_version", "typical_p", "use_cache",
}  # fmt: skip
# Values with which any other setting asks for nothing.
NEUTRAL = {
    "do_sample": (False,), "diversity_penalty": (0.0,), "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1.0,), "guidance_scale": (1.0,), "min_new_tokens": (0,),
    "no_repeat_ngram_size": (0,), "num_beam_groups": (1,), "num_return_sequences": (1,),
    "remove_invalid_values": (False,), "repetition_penalty": (1.0,), "token_healing": (False,),
}  # fmt: skip


Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]


class Proposal(NamedTuple):
    """The best continuations of each row, best first, as logarithms of probabilities."""

    scores: torch.Tensor  # [rows, most]
    tokens: torch.Tensor  # [rows, most]
    score: Callable[[torch.Tensor], torch.Tensor]  # of any given tokens [rows, n]: their scores [rows, n]


# From what the model's step gave, how many are wanted, and the number of each row's sentence in the batch, [rows].
Propose = Callable[[Step, int, torch.Tensor], Proposal]


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
    unfinished: bool = False  # the longest output ended it, not the model
    others: tuple[tuple[int, ...], ...] = ()  # tokens of the next best ones, best first


def rules_of(model: TranslationModel, beam: int) -> BeamRules | None:
    """The rules of the model; None if they contain something that only `generate` knows."""
    settings = model.network.generation_config
    bad_words = settings.bad_words_ids or []
    foreign = foreign_settings(settings.to_dict())
    if isinstance(settings.eos_token_id, list):
        foreign.append("eos_token_id")
    if any(len(word) > 1 for word in bad_words):
        foreign.append("bad_words_ids")
    if foreign:
        log.debug("decoding is left to generate: the model's generation config sets %s", ", ".join(foreign))
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


def foreign_settings(settings: dict[str, Any]) -> list[str]:
    """Names of the settings that this search does not know."""
    known = FOLLOWED | WITHOUT_EFFECT
    return [
        name
        for name, value in settings.items()
        if value is not None and name not in known and value not in NEUTRAL.get(name, ())
    ]


def longest_output(model: TranslationModel) -> int:
    """The model's limit of output tokens, with the start token; if it names none, its number of positions."""
    return int(model.network.generation_config.max_length or model.positions)


def propose_plainly(step: Step, most: int, _: torch.Tensor) -> Proposal:
    """The best continuations by the model alone."""
    return ranked_alone(step.following, step.following.rank(most))


def ranked_alone(following: NextTokens, ranking: Ranking) -> Proposal:
    return Proposal(ranking.logits - ranking.total, ranking.tokens, lambda tokens: following.at(tokens) - ranking.total)


class Finished:
    """The best hypotheses of one sentence so far, as many as there are beams."""

    def __init__(self, rules: BeamRules) -> None:
        self.rules = rules
        self.best: list[Hypothesis] = []

    def add(self, total: float, tokens: list[int], length: int, *, unfinished: bool = False) -> Hypothesis:
        new = Hypothesis(total / length**self.rules.length_penalty, total, tokens, unfinished)
        self.best.append(new)
        self.best.sort(key=lambda hypothesis: -hypothesis.score)
        del self.best[self.rules.beam :]
        return new

    def winner(self) -> Hypothesis:
        """The best hypothesis, together with the others as alternatives."""
        best, *others = self.best
        return replace(best, others=tuple(tuple(other.tokens) for other in others))

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
    """The search over one batch of sentences. Bookkeeping uses numpy, whose calls are cheaper than torch's."""

    def __init__(
        self,
        model: TranslationModel,
        rules: BeamRules,
        propose: Propose,
        *,
        aside: Propose | None = None,  # the same, for a question that no token depends on
        quick: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.model = model
        self.rules = rules
        self.propose, self.aside = propose, aside or propose
        self.stepper = Stepper(model, rules.beam, quick=quick, dtype=dtype)
        self.device = model.network.device

    @torch.inference_mode()
    def run(self, ids: torch.Tensor, mask: torch.Tensor) -> list[Hypothesis]:
        """The best output of each source, its tokens after the decoder's prefix; ids and mask are [sentences, time]."""
        self.finished = [Finished(self.rules) for _ in ids]
        self.active = np.arange(len(ids))  # numbers of the sentences still running
        # [sentences, beams, time]; at first all beams are one
        self.sequences = np.tile(np.array(self.model.decoder_prefix), (len(ids), 1, 1))
        self.scores = np.zeros((len(ids), 1), np.float32)  # [sentences, beams]
        self.forced: Step | None = None  # the last step, where the rules force a token upon all rows
        with self.stepper.attached():
            self._advance(self.stepper.begin(ids, mask))
            while len(self.active):
                self._advance(self.stepper.step(self._tensor(self.sequences[:, :, -1].reshape(-1))))
        return [finished.winner() for finished in self.finished]

    def _tensor(self, numbers: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(numbers).to(self.device)

    def _sentences(self) -> torch.Tensor:
        """The number of each row's sentence in the batch."""
        return self._tensor(np.repeat(self.active, self.scores.shape[1]))

    def _advance(self, step: Step) -> None:
        """One step: choose continuations, and set the finished ones aside."""
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
            return self._forced(step, most, self.rules.forced_end)
        banned = [*self.rules.banned, *([self.rules.end] if length < self.rules.min_length else [])]
        proposal = self.propose(step, most + len(banned), self._sentences())
        scores, tokens = proposal.scores.cpu().numpy(), proposal.tokens.cpu().numpy()
        if banned and self.rules.renormalize:
            scores = scores - self._share_left(proposal, banned)
        for token in banned:
            scores = np.where(tokens == token, np.float32(-np.inf), scores)
        return scores, tokens

    def _share_left(self, proposal: Proposal, banned: list[int]) -> Floats:
        """The logarithm of what tokens that are not banned have together, [rows, 1]."""
        never = torch.tensor(sorted(set(banned)), device=self.device).expand(len(proposal.scores), -1)
        lost = proposal.score(never).exp().sum(dim=-1, keepdim=True)
        left: Floats = torch.log1p(-lost).cpu().numpy()
        return left

    def _forced(self, step: Step, most: int, token: int) -> tuple[Floats, Numbers]:
        """One token and no other."""
        self.forced = step
        rows = self.scores.size
        scores = np.full((rows, most), -np.inf, np.float32)
        scores[:, 0] = 0.0
        return scores, np.full((rows, most), token)

    def _set_aside(self, scores: Floats, parents: Numbers, tokens: Numbers, ended: NDArray[np.bool_]) -> None:
        prefix, beams = len(self.model.decoder_prefix), self.scores.shape[1]
        length = self.sequences.shape[-1]  # of the new hypothesis without the start token, as `generate` counts
        forced: list[tuple[Finished, Hypothesis, int]] = []
        for row, place in zip(*np.nonzero(ended), strict=True):
            parent = parents[row, place]
            output = [*self.sequences[row, parent, prefix:].tolist(), int(tokens[row, place])]
            finished = self.finished[self.active[row]]
            ends = self.forced is None and output[-1] == self.rules.end
            hypothesis = finished.add(float(scores[row, place]), output, length, unfinished=not ends)
            forced.append((finished, hypothesis, row * beams + parent))
        if self.forced is not None:
            winners = [each for each in forced if each[0].best[0] is each[1] and each[1].tokens[-1] == self.rules.end]
            self._find_own_ends(self.forced, winners)

    def _find_own_ends(self, step: Step, winners: list[tuple[Finished, Hypothesis, int]]) -> None:
        """A best hypothesis is finished where the model would have ended it at this step by itself."""
        if not winners:
            return
        best = self.aside(step, 1, self._sentences()).tokens[:, 0].tolist()
        for finished, hypothesis, row in winners:
            finished.best[0] = replace(hypothesis, unfinished=best[row] != self.rules.end)

    def _keep_running(self, parents: Numbers, length: int) -> None:
        """Drop the finished sentences, and reorder the caches for the remaining beams."""
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
