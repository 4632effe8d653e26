"""Takes keys from a network's decoder by a hook on its key site. The network itself stays as it is."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import nn

from knnmt.engine.runtime import lock_of
from knnmt.errors import ModelError
from knnmt.models.architectures import KeySite, module_at
from knnmt.models.network import Network


class KeyReached(Exception):  # noqa: N818 - not an error: it ends a forward pass that has given what was wanted
    pass


@dataclass(slots=True)
class Catch:
    """The keys of the last forward pass, [batch, time, dimension]."""

    keys: torch.Tensor = field(default_factory=lambda: torch.empty(0))


@contextmanager
def catching_keys(network: Network, site: KeySite, *, stop: bool = False) -> Iterator[Catch]:
    """Inside, every forward pass puts its keys into the catch; with `stop`, it ends there."""
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


def teacher_forced_keys(network: Network, site: KeySite, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Keys [batch, time, dimension] of given targets; neither the last feed-forward block nor the projection runs."""
    with lock_of(network), catching_keys(network, site, stop=True) as catch:
        try:
            network(**inputs, use_cache=False)
        except KeyReached:
            return catch.keys
    raise ModelError(f"--key-site {site.path}: the model's forward pass never came there")
