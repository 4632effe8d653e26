"""A network's cross-attention over given translations: which source tokens each target token attended to.

Fused attention returns no weights. The network therefore uses its plain attention during this pass; results differ only
by rounding. A Marian network is run directly, as where it translates.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.engine.marian import MarianDecoder, encode, jointly_packed, objection_to_direct
from knnmt.engine.packed_layers import packed_layers
from knnmt.engine.runtime import lock_of, runtime_of
from knnmt.errors import ModelError
from knnmt.models.architectures import architecture_of
from knnmt.models.network import Network
from knnmt.models.translation_model import TranslationModel

Weights = NDArray[np.float32]
HOOKS_INSTALLED = "_output_capturing_hooks_installed"  # what transformers remembers them by
SHIFTS = (0, 1)  # where a token is predicted, and where it is the decoder's input, one position later


Head = tuple[int, int, int]  # shift, layer, head


@dataclass(frozen=True, slots=True)
class AligningHeads:
    """The heads that align best, and the share of known links that they found."""

    heads: tuple[Head, ...]
    found: float
    of: int  # known links

    def to_json(self) -> dict[str, Any]:
        return {"heads": [list(head) for head in self.heads], "found": self.found, "of": self.of}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "AligningHeads":
        return cls(tuple((int(a), int(b), int(c)) for a, b, c in record["heads"]), record["found"], record["of"])


@contextmanager
def plain_attention(network: Network) -> Iterator[None]:
    """Inside, attention returns its weights; afterwards the network is unchanged."""
    before = getattr(network.config, "_attn_implementation", None)
    with hooks_as_before(network):
        if before in (None, "eager"):
            yield
            return
        network.set_attn_implementation("eager")
        try:
            yield
        finally:
            network.set_attn_implementation(before)


@contextmanager
def hooks_as_before(network: Network) -> Iterator[None]:
    """Removes the hooks that transformers leaves on modules whose weights were asked for. With them, no network can
    be run directly.
    """
    hooks = {module: set(module._forward_hooks) for module in network.modules()}
    try:
        yield
    finally:
        for module, before in hooks.items():
            for key in set(module._forward_hooks) - before:
                del module._forward_hooks[key]
            vars(module).pop(HOOKS_INSTALLED, None)


Tokens = Sequence[Sequence[int]]


@torch.inference_mode()
def cross_attention(model: TranslationModel, sources: Tokens, targets: Tokens) -> list[Weights]:
    """For each pair of token sequences, weights [shifts, layers, heads, target tokens, source tokens].

    The first shift is the attention with which a token was predicted, the second that of the step after, whose input
    it is. The end token is never an input: its row is zero there.
    """
    given = layer_attention(model, sources, targets)
    weights = torch.stack(tuple(given)).float().cpu().numpy()  # [layers, batch, heads, positions, source tokens]
    first = len(model.decoder_prefix) - 1
    return [
        shifted(weights[:, row, :, :, : len(source)], first, len(target))
        for row, (source, target) in enumerate(zip(sources, targets, strict=True))
    ]


@torch.inference_mode()
def mean_attention(model: TranslationModel, sources: Tokens, targets: Tokens, heads: Sequence[Head]) -> list[Weights]:
    """For each pair of token sequences, the mean of some heads' weights [target tokens, source tokens]."""
    given = layer_attention(model, sources, targets, layers=1 + max(layer for _, layer, _ in heads))
    first = len(model.decoder_prefix) - 1
    found = [np.zeros((len(target), len(source)), np.float32) for source, target in zip(sources, targets, strict=True)]
    for shift in SHIFTS:
        chosen = [given[layer][:, head, first + shift :] for its, layer, head in heads if its == shift]
        if chosen:
            mean = (torch.stack(chosen).float().sum(0) / len(heads)).cpu().numpy()  # [batch, positions, source tokens]
            for row, weights in enumerate(found):
                tokens = len(weights) - shift
                weights[:tokens] += mean[row, :tokens, : weights.shape[1]]
    return found


def layer_attention(
    model: TranslationModel, sources: Tokens, targets: Tokens, layers: int | None = None
) -> Sequence[torch.Tensor]:
    """The attention of each layer, or of the first few where no more are wanted, each
    [batch, heads, positions, source tokens].
    """
    with lock_of(model.network):
        inputs = model.teacher_forcing(sources, targets)
        objection = objection_to_direct(model) if is_marian(model) else "the architecture has no runner"
        runtime_of(model.network).not_taken("direct", objection)
        return directly(model, inputs, layers) if objection is None else by_network(model, inputs)


def is_marian(model: TranslationModel) -> bool:
    return architecture_of(model.network).runner == "marian"


def directly(model: TranslationModel, inputs: dict[str, torch.Tensor], layers: int | None) -> list[torch.Tensor]:
    """By the weights of a Marian network, with the packed copies that translating uses too."""
    network = model.network
    with packed_layers(network, jointly=jointly_packed(network)):
        mask = inputs["attention_mask"]
        decoder = MarianDecoder(network, encoded_sources(network, inputs["input_ids"], mask), mask)
        return decoder.attention(inputs["decoder_input_ids"], layers)


def encoded_sources(network: Network, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The encoder's states [sentences, time, dimension]: those that are kept, and the others computed."""
    encodings = runtime_of(network).encodings
    kept = [] if encodings is None else encodings.find(ids, mask)
    lacking = [row for row, states in enumerate(kept) if states is None]
    if len(lacking) == len(kept):
        return encode(network, ids, mask)
    found = next(states for states in kept if states is not None)
    whole = found.new_zeros(*ids.shape, found.shape[-1])
    if lacking:
        whole[lacking] = encode(network, ids[lacking], mask[lacking])
    for row, states in enumerate(kept):
        if states is not None:
            whole[row, : len(states)] = states
    return whole


def by_network(model: TranslationModel, inputs: dict[str, torch.Tensor]) -> Sequence[torch.Tensor]:
    """By the network's own forward pass, without its projection."""
    with plain_attention(model.network), without_projection(model.network):
        given = model.network(**inputs, use_cache=False, output_attentions=True).cross_attentions
    if not given or any(layer is None for layer in given):
        raise ModelError(f"--model {model.name}: its network gives no cross-attention, so tags cannot be placed by it")
    return cast(Sequence[torch.Tensor], given)


@contextmanager
def without_projection(network: Network) -> Iterator[None]:
    """A context without the projection: the logits are not needed, and take half of the time."""
    head = network.get_output_embeddings()
    if type(head) is not torch.nn.Linear or "forward" in vars(head):
        yield
        return
    head.forward = lambda states: states[..., :1]  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        del head.__dict__["forward"]


def shifted(weights: Weights, first: int, tokens: int) -> Weights:
    """Weights by position [layers, heads, positions, source tokens] as weights by token, for both shifts."""
    layers, heads, _, source_tokens = weights.shape
    by_token = np.zeros((len(SHIFTS), layers, heads, tokens, source_tokens), np.float32)
    for shift in SHIFTS:
        rows = weights[:, :, first + shift : first + tokens]
        by_token[shift, :, :, : rows.shape[2]] = rows
    return by_token
