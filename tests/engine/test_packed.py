"""Layers with packed weights: the same products, on every architecture, and a network that is left as it came."""

import copy
import pickle
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tiny_models import ARCHITECTURES, ENGLISH, GERMAN, tiny_folder, tiny_model
from torch import nn

from knnmt.engine.marian import jointly_packed
from knnmt.engine.packed_layers import packed_layers
from knnmt.engine.runtime import runtime_of
from knnmt.engine.stepping import Step, Stepper
from knnmt.models.batching import pad
from knnmt.models.translation_model import TranslationModel, load_model, wrap_model
from knnmt.packed_weights import PackedWeights, can_be_packed

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


def test_the_projection_is_left_out_and_layers_packed_together_are_left_to_the_caller() -> None:
    network: Any = tiny_model("marian").network
    first = network.get_decoder().layers[0]
    together = (first.fc1, first.self_attn.q_proj)
    with packed_layers(network, jointly=[together]):
        changed = changed_layers(network)
    assert "model.decoder.layers.0.fc2" in changed
    assert not {"lm_head", "model.decoder.layers.0.fc1", "model.decoder.layers.0.self_attn.q_proj"} & changed


def test_a_network_too_large_for_two_of_it_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    network = tiny_model("marian").network
    monkeypatch.setattr("knnmt.engine.packed_layers.memory_of_machine", lambda: 1000)
    with packed_layers(network):
        assert changed_layers(network) == set()
    with packed_layers(network, jointly=jointly_packed(network)):
        assert not runtime_of(network).packing.copies


def change_one_weight(layer: nn.Linear) -> None:
    layer.weight.data[1, 2] += 3


def change_one_row(layer: nn.Linear) -> None:
    layer.weight.data[3] = 0.5


def swap_two_rows(layer: nn.Linear) -> None:
    layer.weight.data[[2, 5]] = layer.weight.data[[5, 2]]


def change_a_bias(layer: nn.Linear) -> None:
    layer.bias.data[4] += 2


def change_half_of_it(layer: nn.Linear) -> None:
    layer.weight.data[: len(layer.weight) // 4].mul_(-2)


CHANGES = [change_one_weight, change_one_row, swap_two_rows, change_a_bias, change_half_of_it]
every_change = pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)


@every_change
@pytest.mark.parametrize("path", ["encoder.layers.0.self_attn.v_proj", "decoder.layers.1.fc1"])
@torch.no_grad()
def test_a_weight_changed_in_part_behind_pytorchs_back_is_seen_while_building(
    path: str, change: Callable[[nn.Linear], None]
) -> None:
    model = own_marian()
    with packed_layers(model.network):
        before = logits_of(model)
    change(model.network.get_submodule(f"model.{path}"))
    expected = logits_of(model)
    with packed_layers(model.network):
        torch.testing.assert_close(logits_of(model), expected, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(before, expected, atol=1e-3)


@every_change
@pytest.mark.parametrize(
    "path",
    ["encoder.layers.0.self_attn.v_proj", "decoder.layers.0.encoder_attn.v_proj", "decoder.layers.1.self_attn.v_proj"],
)
@torch.no_grad()
def test_a_weight_changed_in_part_behind_pytorchs_back_is_seen_while_translating(
    path: str, change: Callable[[nn.Linear], None]
) -> None:
    model = own_marian()
    step_of(model)
    change(model.network.get_submodule(f"model.{path}"))
    found, expected = step_of(model), step_of(wrap_model(copy.deepcopy(model.network), model.tokenizer, name="fresh"))
    torch.testing.assert_close(found.keys, expected.keys, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found.following.rank(5).logits, expected.following.rank(5).logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("part", ["a row", "the bias"])
@torch.no_grad()
def test_a_projection_changed_in_part_behind_pytorchs_back_is_seen(part: str) -> None:
    model = own_marian()
    before = step_of(model).following.rank(1)
    best = int(before.tokens[0, 0])
    if part == "a row":
        model.network.get_output_embeddings().weight.data[best] = 0
    else:
        model.network.final_logits_bias.data[0, best] -= 50
    after = step_of(model).following.rank(1)
    assert int(after.tokens[0, 0]) != best


@torch.inference_mode()
def step_of(model: TranslationModel) -> Step:
    """What follows one token after the prefix."""
    ids, mask = pad(model.encode_sources(list(GERMAN)), model.padding)
    stepper = Stepper(model, 1, quick=False)
    with stepper.attached():
        stepper.begin(ids, mask)
        return stepper.step(torch.full((len(GERMAN),), 7))


def packed_times(network: Any) -> Counter[str]:
    """How many packed copies each layer is in."""
    names = {module: name for name, module in network.named_modules()}
    return Counter(names[layer] for layers in runtime_of(network).packing.copies for layer in layers)


def test_no_layer_is_packed_twice_after_building_and_translating() -> None:
    model = own_marian()
    with packed_layers(model.network):
        logits_of(model)
    layers = set(packed_times(model.network))
    assert len(layers) > 20
    step_of(model)
    assert packed_times(model.network) == Counter(layers)
    with packed_layers(model.network):
        assert packed_times(model.network) == Counter(layers)


def test_a_copy_of_a_network_has_a_runtime_of_its_own() -> None:
    model = own_marian()
    step_of(model)
    twin = copy.deepcopy(model.network)
    again = pickle.loads(pickle.dumps(runtime_of(twin)))
    assert runtime_of(twin) is not runtime_of(model.network)
    assert runtime_of(twin).lock is not runtime_of(model.network).lock
    assert not runtime_of(twin).packing.copies
    assert not again.packing.copies
