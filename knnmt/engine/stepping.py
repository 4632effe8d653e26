"""Runs a decoder step by step over the beams of some sentences. Each step returns keys and next tokens.

`Stepper.choose_paths` decides which fast paths run the network. The encoder runs once. The projection is computed here,
for the last token only.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import nn

from knnmt.engine.compiled import decoder_for
from knnmt.engine.decoder import Decoder, Passed
from knnmt.engine.int8 import has_bytes
from knnmt.engine.marian import encode, jointly_packed, objection_to_direct
from knnmt.engine.network_decoder import NetworkDecoder
from knnmt.engine.packed_layers import is_hooked, packed_layers
from knnmt.engine.projection import LARGE, AllLogits, NextTokens, Projection
from knnmt.engine.runtime import runtime_of
from knnmt.models.architectures import architecture_of
from knnmt.models.network import Network
from knnmt.models.translation_model import TranslationModel
from knnmt.packed_weights import WeightSums
from knnmt.switches import left_out

CHECKED = 8  # best tokens of each sentence's first step, by which our projection is compared with the model's
TOLERANCE = 1e-3


class Step(NamedTuple):
    """The result of one step for each row."""

    keys: torch.Tensor  # [rows, dimension]
    following: NextTokens


class Stepper:
    """The decoder's state over a batch of sentences: one row each at first, then one for each beam.

    With `quick`, logits that cannot matter may be a little off. `dtype` is the precision of the layers' products.
    """

    def __init__(self, model: TranslationModel, beam: int, *, quick: bool, dtype: torch.dtype = torch.float32) -> None:
        self.model, self.beam, self.dtype = model, beam, dtype
        self.network, self.runtime = model.network, runtime_of(model.network)
        self.wants_quick = quick
        self.by_network = NetworkDecoder(model, shares=architecture_of(model.network).shares_sources)
        self.decoder: Decoder = self.by_network
        self.projection: Projection | None = None
        self.may_project = self.is_direct = self.quick = False

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Inside, the network's passes are this stepper's."""
        with ExitStack() as hooks:
            if self.runtime.host is None:
                self.choose_paths()
                jointly = jointly_packed(self.network) if self.is_direct else []
                hooks.enter_context(packed_layers(self.network, jointly=jointly, dtype=self.dtype))
            else:
                host = self.runtime.host
                self.is_direct, self.quick, self.may_project = host.is_direct, host.quick, host.may_project
            hooks.enter_context(self.by_network.attached())
            yield

    @contextmanager
    def hosting(self) -> Iterator[None]:
        """Inside, other steppers of the same settings take the paths that this one chose, several of them at once."""
        with self.attached():
            self.runtime.host = self
            try:
                yield
            finally:
                self.runtime.host = None

    def choose_paths(self) -> None:
        """Decide which fast paths are taken; the log says why one is not."""
        known = architecture_of(self.network).runner == "marian"
        direct = objection_to_direct(self.model) if known else "the architecture has no runner"
        self.runtime.not_taken("direct", direct)
        quick = objection_to_int8(self.network, wanted=self.wants_quick)
        self.runtime.not_taken("int8", quick)
        self.is_direct, self.quick = direct is None, quick is None
        self.may_project = not is_hooked(self.network) and not is_hooked(self.network.get_output_embeddings())

    def begin(self, ids: torch.Tensor, mask: torch.Tensor) -> Step:
        """Encode sources [sentences, time]; what may follow the decoder's prefix."""
        prefix = torch.tensor([self.model.decoder_prefix] * len(ids), device=ids.device)
        self.projection = known_projection(self.network) if self.is_direct else None
        if self.projection is None:
            passed = self.begin_by_network(ids, mask, prefix)
        if self.is_direct and self.projection:
            encoded = encode(self.network, ids, mask)
            if self.runtime.encodings is not None:
                self.runtime.encodings.keep(ids, mask, encoded)
            self.decoder = decoder_for(self.model, encoded, mask, self.beam, self.dtype)
            passed = self.decoder.begin(prefix)
        if self.projection:
            objection = "the vocabulary is projected in int8" if self.quick else self.projection.objection_to_halves
            self.runtime.not_taken("halves", objection)
        self.decoder.spread(self.beam)
        return self.step_of(passed)

    def begin_by_network(self, ids: torch.Tensor, mask: torch.Tensor, prefix: torch.Tensor) -> Passed:
        """By the network's own first pass, with which our projection is compared."""
        self.by_network.encode(ids, mask)
        passed = self.by_network.begin(prefix)
        if self.may_project and passed.logits is not None:
            self.projection = checked_projection(self.network, passed.states, AllLogits(passed.logits))
        self.by_network.stops = self.projection is not None
        return passed

    def step(self, tokens: torch.Tensor) -> Step:
        """What may follow after one more token in each row, [rows]."""
        return self.step_of(self.decoder.step(tokens))

    def step_of(self, passed: Passed) -> Step:
        return Step(passed.keys, self.next_tokens(passed))

    def next_tokens(self, passed: Passed) -> NextTokens:
        if self.projection is None:
            assert passed.logits is not None
            return AllLogits(passed.logits)
        return self.projection.quickly(passed.states) if self.quick else self.projection.exactly(passed.states)

    def keep(self, sentences: torch.Tensor | None, rows: torch.Tensor) -> None:
        """Continue with some sentences (None: all), whose beams continue the given rows."""
        self.decoder.keep(sentences, rows)


def objection_to_int8(network: Network, *, wanted: bool) -> str | None:
    """Why the vocabulary is not projected in int8 first."""
    head = network.get_output_embeddings()
    objections = {
        "KNNMT_PLAIN": left_out("int8"),
        "--exact": not wanted,
        "this processor has no product of bytes": not has_bytes(network.device),
        f"a vocabulary below {LARGE:,} tokens": isinstance(head, nn.Linear) and len(head.weight) < LARGE,
    }
    return next((why for why, holds in objections.items() if holds), None)


def checked_projection(network: Network, states: torch.Tensor, logits: AllLogits) -> Projection | None:
    """Our projection, if it gives the logits that the network's own gave for states [n, dimension]; else None."""
    head = network.get_output_embeddings()
    if not isinstance(head, nn.Linear) or not states.numel() or head.weight.dtype != torch.float32:
        return None
    projection = known_projection(network)
    if projection is None:
        projection = runtime_of(network).projection = Projection(head.weight, bias_of(network, head))
    expected = logits.rank(CHECKED)
    found = projection.at(states, expected.tokens)
    return projection if torch.allclose(found, expected.logits, rtol=TOLERANCE, atol=TOLERANCE) else None


def known_projection(network: Network) -> Projection | None:
    """The projection, if it was made of the current weights of the network."""
    projection, head = runtime_of(network).projection, network.get_output_embeddings()
    if projection is None or projection.contents != WeightSums([head.weight, bias_of(network, head)]):
        return None
    return projection


def bias_of(network: Network, head: nn.Linear) -> torch.Tensor | None:
    """The bias of the logits, in the layer itself or added after it."""
    after: torch.Tensor | None = getattr(network, "final_logits_bias", None)
    if after is None or head.bias is None:
        return head.bias if after is None else after
    return after + head.bias
