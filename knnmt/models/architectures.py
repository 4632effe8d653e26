"""The registry of architectures: one entry holds all that the package knows about one kind of model.

The key of a target token is the input of the feed-forward block of the last decoder layer, as in the paper.
"""

import re
from dataclasses import dataclass
from typing import Any

from torch import nn

from knnmt.errors import ModelError
from knnmt.models.language_tokens import Languages, fsmt_turned_round, mbart_first, pair_of_fsmt
from knnmt.models.network import Network


@dataclass(frozen=True, slots=True)
class KeySite:
    """The module whose input is the key, as a path from the model's decoder."""

    path: str
    time_first: bool = False  # FSMT's layers run on [time, batch, dimension]


PATH = re.compile(r"[^\W\d]\w*(\[-?\d+\]|\.\w+)*")
BART_LIKE = "decoder.layers[-1].fc1"
AS_TOKENIZER_SAYS = Languages()
T5_LIKE = "decoder.block[-1].layer[-1].DenseReluDense"


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One kind of model."""

    key_site: KeySite | None = None  # None: the user names it
    languages: Languages = AS_TOKENIZER_SAYS
    shares_sources: bool = False  # whether a sentence's beams can attend to one copy of its source's keys and values
    runner: str | None = None  # what runs it faster than its own forward pass: a name that `engine` knows


ARCHITECTURES = {
    "bart": Architecture(key_site=KeySite(BART_LIKE), shares_sources=True),
    "fsmt": Architecture(
        key_site=KeySite(BART_LIKE, time_first=True),
        languages=Languages(own=pair_of_fsmt, target_side=fsmt_turned_round),
    ),
    "m2m_100": Architecture(key_site=KeySite(BART_LIKE), shares_sources=True),
    "marian": Architecture(key_site=KeySite(BART_LIKE), shares_sources=True, runner="marian"),
    "mbart": Architecture(key_site=KeySite(BART_LIKE), languages=Languages(first=mbart_first), shares_sources=True),
    "mt5": Architecture(key_site=KeySite(T5_LIKE)),
    "pegasus": Architecture(key_site=KeySite(BART_LIKE), shares_sources=True),
    "t5": Architecture(key_site=KeySite(T5_LIKE)),
    "umt5": Architecture(key_site=KeySite(T5_LIKE)),
}
UNKNOWN = Architecture()  # whatever its tokenizer says, and the key site that the user names


def architecture_of(network: Network) -> Architecture:
    return ARCHITECTURES.get(network.config.model_type, UNKNOWN)


def key_site_of(network: Network, path: str | None = None) -> KeySite:
    """The key site: the given one, or the known one of this kind of model."""
    kind, known = network.config.model_type, architecture_of(network).key_site
    if path is not None:
        site = KeySite(path, time_first=known is not None and known.time_first)
    elif known is not None:
        site = known
    else:
        raise ModelError(
            f"model type {kind!r} is new to knnmt: name the module whose input is the key, "
            f"for example --key-site '{BART_LIKE}'"
        )
    module_at(network, site.path)
    return site


def module_at(network: Network, path: str) -> nn.Module:
    """The module at a path such as `decoder.layers[-1].fc1`."""
    if not PATH.fullmatch(path):
        raise ModelError(f"--key-site {path}: not a path such as {BART_LIKE}")
    module: Any = network
    for name, position in re.findall(r"(\w+)|\[(-?\d+)\]", path):
        try:
            module = step_into(module, name) if name else module[int(position)]
        except (AttributeError, IndexError, TypeError) as error:
            raise ModelError(f"--key-site {path}: the model has no {name or position!r} there") from error
    if not isinstance(module, nn.Module):
        raise ModelError(f"--key-site {path}: not a module of the model")
    return module


def step_into(module: Any, name: str) -> Any:
    """An attribute; `decoder` is found wherever the architecture keeps it."""
    if name == "decoder" and not hasattr(module, name):
        return module.get_decoder()
    return getattr(module, name)
