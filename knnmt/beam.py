"""Beam search, token for token what `generate` does, without the work that it wastes.

Sentences that are done leave the batch; the encoder's keys are computed once a sentence and never reordered; only the
best few continuations of each beam are scored; neighbours are mixed in at their own tokens alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from transformers.modeling_outputs import BaseModelOutput

from knnmt.model import TranslationModel

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


Propose = Callable[[torch.Tensor, int], Proposal]  # from the step's logits [rows, vocabulary], and how many are wanted


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


def propose_plainly(logits: torch.Tensor, most: int) -> Proposal:
    """The model's own best continuations."""
    scores, tokens = logits.topk(most, dim=-1)
    discount = -logits.logsumexp(dim=-1, keepdim=True)
    return Proposal(scores + discount, tokens, discount)


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

    def __init__(self, model: TranslationModel, rules: BeamRules, propose: Propose) -> None:
        self.model = model
        self.rules = rules
        self.propose = propose

    @torch.inference_mode()
    def run(self, ids: torch.Tensor, mask: torch.Tensor) -> list[Hypothesis]:
        """The best output of each source, its tokens after the decoder's prefix; ids and mask are [sentences, time]."""
        self.cache: Any = None
        self.finished = [Finished(self.rules) for _ in ids]
        self.active = torch.arange(len(ids), device=ids.device)  # numbers of the sentences still running
        self._first_step(ids, mask)
        while len(self.active):
            logits = self._forward(self.last[:, None])
            self._advance(logits.reshape(len(self.active), self.rules.beam, -1))
        return [finished.best[0] for finished in self.finished]

    def _first_step(self, ids: torch.Tensor, mask: torch.Tensor) -> None:
        """All beams of a sentence are alike at first: run one row a sentence, then make the others of it."""
        prefix = torch.tensor([self.model.decoder_prefix] * len(ids), device=ids.device)
        self.mask = mask
        self.states = self.model.network.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
        self.sequences = prefix[:, None, :]  # [sentences, beams, time]
        self.scores = torch.zeros(len(ids), 1, device=ids.device)  # [sentences, beams]
        logits = self._forward(prefix)
        beam = self.rules.beam
        self.cache.batch_repeat_interleave(beam)
        self.mask, self.states = mask.repeat_interleave(beam, 0), self.states.repeat_interleave(beam, 0)
        self._advance(logits[:, None, :])

    def _forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits [rows, vocabulary] after the given decoder input [rows, time]."""
        output = self.model.network(
            encoder_outputs=BaseModelOutput(last_hidden_state=self.states),
            attention_mask=self.mask,
            decoder_input_ids=tokens,
            past_key_values=self.cache,
            use_cache=True,
        )
        self.cache = output.past_key_values
        logits: torch.Tensor = output.logits[:, -1, :]
        return logits

    def _advance(self, logits: torch.Tensor) -> None:
        """One step: choose continuations, set the finished ones aside, go on with the others."""
        beam, length = self.rules.beam, self.sequences.shape[-1] + 1
        scores, parents, tokens = self._continuations(logits, 2 * beam)
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

    def _continuations(self, logits: torch.Tensor, most: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The best over all beams of a sentence: scores, parent beams and tokens, each [sentences, most]."""
        sentences, _, vocabulary = logits.shape
        scores, tokens = self._allowed(logits.reshape(-1, vocabulary), min(most, vocabulary))
        most_of_row = scores.shape[-1]
        total = (self.scores.reshape(-1, 1) + scores).reshape(sentences, -1)
        best, at = total.topk(min(most, total.shape[-1]), dim=-1)
        return best, at // most_of_row, tokens.reshape(sentences, -1).gather(1, at)

    def _allowed(self, logits: torch.Tensor, most: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The best continuations of each row that the rules allow."""
        length = self.sequences.shape[-1]
        if self.rules.forced_end is not None and length == self.rules.max_length - 1:
            return self._forced(len(logits), most, self.rules.forced_end)
        banned = [*self.rules.banned, *([self.rules.end] if length < self.rules.min_length else [])]
        proposal = self.propose(logits.float(), min(most + len(banned), logits.shape[-1]))
        scores, tokens = proposal.scores, proposal.tokens
        if banned and self.rules.renormalize:
            lost = (logits[:, banned].float() + proposal.discount).exp().sum(dim=-1, keepdim=True)
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
        for row, rank in ended.nonzero().tolist():
            before = self.sequences[row, parents[row, rank], prefix:].tolist()
            finished = self.finished[int(self.active[row])]
            finished.add(float(scores[row, rank]), [*before, int(tokens[row, rank])], length)

    def _keep_running(self, parents: torch.Tensor, length: int) -> None:
        """Drop the sentences that are done, and bring the caches in line with the beams that go on."""
        done = [
            length >= self.rules.max_length or self.finished[sentence].cannot_improve(best, length - 1)
            for sentence, best in zip(self.active.tolist(), self.scores[:, 0].tolist(), strict=True)
        ]
        device, beam = parents.device, self.rules.beam
        stay = torch.tensor([row for row, over in enumerate(done) if not over], dtype=torch.long, device=device)
        rows = (torch.arange(len(done), device=device)[:, None] * beam + parents)[stay].reshape(-1)
        if len(stay) < len(done):
            self._select_sentences(stay)
        if len(rows) and not torch.equal(rows, torch.arange(len(done) * beam, device=device)):
            self.cache.self_attention_cache.reorder_cache(rows)
        self.last = self.sequences[:, :, -1].reshape(-1)

    def _select_sentences(self, stay: torch.Tensor) -> None:
        beam = self.rules.beam
        rows = (stay[:, None] * beam + torch.arange(beam, device=stay.device)).reshape(-1)
        self.active, self.scores, self.sequences = self.active[stay], self.scores[stay], self.sequences[stay]
        self.mask, self.states = self.mask[rows], self.states[rows]
        for layer in self.cache.cross_attention_cache.layers:
            layer.keys, layer.values = layer.keys[rows], layer.values[rows]
