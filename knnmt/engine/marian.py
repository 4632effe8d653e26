"""Runs a Marian model step by step by its own modules, without the calls of transformers around them.

Marian models are small and widely used. The calls around a step take as long as the step itself. Here the queries, keys
and values of self-attention are one product, and so are the keys and values of a source.
"""

from collections.abc import Callable
from typing import Any
from weakref import ReferenceType, ref

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from knnmt.engine.decoder import Passed
from knnmt.engine.keys import catching_keys
from knnmt.engine.packed_copies import Layers
from knnmt.engine.packed_layers import is_watched
from knnmt.engine.runtime import Judged, runtime_of
from knnmt.models.architectures import architecture_of
from knnmt.models.translation_model import TranslationModel
from knnmt.switches import left_out

ROOM, FEWER = 128, 32  # tokens at first, doubled when full; fewer where memory is taken before it is touched
TOLERANCE = 1e-3

Product = Callable[[torch.Tensor], torch.Tensor]


class Past:
    """Keys and values of the tokens so far, side by side, [time, rows, 2 · dimension], in room for more.

    Time comes first, so that room which is not used yet is not touched: fresh memory is dear.
    """

    def __init__(self, rows: int, like: torch.Tensor) -> None:
        self.rows, self.time = rows, 0
        self.room = like.new_empty(ROOM if like.device.type == "cpu" else FEWER, rows, like.shape[-1])

    def append(self, last: torch.Tensor) -> torch.Tensor:
        """All of them, [rows, time, 2 · dimension], after those of one more token, [rows, 2 · dimension]."""
        if self.time == self.room.shape[0]:
            self.room, full = self.room.new_empty(2 * self.time, self.rows, self.room.shape[-1]), self.room
            self.room[: self.time] = full[:, : self.rows]  # the others have left
        self.room[self.time, : self.rows] = last
        self.time += 1
        return self.room[: self.time, : self.rows].transpose(0, 1)

    def keep(self, rows: torch.Tensor, spare: torch.Tensor) -> torch.Tensor:
        """Some rows, written into spare room if there is enough; what was the room until now is spare then."""
        wanted, (time, _, dimension) = rows.shape[0], self.room.shape
        if spare.shape[0] < time or spare.shape[1] < wanted:
            spare = self.room.new_empty(time, wanted, dimension)
        torch.index_select(self.room[: self.time, : self.rows], 1, rows, out=spare[: self.time, :wanted])
        self.rows, self.room, spare = wanted, spare, self.room
        return spare


def encode(network: Any, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The encoder's states [sentences, time, dimension] of sources [sentences, time]."""
    encoder, heads = network.get_encoder(), network.config.encoder_attention_heads
    hidden: torch.Tensor = encoder.embed_tokens(ids) * encoder.embed_scale
    hidden = hidden + encoder.embed_positions.weight[: ids.shape[1]]
    shown = padding_hidden(mask, hidden.dtype)
    for layer in encoder.layers:
        states = joint(network, attention_of(layer.self_attn, "qkv"))(hidden)
        query, keys, values = states.view(*ids.shape, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind()
        attended = scaled_dot_product_attention(query, keys, values, attn_mask=shown)
        hidden = layer.self_attn_layer_norm(hidden + layer.self_attn.out_proj(attended.transpose(1, 2).flatten(2)))
        hidden = layer.final_layer_norm(hidden + layer.fc2(layer.activation_fn(layer.fc1(hidden))))
    return hidden


class MarianDecoder:
    """The decoder over encoded sources [sentences, time, dimension]: one row for each, or several after `spread`."""

    def __init__(self, network: Any, encoded: torch.Tensor, mask: torch.Tensor) -> None:
        self.decoder = network.get_decoder()
        self.heads = network.config.decoder_attention_heads
        self.layers = [DecoderLayer(network, layer) for layer in self.decoder.layers]
        sources = [joint(network, attention_of(layer.encoder_attn, "kv"))(encoded) for layer in self.decoder.layers]
        self.sources = [self.in_halves(source) for source in sources]
        self.mask = padding_hidden(mask, encoded.dtype)
        self.pasts = [Past(len(encoded), source) for source in sources]
        self.spare = encoded.new_empty(0, 0)  # room for what is kept, handed on from layer to layer

    def begin(self, prefix: torch.Tensor) -> Passed:
        """Run the decoder's prefix, [sentences, time]."""
        return [self.step(tokens) for tokens in prefix.T][-1]

    def spread(self, beam: int) -> None:
        """Continue with several rows for each sentence, all alike at first."""
        self.keep(None, torch.arange(self.pasts[0].rows, device=self.sources[0][0].device).repeat_interleave(beam))

    def step(self, tokens: torch.Tensor) -> Passed:
        """Run one more token in each row, [rows]; the last layer's feed-forward input is the key."""
        decoder = self.decoder
        hidden: torch.Tensor = decoder.embed_tokens(tokens) * decoder.embed_scale
        hidden = hidden + decoder.embed_positions.weight[self.pasts[0].time]
        key = hidden
        for layer, past, source in zip(self.layers, self.pasts, self.sources, strict=True):
            hidden = layer.after_past(hidden + layer.past_out(self.attend_to_past(layer.states(hidden), past)))
            key = layer.after_source(hidden + layer.source_out(self.attend_to_source(layer.query(hidden), source)))
            hidden = layer.after_all(key + layer.narrow(layer.activation(layer.widen(key))))
        return Passed(key, hidden)

    def attend_to_past(self, states: torch.Tensor, past: Past) -> torch.Tensor:
        """Queries, keys and values of one more token, [rows, 3 · dimension], are given."""
        dimension = states.shape[-1] // 3
        query = states[:, :dimension].view(states.shape[0], 1, self.heads, -1).transpose(1, 2)
        attended = scaled_dot_product_attention(query, *self.in_halves(past.append(states[:, dimension:])))
        return attended.reshape(-1, dimension)

    def attend_to_source(self, query: torch.Tensor, source: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """The beams of a sentence, which share its keys, are a sequence here."""
        sentences, _, _, width = source[0].shape
        beams = query.view(sentences, -1, self.heads, width).transpose(1, 2)
        attended = scaled_dot_product_attention(beams, *source, attn_mask=self.mask)
        return attended.transpose(1, 2).reshape(query.shape)

    def attention(self, tokens: torch.Tensor, layers: int | None = None) -> list[torch.Tensor]:
        """The attention of the first layers (None: of all) to the sources, each [sentences, heads, time, source time].

        All tokens [sentences, time] are given, so they are run at once, and only as far as the last wanted attention.
        """
        last = len(self.layers) if layers is None else layers
        decoder, found = self.decoder, list[torch.Tensor]()
        hidden: torch.Tensor = decoder.embed_tokens(tokens) * decoder.embed_scale
        hidden = hidden + decoder.embed_positions.weight[: tokens.shape[1]]
        for layer, (keys, values) in zip(self.layers[:last], self.sources[:last], strict=True):
            past = layer.states(hidden).view(*tokens.shape, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            query, past_keys, past_values = past.unbind()
            attended = scaled_dot_product_attention(query, past_keys, past_values, is_causal=True)
            hidden = layer.after_past(hidden + layer.past_out(attended.transpose(1, 2).flatten(2)))
            query = layer.query(hidden).view(*tokens.shape, self.heads, -1).transpose(1, 2)
            scores = query @ keys.transpose(2, 3) * query.shape[-1] ** -0.5
            found.append(torch.softmax(scores if self.mask is None else scores + self.mask, dim=-1))
            if len(found) < last:
                attended = (found[-1] @ values).transpose(1, 2).flatten(2)
                key = layer.after_source(hidden + layer.source_out(attended))
                hidden = layer.after_all(key + layer.narrow(layer.activation(layer.widen(key))))
        return found

    def in_halves(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values side by side, [n, time, 2 · dimension], → each [n, heads, time, dimension / heads]"""
        keys, values = states.view(*states.shape[:2], 2, self.heads, -1).permute(2, 0, 3, 1, 4).unbind()
        return keys, values

    def keep(self, sentences: torch.Tensor | None, rows: torch.Tensor) -> None:
        """Continue with some sentences (None: all) and some rows."""
        if sentences is not None:
            self.sources = [(keys[sentences], values[sentences]) for keys, values in self.sources]
            self.mask = None if self.mask is None else self.mask[sentences]
        for past in self.pasts:
            self.spare = past.keep(rows, self.spare)


class DecoderLayer:
    """The modules of one layer, looked up once: looking up attributes of modules is slow, and so are their calls."""

    def __init__(self, network: Any, layer: Any) -> None:
        past, source = layer.self_attn, layer.encoder_attn
        self.states, self.query = joint(network, attention_of(past, "qkv")), called(source.q_proj)
        self.past_out, self.after_past = called(past.out_proj), called(layer.self_attn_layer_norm)
        self.source_out, self.after_source = called(source.out_proj), called(layer.encoder_attn_layer_norm)
        self.widen, self.activation, self.narrow = called(layer.fc1), called(layer.activation_fn), called(layer.fc2)
        self.after_all = called(layer.final_layer_norm)


def called(module: Any) -> Product:
    """The forward function of a module, called without hooks: a network with hooks is not run directly."""
    return module.forward if isinstance(module, nn.Module) else module


def jointly_packed(network: Any) -> list[Layers]:
    """Groups of layers with one joint product: queries, keys and values of the past; keys and values of the source."""
    encoder, decoder = network.get_encoder().layers, network.get_decoder().layers
    past = [attention_of(layer.self_attn, "qkv") for layer in [*encoder, *decoder]]
    return [*past, *(attention_of(layer.encoder_attn, "kv") for layer in decoder)]


def attention_of(attention: Any, parts: str) -> Layers:
    return tuple(getattr(attention, f"{part}_proj") for part in parts)


def joint(network: Any, layers: Layers) -> Product:
    """The products of several layers, side by side; one product if they are packed together."""
    packed = runtime_of(network).packing.find(layers)
    if packed is not None:
        return packed.product
    return lambda states: torch.cat([layer(states) for layer in layers], dim=-1)


def padding_hidden(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor | None:
    """What hides padding, 0 in a mask [sentences, time], when added to attention's scores; None where there is none."""
    if bool(mask.all()):
        return None
    return mask.new_zeros(mask.shape, dtype=dtype).masked_fill(mask == 0, -torch.inf)[:, None, None]


def objection_to_direct(model: TranslationModel) -> str | None:
    """Why the model cannot be run directly; None if it is a Marian model without hooks and gives the same result.

    The last is tried once, and again when other modules have been put into it.
    """
    network = model.network
    modules = list(network.modules())
    objections = {
        "KNNMT_PLAIN": left_out("direct"),
        "the network is in training": network.training,
        "its keys are taken elsewhere": model.key_site != architecture_of(network).key_site,
        "somebody watches its modules": any(is_watched(module) for module in modules),
    }
    found = next((why for why, holds in objections.items() if holds), None)
    return found or judged(model, [ref(module) for module in modules])


def judged(model: TranslationModel, modules: list[ReferenceType[nn.Module]]) -> str | None:
    runtime = runtime_of(model.network)
    if runtime.judged is None or runtime.judged.modules != modules:
        same = gives_the_same(model.network, model, lambda *sources: MarianDecoder(model.network, *sources))
        runtime.judged = Judged(modules, None if same else "it does not give what the network gives")
    return runtime.judged.objection


@torch.inference_mode()
def gives_the_same(network: Any, model: TranslationModel, decoder_of: Callable[..., Any]) -> bool:
    """Whether decoders over encoded sources and their mask do what the network's does.

    On sources of unequal length, and after more than one token, so that all of attention matters."""
    end, start, device = model.end_token, model.decoder_prefix[0], network.device
    ids = torch.tensor([[end, start, end], [start, end, model.padding]], device=device)
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]], device=device)
    targets = torch.tensor([[start, end, start]] * 2, device=device)
    encoded = network.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
    asked = {"encoder_hidden_states": encoded, "encoder_attention_mask": mask}
    with catching_keys(network, model.key_site) as catch:
        expected = network.get_decoder()(input_ids=targets, **asked).last_hidden_state
    try:
        decoder = decoder_of(encode(network, ids, mask), mask)
        found = [decoder.step(tokens) for tokens in targets.T]
    except (AttributeError, RuntimeError):  # built in another way than Marian models are
        return False
    return all(
        torch.allclose(torch.stack(ours, dim=1), theirs, rtol=TOLERANCE, atol=TOLERANCE)
        for ours, theirs in (([one.keys for one in found], catch.keys), ([one.states for one in found], expected))
    )
