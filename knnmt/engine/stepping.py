"""A decoder run step by step over the beams of some sentences: keys and next tokens come back from each step.

The encoder runs once; the decoder is run by the fastest way that gives what the network gives; the projection is done
here, for the last token alone.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import nn

from knnmt.engine.bytewise import has_bytes
from knnmt.engine.decoder import Decoder, Passed
from knnmt.engine.marian import MarianDecoder, can_be_direct, encode, jointly_packed
from knnmt.engine.network import NetworkDecoder
from knnmt.engine.packed import is_hooked, packed_layers
from knnmt.engine.projection import AllLogits, NextTokens, Projection, projection_version
from knnmt.models.translation_model import TranslationModel

SHARING = ("bart", "m2m_100", "marian", "mbart", "pegasus")  # FSMT and T5 have attention of their own kinds
CHECKED = 8  # best tokens of each sentence's first step, by which our projection is compared with the model's
TOLERANCE = 1e-3

_PROJECTIONS: WeakKeyDictionary[nn.Module, Projection] = WeakKeyDictionary()


class Step(NamedTuple):
    """What one step made of each row."""

    keys: torch.Tensor  # [rows, dimension]
    following: NextTokens


class Stepper:
    """The decoder's state over a batch of sentences: one row each at first, then one for each beam.

    With `quick`, logits that cannot matter may be a little off.
    """

    def __init__(self, model: TranslationModel, beam: int, *, quick: bool) -> None:
        self.model, self.beam = model, beam
        self.network = model.network
        self.quick = quick and has_bytes(self.network.device)
        self.by_network = NetworkDecoder(model, shares=self.network.config.model_type in SHARING)
        self.decoder: Decoder = self.by_network
        self.projection: Projection | None = None
        self.may_project = self.is_direct = False

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Inside, the network's passes are this stepper's."""
        with ExitStack() as hooks:
            self.is_direct = can_be_direct(self.model)
            self.may_project = not is_hooked(self.network) and not is_hooked(self.network.get_output_embeddings())
            jointly = jointly_packed(self.network) if self.is_direct else []
            hooks.enter_context(packed_layers(self.network, without=jointly))
            hooks.enter_context(self.by_network.attached())
            yield

    def begin(self, ids: torch.Tensor, mask: torch.Tensor) -> Step:
        """Encode sources [sentences, time]; what may follow the decoder's prefix."""
        prefix = torch.tensor([self.model.decoder_prefix] * len(ids), device=ids.device)
        self.projection = known_projection(self.network) if self.is_direct else None
        if self.projection is None:
            passed = self.begin_by_network(ids, mask, prefix)
        if self.is_direct and self.projection:
            self.decoder = MarianDecoder(self.network, encode(self.network, ids, mask), mask)
            passed = self.decoder.begin(prefix)
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
        quick = self.quick and self.projection.is_large
        return self.projection.quickly(passed.states) if quick else self.projection.exactly(passed.states)

    def keep(self, sentences: torch.Tensor | None, rows: torch.Tensor) -> None:
        """Continue with some sentences (None: all), whose beams continue the given rows."""
        self.decoder.keep(sentences, rows)


def checked_projection(network: Any, states: torch.Tensor, logits: AllLogits) -> Projection | None:
    """Our projection, if it gives the logits that the network's own gave for states [n, dimension]; else None."""
    head = network.get_output_embeddings()
    if not isinstance(head, nn.Linear) or not states.numel() or head.weight.dtype != torch.float32:
        return None
    projection = known_projection(network)
    if projection is None:
        projection = _PROJECTIONS[network] = Projection(head.weight, bias_of(network, head))
    expected = logits.rank(CHECKED)
    found = projection.at(states, expected.tokens)
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
