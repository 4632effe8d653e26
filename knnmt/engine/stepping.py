"""A decoder run step by step over the beams of some sentences, without the work that all beams share.

The encoder runs once; each sentence's cross-attention keys are kept once and all its beams attend to them together; the
network stops before its projection, which is done here for the last token alone.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutput

from knnmt.engine.bytewise import has_bytes
from knnmt.engine.marian import MarianDecoder, can_be_direct, encode, jointly_packed
from knnmt.engine.packed import packed_layers
from knnmt.engine.projection import AllLogits, NextTokens, Projection, projection_version
from knnmt.models.translation_model import TranslationModel

CROSS_ATTENTION = "encoder_attn"  # as BART and all that descend from it call it
SHARING = ("bart", "m2m_100", "marian", "mbart", "pegasus")  # FSMT and T5 have attention of their own kinds
CHECKED = 8  # best tokens of each sentence's first step, by which our projection is compared with the model's
TOLERANCE = 1e-3

_PROJECTIONS: WeakKeyDictionary[nn.Module, Projection] = WeakKeyDictionary()


class ProjectionReached(Exception):  # noqa: N818 - not an error: it ends a forward pass that has given what was wanted
    pass


class Stepper:
    """The decoder's state over a batch of sentences: one row each at first, then one for each beam.

    With `quick`, logits that cannot matter may be a little off.
    """

    def __init__(self, model: TranslationModel, beam: int, *, quick: bool) -> None:
        self.model, self.beam = model, beam
        self.network = model.network
        self.quick = quick and has_bytes(self.network.device)
        self.shares = self.network.config.model_type in SHARING
        self.projection: Projection | None = None
        self.is_direct = False
        self.direct: MarianDecoder | None = None
        self.states = torch.empty(0)  # what the network's projection was given last, [rows, time, dimension]
        self.spread_out = False

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Inside, the network's passes are this stepper's."""
        with ExitStack() as hooks:
            self.is_direct = can_be_direct(self.model)
            jointly = jointly_packed(self.network) if self.is_direct else []
            hooks.enter_context(packed_layers(self.network, without=jointly))
            for handle in self.hooks():
                hooks.callback(handle.remove)
            yield

    def hooks(self) -> Iterator[Any]:
        head = self.network.get_output_embeddings()
        if isinstance(head, nn.Linear):
            yield head.register_forward_pre_hook(self.catch_states)
        if not self.shares:
            return
        for name, module in self.network.get_decoder().named_modules():
            if name.endswith(CROSS_ATTENTION):
                yield module.register_forward_pre_hook(self.beams_as_time, with_kwargs=True)
                yield module.register_forward_hook(self.beams_as_rows)

    def begin(self, ids: torch.Tensor, mask: torch.Tensor) -> NextTokens:
        """Encode sources [sentences, time]; what may follow the decoder's prefix."""
        prefix = torch.tensor([self.model.decoder_prefix] * len(ids), device=ids.device)
        self.projection = known_projection(self.network) if self.is_direct else None
        known = self.projection is not None
        logits = None if known else self.begin_by_network(ids, mask, prefix)
        if self.is_direct and self.projection:
            self.direct = MarianDecoder(self.network, encode(self.network, ids, mask), mask)
            self.states = self.direct.begin(prefix, silently=not known)
            self.direct.spread(self.beam)
        else:
            self.spread_beams()
        return self.next_tokens(self.states[:, -1]) if logits is None or self.projection else logits

    def begin_by_network(self, ids: torch.Tensor, mask: torch.Tensor, prefix: torch.Tensor) -> NextTokens:
        """By the network's own first pass, with which our projection is compared."""
        self.mask = mask
        self.encoded = self.network.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
        output = self.run(prefix, None)
        self.cache = output.past_key_values
        logits = AllLogits(output.logits[:, -1])
        self.projection = checked_projection(self.network, self.states, logits)
        return logits

    def spread_beams(self) -> None:
        """All beams of a sentence are alike at first: make them of its one row."""
        self.cache.self_attention_cache.batch_repeat_interleave(self.beam)
        if not self.shares:
            self.cache.cross_attention_cache.batch_repeat_interleave(self.beam)
        self.mask = self.mask.repeat_interleave(self.beam, 0)
        self.spread_out = True

    def step(self, tokens: torch.Tensor) -> NextTokens:
        """What may follow after one more token in each row, [rows]."""
        if self.projection is None:
            return AllLogits(self.run(tokens[:, None], self.cache).logits[:, -1])
        return self.next_tokens(self.direct.step(tokens) if self.direct else self.states_after(tokens))

    def next_tokens(self, states: torch.Tensor) -> NextTokens:
        """After states [rows, dimension]."""
        assert self.projection is not None
        quick = self.quick and self.projection.is_large
        return self.projection.quickly(states) if quick else self.projection.exactly(states)

    def states_after(self, tokens: torch.Tensor) -> torch.Tensor:
        """By the network itself: what its projection would be given, [rows, dimension]."""
        try:
            self.run(tokens[:, None], self.cache)
        except ProjectionReached:
            return self.states[:, -1]
        raise AssertionError("the network ran past its projection")

    def run(self, tokens: torch.Tensor, cache: Any) -> Any:
        # After the first step only the shape of the encoder's states counts: their keys are in the cache.
        encoded = self.encoded[:1].expand(len(tokens), -1, -1) if self.spread_out else self.encoded
        return self.network(
            encoder_outputs=BaseModelOutput(last_hidden_state=encoded),
            attention_mask=self.mask,
            decoder_input_ids=tokens,
            past_key_values=cache,
            use_cache=True,
        )

    def keep(self, sentences: torch.Tensor | None, rows: torch.Tensor) -> None:
        """Go on with some sentences (None: all), whose beams continue the given rows."""
        if self.direct:
            self.direct.keep(sentences, rows)
            return
        if sentences is not None:
            self.keep_sentences(sentences)
        self.cache.self_attention_cache.reorder_cache(rows)

    def keep_sentences(self, sentences: torch.Tensor) -> None:
        beams = (sentences[:, None] * self.beam + torch.arange(self.beam, device=sentences.device)).reshape(-1)
        self.mask = self.mask[beams]
        for layer in self.cache.cross_attention_cache.layers:
            at = sentences if self.shares else beams
            layer.keys, layer.values = layer.keys[at], layer.values[at]

    # Hooks

    def catch_states(self, _: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        self.states = inputs[0]
        if self.projection is not None:
            raise ProjectionReached

    def beams_as_time(self, _: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Show cross-attention a sentence's beams as if they were a sequence: [rows, 1, …] → [sentences, beam, …]."""
        if not self.spread_out:
            return None
        hidden, rest = (inputs[0], inputs[1:]) if inputs else (named.pop("hidden_states"), ())
        if named.get("attention_mask") is not None:
            named["attention_mask"] = named["attention_mask"][:: self.beam]
        return (hidden.view(-1, self.beam, hidden.shape[-1]), *rest), named

    def beams_as_rows(self, _: nn.Module, __: Any, output: tuple[torch.Tensor, ...]) -> Any:
        if not self.spread_out:
            return None
        return (output[0].reshape(-1, 1, output[0].shape[-1]), *output[1:])


def checked_projection(network: Any, states: torch.Tensor, logits: AllLogits) -> Projection | None:
    """Our projection, if it gives the logits that the network's own gave for the same states; else None."""
    head = network.get_output_embeddings()
    if not isinstance(head, nn.Linear) or not states.numel() or head.weight.dtype != torch.float32:
        return None
    projection = known_projection(network)
    if projection is None:
        projection = _PROJECTIONS[network] = Projection(head.weight, bias_of(network, head))
    expected = logits.rank(CHECKED)
    found = projection.at(states[:, -1], expected.tokens)
    return projection if torch.allclose(found, expected.logits, rtol=TOLERANCE, atol=TOLERANCE) else None


def known_projection(network: Any) -> Projection | None:
    """The one that was made of the weights that the network has now."""
    projection, head = _PROJECTIONS.get(network), network.get_output_embeddings()
    if projection is None or projection.version != projection_version(head.weight, bias_of(network, head)):
        return None
    return projection


def bias_of(network: Any, head: nn.Linear) -> torch.Tensor | None:
    """What is added to the logits, by the layer itself or after it."""
    after: torch.Tensor | None = getattr(network, "final_logits_bias", None)
    if after is None or head.bias is None:
        return head.bias if after is None else after
    return after + head.bias
