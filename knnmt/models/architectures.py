"""Where a model's keys are.

The key of a target token is the input of the feed-forward block of the last decoder layer: the paper's choice.
"""

import re
from dataclasses import dataclass
from typing import Any

from torch import nn

from knnmt.errors import ModelError


@dataclass(frozen=True, slots=True)
class KeySite:
    """The module whose input is the key, as a path from the model's decoder."""

    path: str
    time_first: bool = False  # FSMT's layers run on [time, batch, dimension]


PATH = re.compile(r"[^\W\d]\w*(\[-?\d+\]|\.\w+)*")
BART_LIKE = "decoder.layers[-1].fc1"
T5_LIKE = "decoder.block[-1].layer[-1].DenseReluDense"
KEY_SITES = {
    "bart": KeySite(BART_LIKE),
    "fsmt": KeySite(BART_LIKE, time_first=True),
    "m2m_100": KeySite(BART_LIKE),
    "marian": KeySite(BART_LIKE),
    "mbart": KeySite(BART_LIKE),
    "mt5": KeySite(T5_LIKE),
    "pegasus": KeySite(BART_LIKE),
    "t5": KeySite(T5_LIKE),
    "umt5": KeySite(T5_LIKE),
}


def key_site_of(network: Any, path: str | None = None) -> KeySite:
    """The place of the key: the one given, or the one known for this kind of model."""
    kind = network.config.model_type
    known = KEY_SITES.get(kind)
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


def module_at(network: Any, path: str) -> nn.Module:
    """The module at a path such as `decoder.layers[-1].fc1`."""
    if not PATH.fullmatch(path):
        raise ModelError(f"--key-site {path}: not a path such as {BART_LIKE}")
    module = network
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
