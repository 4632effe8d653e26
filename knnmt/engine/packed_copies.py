"""Packed copies of a network's linear layers, at most one of each layer."""

from collections.abc import Iterable

import torch
from torch import nn

from knnmt.packed_weights import PackedWeights, WeightSums

Layers = tuple[nn.Linear, ...]  # one, or several whose products are wanted side by side


class Copy:
    """Some layers packed together, and checksums of their weights at that time."""

    def __init__(self, layers: Layers, contents: WeightSums, dtype: torch.dtype) -> None:
        self.contents = contents
        if len(layers) == 1:
            self.packed = PackedWeights(layers[0].weight, layers[0].bias, dtype)
        else:
            weight, bias = (
                torch.cat([getattr(layer, name).detach() for layer in layers]) for name in ("weight", "bias")
            )
            self.packed = PackedWeights(weight, bias, dtype)


class Packing:
    """All copies of a network's layers. A layer that is packed with others is not packed alone as well."""

    def __init__(self) -> None:
        self.copies: dict[Layers, Copy] = {}

    def prepare(self, wanted: Iterable[Layers], dtype: torch.dtype = torch.float32) -> None:
        """Have up-to-date copies of exactly these layers in this precision."""
        self.copies = {layers: self.up_to_date(layers, dtype) for layers in wanted}

    def up_to_date(self, layers: Layers, dtype: torch.dtype) -> Copy:
        contents = WeightSums([weight for layer in layers for weight in (layer.weight, layer.bias)])
        copy = self.copies.get(layers)
        if copy is None or copy.packed.dtype != dtype or copy.contents != contents:
            return Copy(layers, contents, dtype)
        if len(layers) == 1:
            copy.packed.bias = layers[0].bias
        return copy

    def find(self, layers: Layers) -> PackedWeights | None:
        copy = self.copies.get(layers)
        return None if copy is None else copy.packed
