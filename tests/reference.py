"""kNN-MT by brute force: the method of Khandelwal et al. (ICLR 2021) for Marian models, in one plain file.

The package is measured against this file, so nothing is shared with it: the keys of one pair at a time, all
of them in one array, every query compared with every key, and a beam search written out by hand. The beam search
means what `generate` of transformers means by its defaults (length penalty 1, `early_stopping=False`).
"""

import gzip
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import sacrebleu
import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, DynamicCache, EncoderDecoderCache

LONGEST = 512  # tokens; a pair with a longer side is skipped
GROUP = 50  # sentences decoded together
BLOCK = 32_768  # keys compared at once


@dataclass(frozen=True)
class Datastore:
    """One entry for each target token of the training text: a decoder state and the token that followed it."""

    keys: np.ndarray  # (entries, dimension), float16
    values: Tensor  # (entries,)
    skipped: int = 0  # pairs that gave no entries


@dataclass(frozen=True)
class Settings:
    """How to decode; with weight 0 the datastore is never asked."""

    beam: int = 5
    k: int = 16
    temperature: float = 10.0
    weight: float = 0.0


@dataclass
class Sentence:
    """The beam of one source sentence; scores are sums of log p, of finished hypotheses divided by their length."""

    running: list[tuple[float, list[int]]]
    finished: list[tuple[float, list[int]]] = field(default_factory=list)


class Reference:
    """A Marian model folder that builds datastores and translates with them."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
        config = self.model.config
        self.start, self.end, self.pad = config.decoder_start_token_id, config.eos_token_id, config.pad_token_id
        # Counts the start token. A generation config without it means 20 to transformers, which would cut sentences.
        self.max_length = self.model.generation_config.max_length or config.max_position_embeddings
        self.state: Tensor  # (batch, length, dimension): what the last feed-forward block was given in the last pass
        self.model.model.decoder.layers[-1].fc1.register_forward_pre_hook(self._remember)

    def _remember(self, _module: torch.nn.Module, inputs: tuple[Tensor]) -> None:
        self.state = inputs[0]

    @torch.inference_mode()
    def build(self, sources: list[str], targets: list[str]) -> Datastore:
        """One teacher-forced pass over each pair; every target token, the end of sentence too, gives an entry."""
        keys, values = [], []
        for source, target in zip(sources, targets, strict=True):
            if not source.strip() or not target.strip():
                continue
            source_ids = self.tokenizer(source).input_ids
            target_ids = self.tokenizer(text_target=target).input_ids
            if max(len(source_ids), len(target_ids)) > LONGEST:
                continue
            self.model.model(
                input_ids=torch.tensor([source_ids]),
                decoder_input_ids=torch.tensor([[self.start, *target_ids[:-1]]]),
            )
            keys.append(self.state[0].half().numpy())
            values.append(torch.tensor(target_ids))
        return Datastore(np.concatenate(keys), torch.cat(values), len(sources) - len(keys))

    def translate(self, sentences: list[str], settings: Settings, store: Datastore | None = None) -> list[str]:
        """Translations in the order of the sentences; neighbours in the list are decoded together."""
        search = Search(store, settings) if store is not None and settings.weight > 0 else None
        translations = []
        for first in range(0, len(sentences), GROUP):
            group = self.decode(sentences[first : first + GROUP], settings, search)
            translations += [self.tokenizer.decode(tokens, skip_special_tokens=True) for tokens in group]
        return translations

    @torch.inference_mode()
    def decode(self, sentences: list[str], settings: Settings, search: "Search | None" = None) -> list[list[int]]:
        """Beam search: the tokens of the best hypothesis for each sentence, the end of sentence included."""
        beam = settings.beam
        batch = self.tokenizer(sentences, return_tensors="pt", padding=True)
        encoded = self.model.model.encoder(**batch).last_hidden_state.repeat_interleave(beam, dim=0)
        mask = batch.attention_mask.repeat_interleave(beam, dim=0)
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        # All but the first hypothesis start hopeless, so that a beam does not hold the same one five times.
        results = [Sentence([(0.0 if i == 0 else -1e9, []) for i in range(beam)]) for _ in sentences]
        active = results
        for length in range(1, self.max_length):
            last = [[tokens[-1] if tokens else self.start] for sentence in active for _, tokens in sentence.running]
            logits = self.model(
                encoder_outputs=(encoded,),
                attention_mask=mask,
                decoder_input_ids=torch.tensor(last),
                past_key_values=cache,
                use_cache=True,
            ).logits[:, -1]  # (active · beam, vocabulary)
            log_p = mixed_log_p(logits, self.state[:, -1], search)
            log_p[:, self.pad] = -torch.inf
            if length == self.max_length - 1:  # the last token there is room for ends the sentence
                log_p[:] = -torch.inf
                log_p[:, self.end] = 0.0
            rows, remaining = [], []
            for number, sentence in enumerate(active):
                first = number * beam
                chosen = self._advance(sentence, log_p[first : first + beam], length)
                if not is_done(sentence, beam, length):
                    rows += [first + row for row in chosen]
                    remaining.append(sentence)
            active = remaining
            if not active or length == self.max_length - 1:
                break
            kept = torch.tensor(rows)
            encoded, mask = encoded[kept], mask[kept]
            cache.reorder_cache(kept)
        return [max(sentence.finished, key=lambda hypothesis: hypothesis[0])[1] for sentence in results]

    def _advance(self, sentence: Sentence, log_p: Tensor, length: int) -> list[int]:
        """Extend the beam by one token; returns the row of the old beam that each new hypothesis continues."""
        beam, vocabulary = log_p.shape
        scores = log_p + torch.tensor([score for score, _ in sentence.running])[:, None]
        best = scores.flatten().topk(2 * beam)
        running, rows = [], []
        for rank, (score, place) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
            row, token = divmod(place, vocabulary)
            hypothesis = [*sentence.running[row][1], token]
            if token != self.end:
                running.append((score, hypothesis))
                rows.append(row)
            elif rank < beam:  # an end among the second best is dropped: those are there to refill the beam
                sentence.finished.append((score / length, hypothesis))
        sentence.running = running[:beam]
        sentence.finished = sorted(sentence.finished, key=lambda hypothesis: -hypothesis[0])[:beam]
        return rows[:beam]


def is_done(sentence: Sentence, beam: int, length: int) -> bool:
    """Whether the best running hypothesis, at its present length, would not displace any finished one."""
    return len(sentence.finished) == beam and sentence.running[0][0] / length <= sentence.finished[-1][0]


def mixed_log_p(logits: Tensor, queries: Tensor, search: "Search | None") -> Tensor:
    """log(weight · p_knn + (1 − weight) · p_model), of shape (queries, vocabulary)."""
    if search is None:
        return logits.log_softmax(dim=-1)
    weight = search.settings.weight
    distances, values = search.nearest(queries)
    p_knn = torch.zeros_like(logits).scatter_add_(1, values, (-distances / search.settings.temperature).softmax(dim=-1))
    return (weight * p_knn + (1 - weight) * logits.softmax(dim=-1)).log()


class Search:
    """Exhaustive search of a datastore, in float32."""

    def __init__(self, store: Datastore, settings: Settings) -> None:
        self.keys = torch.from_numpy(store.keys).float()
        self.norms = self.keys.square().sum(dim=1)
        self.values = store.values
        self.settings = settings

    def nearest(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Squared distances and values of the k nearest entries, each of shape (queries, k)."""
        k = self.settings.k
        distances, entries = [], []
        for first in range(0, len(self.keys), BLOCK):
            block = slice(first, first + BLOCK)
            partial = torch.addmm(self.norms[block], queries, self.keys[block].T, alpha=-2)  # ‖key‖² − 2 query·key
            best = partial.topk(min(k, partial.shape[1]), dim=1, largest=False)
            distances.append(best.values)
            entries.append(best.indices + first)
        nearest = torch.cat(distances, dim=1).topk(k, dim=1, largest=False)
        numbers = torch.cat(entries, dim=1).gather(1, nearest.indices)
        return nearest.values + queries.square().sum(dim=1, keepdim=True), self.values[numbers]


def read_lines(path: Path, limit: int | None = None) -> list[str]:
    """The first lines of a UTF-8 text, which may be gzipped."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="\n") as lines:
        return [line.rstrip("\r\n") for line in islice(lines, limit)]


def bleu(translations: list[str], references: list[str]) -> float:
    """sacreBLEU with its defaults, which suit English."""
    return float(sacrebleu.corpus_bleu(translations, [references]).score)
