"""One step of a Marian decoder, by its own modules but without the layers of calls around them.

Marian models are what most people translate with, and small: what transformers does around a step of theirs takes as
long as the step. The encoder and the decoder's first pass are left to transformers; here begins what is done again for
every token.
"""

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from knnmt.keys import KEY_SITES
from knnmt.model import TranslationModel

ROOM = 32  # tokens at first; doubled when full
TOLERANCE = 1e-3

_AGREES: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


class Past:
    """Keys and values of the tokens so far, side by side, [rows, time, 2 · dimension], in room for more."""

    def __init__(self, first: torch.Tensor) -> None:
        self.rows, self.time, width = first.shape
        self.room = first.new_empty(self.rows, max(ROOM, 2 * self.time), width)
        self.spare = torch.empty_like(self.room)
        self.room[:, : self.time] = first

    def append(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """All keys and all values, after those of one more token, each [rows, dimension]."""
        if self.time == self.room.shape[1]:
            self.room = torch.cat([self.room, torch.empty_like(self.room)], dim=1)
            self.spare = torch.empty_like(self.room)
        dimension = keys.shape[-1]
        self.room[: self.rows, self.time, :dimension] = keys
        self.room[: self.rows, self.time, dimension:] = values
        self.time += 1
        so_far = self.room[: self.rows, : self.time]
        return so_far[..., :dimension], so_far[..., dimension:]

    def keep(self, rows: torch.Tensor) -> None:
        kept = self.spare[: len(rows), : self.time]
        torch.index_select(self.room[:, : self.time], 0, rows, out=kept)
        self.rows, self.room, self.spare = len(rows), self.spare, self.room


class MarianDecoder:
    """The decoder after its first pass, which left a cache with one row for each sentence."""

    def __init__(self, network: Any, cache: Any, mask: torch.Tensor, *, beam: int = 1, trial: bool = False) -> None:
        """A trial makes that pass once more, and nobody who waits for keys hears of it."""
        self.decoder, self.trial = network.get_decoder(), trial
        self.heads = network.config.decoder_attention_heads
        self.sources = [(layer.keys, layer.values) for layer in cache.cross_attention_cache.layers]
        self.mask = None if bool(mask.all()) else mask.bool()[:, None, None]
        firsts = [side_by_side(layer)[:, : 0 if trial else None] for layer in cache.self_attention_cache.layers]
        self.pasts = [Past(first.repeat_interleave(beam, 0)) for first in firsts]

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """The states [rows, dimension] after one more token in each row."""
        decoder = self.decoder
        hidden = decoder.embed_tokens(tokens[:, None]) * decoder.embed_scale
        hidden = hidden + decoder.embed_positions.weight[self.pasts[0].time]
        for layer, past, source in zip(decoder.layers, self.pasts, self.sources, strict=True):
            hidden = layer.self_attn_layer_norm(hidden + self.attend_to_past(layer.self_attn, hidden, past))
            hidden = layer.encoder_attn_layer_norm(hidden + self.attend_to_source(layer.encoder_attn, hidden, source))
            widen = layer.fc1.forward if self.trial else layer.fc1  # only a module that is called tells its hooks
            hidden = layer.final_layer_norm(hidden + layer.fc2(layer.activation_fn(widen(hidden))))
        states: torch.Tensor = hidden[:, 0]
        return states

    def attend_to_past(self, attention: Any, hidden: torch.Tensor, past: Past) -> torch.Tensor:
        keys, values = past.append(attention.k_proj(hidden)[:, 0], attention.v_proj(hidden)[:, 0])
        attended = scaled_dot_product_attention(
            self.in_heads(attention.q_proj(hidden)), self.in_heads(keys), self.in_heads(values)
        )
        mixed: torch.Tensor = attention.out_proj(attended.reshape(hidden.shape))
        return mixed

    def attend_to_source(
        self, attention: Any, hidden: torch.Tensor, source: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        """The beams of a sentence, which share its keys, are a sequence here."""
        query = attention.q_proj(hidden).view(len(source[0]), -1, hidden.shape[-1])
        attended = scaled_dot_product_attention(self.in_heads(query), *source, attn_mask=self.mask)
        mixed: torch.Tensor = attention.out_proj(attended.transpose(1, 2).reshape(hidden.shape))
        return mixed

    def in_heads(self, states: torch.Tensor) -> torch.Tensor:
        """[n, time, dimension] → [n, heads, time, dimension / heads]"""
        return states.view(*states.shape[:2], self.heads, -1).transpose(1, 2)

    def keep(self, sentences: torch.Tensor | None, rows: torch.Tensor | None) -> None:
        """Go on with some sentences and some rows; None: all as they are."""
        if sentences is not None:
            self.sources = [(keys[sentences], values[sentences]) for keys, values in self.sources]
            self.mask = None if self.mask is None else self.mask[sentences]
        if rows is not None:
            for past in self.pasts:
                past.keep(rows)


def side_by_side(layer: Any) -> torch.Tensor:
    """A cache's keys and values [n, heads, time, …] as [n, time, 2 · dimension]."""
    return torch.cat([part.transpose(1, 2).flatten(2) for part in (layer.keys, layer.values)], dim=-1)


def decodes_directly(
    model: TranslationModel, cache: Any, mask: torch.Tensor, prefix: torch.Tensor, states: torch.Tensor
) -> bool:
    """Whether the decoder is one that is known here, and gives for the prefix [sentences, time] the states it gave."""
    network = model.network
    if network.config.model_type != "marian" or network.training or model.key_site != KEY_SITES["marian"]:
        return False
    if network not in _AGREES:
        begun = MarianDecoder(network, cache, mask, trial=True)
        found = torch.stack([begun.step(tokens) for tokens in prefix.T], dim=1)
        _AGREES[network] = torch.allclose(found, states, rtol=TOLERANCE, atol=TOLERANCE)
    return _AGREES[network]
