"""Any Hugging Face network as a decoder, run by its own forward pass.

If the architecture allows it, the cross-attention keys of a sentence are stored once and all its beams attend to them.
Once our projection has been shown to equal the network's, the forward pass stops before the network's own projection.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutput

from knnmt.engine.decoder import Passed
from knnmt.engine.keys import catching_keys
from knnmt.models.translation_model import TranslationModel

CROSS_ATTENTION = "encoder_attn"  # as BART and all that descend from it call it


class ProjectionReached(Exception):  # noqa: N818 - not an error: it ends a forward pass that has given what was wanted
    pass


class NetworkDecoder:
    """The network's own decoder over a batch of sentences. Use it inside `attached`."""

    def __init__(self, model: TranslationModel, *, shares: bool) -> None:
        self.network, self.site = model.network, model.key_site
        self.shares = shares  # whether a sentence's beams share its cross-attention keys
        self.stops = False  # whether a pass ends before the network's projection
        self.beam = 1
        self.runs = False  # whether the pass that hooks see is this decoder's
        self.states = torch.empty(0)  # what the network's projection was given last, [rows, time, dimension]

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Inside, hooks on the network give this decoder its keys and states."""
        with ExitStack() as hooks:
            self.catch = hooks.enter_context(catching_keys(self.network, self.site))
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

    def encode(self, ids: torch.Tensor, mask: torch.Tensor) -> None:
        """Take sources [sentences, time]."""
        self.mask = mask
        self.encoded = self.network.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state

    def begin(self, prefix: torch.Tensor) -> Passed:
        """Run the prefix to the very end, so that there are logits to compare a projection with."""
        output = self.run(prefix, None)
        self.cache = output.past_key_values
        return self.passed(output.logits[:, -1])

    def spread(self, beam: int) -> None:
        """Continue with several rows for each sentence, all alike at first."""
        self.cache.self_attention_cache.batch_repeat_interleave(beam)
        if not self.shares:
            self.cache.cross_attention_cache.batch_repeat_interleave(beam)
        self.mask = self.mask.repeat_interleave(beam, 0)
        # From now on only the shape of the encoder's states counts: their keys are in the cache.
        self.encoded, self.beam = self.encoded[:1], beam

    def step(self, tokens: torch.Tensor) -> Passed:
        """Run one more token in each row, [rows]."""
        try:
            return self.passed(self.run(tokens[:, None], self.cache).logits[:, -1])
        except ProjectionReached:
            return self.passed(None)

    def passed(self, logits: torch.Tensor | None) -> Passed:
        states = self.states[:, -1] if self.states.numel() else self.states
        return Passed(self.catch.keys[:, -1], states, logits)

    def run(self, tokens: torch.Tensor, cache: Any) -> Any:
        encoded = self.encoded.expand(len(tokens), -1, -1) if len(self.encoded) == 1 else self.encoded
        with self.running():
            return self.network(
                encoder_outputs=BaseModelOutput(last_hidden_state=encoded),
                attention_mask=self.mask,
                decoder_input_ids=tokens,
                past_key_values=cache,
                use_cache=True,
            )

    @contextmanager
    def running(self) -> Iterator[None]:
        """Inside, what hooks see is a pass of this decoder."""
        self.runs = True
        try:
            yield
        finally:
            self.runs = False

    def keep(self, sentences: torch.Tensor | None, rows: torch.Tensor) -> None:
        """Continue with some sentences (None: all), whose beams continue the given rows."""
        if sentences is not None:
            self.keep_sentences(sentences)
        self.cache.self_attention_cache.reorder_cache(rows)

    def keep_sentences(self, sentences: torch.Tensor) -> None:
        beams = (sentences[:, None] * self.beam + torch.arange(self.beam, device=sentences.device)).reshape(-1)
        self.mask = self.mask[beams]
        for layer in self.cache.cross_attention_cache.layers:
            at = sentences if self.shares else beams
            layer.keys, layer.values = layer.keys[at], layer.values[at]

    # Hooks: two batches may be decoded in turn, each with a decoder of its own

    def catch_states(self, _: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        if not self.runs:
            return
        self.states = inputs[0]
        if self.stops:
            raise ProjectionReached

    def beams_as_time(self, _: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Gives cross-attention the beams of a sentence as if they were a sequence: [rows, 1, …] → [sentences, beam,
        …].
        """
        if self.beam == 1 or not self.runs:
            return None
        hidden, rest = (inputs[0], inputs[1:]) if inputs else (named.pop("hidden_states"), ())
        if named.get("attention_mask") is not None:
            named["attention_mask"] = named["attention_mask"][:: self.beam]
        return (hidden.view(-1, self.beam, hidden.shape[-1]), *rest), named

    def beams_as_rows(self, _: nn.Module, __: Any, output: tuple[torch.Tensor, ...]) -> Any:
        if self.beam == 1 or not self.runs:
            return None
        return (output[0].reshape(-1, 1, output[0].shape[-1]), *output[1:])
