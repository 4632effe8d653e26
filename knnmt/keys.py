"""Where a model's keys are, and how to read them.

The key of a target token is the input of the feed-forward block of the last decoder layer: the paper's choice.
It is caught by a hook, so that the model itself stays as it is.
"""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
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


_LOCKS: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()


def lock_of(network: nn.Module) -> threading.RLock:
    """Held by whoever runs the network: hooks see every forward pass, so that threads must take turns."""
    return _LOCKS.setdefault(network, threading.RLock())


class KeyReached(Exception):  # noqa: N818 - not an error: it ends a forward pass that has given what was wanted
    pass


@dataclass(slots=True)
class Catch:
    """What the hook saw last: keys [batch, time, dimension]."""

    keys: torch.Tensor = field(default_factory=lambda: torch.empty(0))


@contextmanager
def catching_keys(network: Any, site: KeySite, *, stop: bool = False) -> Iterator[Catch]:
    """Inside, every forward pass leaves its keys in the catch; with `stop`, it goes no further."""
    catch = Catch()

    def look(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        if not inputs or inputs[0].dim() != 3:
            raise ModelError(f"--key-site {site.path}: its input is not one vector for each token")
        catch.keys = inputs[0].transpose(0, 1) if site.time_first else inputs[0]
        if stop:
            raise KeyReached

    handle = module_at(network, site.path).register_forward_pre_hook(look)
    try:
        yield catch
    finally:
        handle.remove()


def teacher_forced_keys(network: Any, site: KeySite, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Keys [batch, time, dimension] of given targets; neither the last feed-forward block nor the projection runs."""
    with catching_keys(network, site, stop=True) as catch:
        try:
            network(**inputs, use_cache=False)
        except KeyReached:
            return catch.keys
    raise ModelError(f"--key-site {site.path}: the model's forward pass never came there")
