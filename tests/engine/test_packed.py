"""Layers with packed weights: the same products, on every architecture, and a network that is left as it came."""

from typing import Any

import pytest
import torch
from tiny_models import ARCHITECTURES, ENGLISH, GERMAN, tiny_folder, tiny_model
from torch import nn

from knnmt.engine.packed import packed_layers
from knnmt.models.translation_model import TranslationModel, load_model
from knnmt.packing import PackedWeights, can_be_packed

pytestmark = pytest.mark.skipif(not can_be_packed(torch.empty(1, 1)), reason="PyTorch cannot pack weights here")


@torch.inference_mode()
def logits_of(model: TranslationModel) -> torch.Tensor:
    sources, targets = model.encode_sources(list(GERMAN)), model.encode_targets(list(ENGLISH))
    logits: torch.Tensor = model.network(**model.teacher_forcing(sources, targets), use_cache=False).logits
    return logits


def changed_layers(network: Any) -> set[str]:
    return {name for name, module in network.named_modules() if "forward" in vars(module)}


def own_marian() -> TranslationModel:
    """One that a test may change."""
    return load_model(str(tiny_folder("marian")))


@pytest.mark.parametrize("shape", [(5,), (3, 4)], ids=str)
def test_a_product(shape: tuple[int, ...]) -> None:
    layer, states = nn.Linear(7, 11), torch.randn(*shape, 7)
    packed = PackedWeights(layer.weight, layer.bias)
    torch.testing.assert_close(packed.product(states), layer(states).detach())


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_network_says_the_same_and_is_left_as_it_came(name: str) -> None:
    model = tiny_model(name)
    expected = logits_of(model)
    with packed_layers(model.network):
        assert len(changed_layers(model.network)) > 10
        torch.testing.assert_close(logits_of(model), expected, atol=1e-4, rtol=1e-4)
    assert changed_layers(model.network) == set()


def test_it_is_left_as_it_came_after_an_error_too() -> None:
    network = tiny_model("marian").network
    with pytest.raises(OSError, match="gone"), packed_layers(network):
        raise OSError("gone")
    assert changed_layers(network) == set()


def test_weights_that_change_are_packed_anew() -> None:
    model = own_marian()
    with packed_layers(model.network):
        before = logits_of(model)
    layer: Any = model.network.get_decoder().layers[0].fc2
    with torch.no_grad():
        layer.weight.mul_(-1)
        layer.bias.add_(1)
    expected = logits_of(model)
    with packed_layers(model.network):
        after = logits_of(model)
    torch.testing.assert_close(after, expected, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(after, before, atol=1e-2)


def test_what_somebody_has_changed_already_is_left_alone() -> None:
    model = own_marian()
    layer: Any = model.network.get_decoder().layers[0].fc2
    layer.forward = torch.zeros_like
    with packed_layers(model.network):
        assert layer.forward is torch.zeros_like
    assert changed_layers(model.network) == {"model.decoder.layers.0.fc2"}


def test_the_projection_and_what_is_named_are_left_out() -> None:
    network: Any = tiny_model("marian").network
    named = network.get_decoder().layers[0].fc1
    with packed_layers(network, without=[named]):
        changed = changed_layers(network)
    assert "model.decoder.layers.0.fc2" in changed
    assert not {"lm_head", "model.decoder.layers.0.fc1"} & changed


def test_a_network_too_large_for_two_of_it_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    network = tiny_model("marian").network
    monkeypatch.setattr("knnmt.engine.packed.memory_of_machine", lambda: 1000)
    with packed_layers(network):
        assert changed_layers(network) == set()
