"""Beam search, token for token what `generate` does, without the work that it wastes.

Sentences that are done leave the batch; only the best few continuations of each beam are scored; neighbours are mixed
in at their own tokens alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from knnmt.model import TranslationModel
from knnmt.projection import NextTokens
from knnmt.stepping import Stepper

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


class Proposal(NamedTuple):
    """The best continuations of each row, best first, as logarithms of probabilities."""

    scores: torch.Tensor  # [rows, most]
    tokens: torch.Tensor  # [rows, most]
    discount: torch.Tensor  # [rows, 1]: logit + discount is the score of any token that no neighbour speaks for


Propose = Callable[[NextTokens, int], Proposal]  # from the model's own next tokens, and how many are wanted


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


def propose_plainly(following: NextTokens, most: int) -> Proposal:
    """The model's own best continuations."""
    ranking = following.rank(most)
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
    """The search over one batch of sentences."""

    def __init__(self, model: TranslationModel, rules: BeamRules, propose: Propose, *, quick: bool = False) -> None:
        self.model = model
        self.rules = rules
        self.propose = propose
        self.stepper = Stepper(model, rules.beam, quick=quick)

    @torch.inference_mode()
    def run(self, ids: torch.Tensor, mask: torch.Tensor) -> list[Hypothesis]:
        """The best output of each source, its tokens after the decoder's prefix; ids and mask are [sentences, time]."""
        self.finished = [Finished(self.rules) for _ in ids]
        self.active = torch.arange(len(ids), device=ids.device)  # numbers of the sentences still running
        prefix = torch.tensor(self.model.decoder_prefix, device=ids.device)
        self.sequences = prefix.expand(len(ids), 1, -1)  # [sentences, beams, time]; at first all beams are one
        self.scores = torch.zeros(len(ids), 1, device=ids.device)  # [sentences, beams]
        with self.stepper.attached():
            self._advance(self.stepper.begin(ids, mask))
            while len(self.active):
                self._advance(self.stepper.step(self.sequences[:, :, -1].reshape(-1)))
        return [finished.best[0] for finished in self.finished]

    def _advance(self, following: NextTokens) -> None:
        """One step: choose continuations, set the finished ones aside, go on with the others."""
        beam, length = self.rules.beam, self.sequences.shape[-1] + 1
        scores, parents, tokens = self._continuations(following, 2 * beam)
        ended = tokens == self.rules.end
        if length >= self.rules.max_length:
            ended = torch.ones_like(ended)
        self._set_aside(scores[:, :beam], parents[:, :beam], tokens[:, :beam], ended[:, :beam])
        scores, order = (scores + ended * -1e9).topk(beam, dim=-1)
        self.scores = scores
        parents, tokens = parents.gather(1, order), tokens.gather(1, order)
        kept = self.sequences.gather(1, parents[:, :, None].expand(-1, -1, self.sequences.shape[-1]))
        self.sequences = torch.cat([kept, tokens[:, :, None]], dim=-1)
        self._keep_running(parents, length)

    def _continuations(self, following: NextTokens, most: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The best over all beams of a sentence: scores, parent beams and tokens, each [sentences, most]."""
        sentences = len(self.active)
        scores, tokens = self._allowed(following, most)
        most_of_row = scores.shape[-1]
        total = (self.scores.reshape(-1, 1) + scores).reshape(sentences, -1)
        best, at = total.topk(min(most, total.shape[-1]), dim=-1)
        return best, at // most_of_row, tokens.reshape(sentences, -1).gather(1, at)

    def _allowed(self, following: NextTokens, most: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The best continuations of each row that the rules allow."""
        length = self.sequences.shape[-1]
        if self.rules.forced_end is not None and length == self.rules.max_length - 1:
            return self._forced(self.scores.numel(), most, self.rules.forced_end)
        banned = [*self.rules.banned, *([self.rules.end] if length < self.rules.min_length else [])]
        proposal = self.propose(following, most + len(banned))
        scores, tokens = proposal.scores, proposal.tokens
        if banned and self.rules.renormalize:
            never = torch.tensor(banned, device=scores.device).expand(len(scores), -1)
            lost = (following.at(never) + proposal.discount).exp().sum(dim=-1, keepdim=True)
            scores = scores - torch.log1p(-lost)
        for token in banned:
            scores = scores.masked_fill(tokens == token, -torch.inf)
        scores, order = scores.topk(min(most, scores.shape[-1]), dim=-1)
        return scores, tokens.gather(1, order)

    def _forced(self, rows: int, most: int, token: int) -> tuple[torch.Tensor, torch.Tensor]:
        """One token and no other."""
        tokens = torch.full((rows, most), token, device=self.scores.device)
        scores = torch.full((rows, most), -torch.inf, device=self.scores.device)
        scores[:, 0] = 0.0
        return scores, tokens

    def _set_aside(
        self, scores: torch.Tensor, parents: torch.Tensor, tokens: torch.Tensor, ended: torch.Tensor
    ) -> None:
        prefix = len(self.model.decoder_prefix)
        length = self.sequences.shape[-1]  # of the new hypothesis without the start token, as `generate` counts
        for row, place in ended.nonzero().tolist():
            before = self.sequences[row, parents[row, place], prefix:].tolist()
            finished = self.finished[int(self.active[row])]
            finished.add(float(scores[row, place]), [*before, int(tokens[row, place])], length)

    def _keep_running(self, parents: torch.Tensor, length: int) -> None:
        """Drop the sentences that are done, and bring the caches in line with the beams that go on."""
        done = [
            length >= self.rules.max_length or self.finished[sentence].cannot_improve(best, length - 1)
            for sentence, best in zip(self.active.tolist(), self.scores[:, 0].tolist(), strict=True)
        ]
        device, beam = parents.device, self.rules.beam
        stay = torch.tensor([row for row, over in enumerate(done) if not over], dtype=torch.long, device=device)
        rows = (torch.arange(len(done), device=device)[:, None] * beam + parents)[stay].reshape(-1)
        all_stay = len(stay) == len(done)
        if not all_stay:
            self.active, self.scores, self.sequences = self.active[stay], self.scores[stay], self.sequences[stay]
        if len(stay):
            self.stepper.keep(None if all_stay else stay, rows)
