"""A Marian decoder run directly, against the network's own forward pass over the same tokens."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from decoder_steps import BEAM, check_every_step, states_of
from tiny_models import GERMAN, tiny_folder, tiny_model
from torch import nn

from knnmt import Translator
from knnmt.engine.decoder import Passed
from knnmt.engine.keys import teacher_forced_keys
from knnmt.engine.marian import MarianDecoder, Past
from knnmt.engine.stepping import Step, Stepper
from knnmt.models.architectures import KeySite, module_at
from knnmt.models.batching import pad
from knnmt.models.translation_model import TranslationModel, load_model
from knnmt.switches import VARIABLE
from knnmt.translate.settings import TranslateSettings

STEPS, ROOM = 40, 16  # more tokens than there is room for at first


@pytest.fixture(autouse=True)
def no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """After many small batches of other tests a graph would run the network instead."""
    monkeypatch.setenv(VARIABLE, "compiled")


def begin(model: TranslationModel, beam: int = BEAM) -> tuple[Stepper, Step]:
    """A stepper and its first step, over sources of unequal length."""
    ids, mask = pad(model.encode_sources(list(GERMAN)), model.padding)
    stepper = Stepper(model, beam, quick=False)
    with torch.inference_mode(), stepper.attached():
        return stepper, stepper.begin(ids, mask)


def direct_decoder(model: TranslationModel) -> MarianDecoder | None:
    """What runs the model directly after the first step, if anything does."""
    decoder = begin(model)[0].decoder
    return decoder if isinstance(decoder, MarianDecoder) else None


def test_every_step_is_what_the_network_gives_though_rows_change_places_and_sentences_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("knnmt.engine.marian.ROOM", ROOM)
    model = tiny_model("marian")
    direct = direct_decoder(model)
    assert direct is not None
    check_every_step(model, direct, STEPS, leaving_every=10)


def test_one_more_token_takes_room_that_is_there() -> None:
    past = Past(2, torch.empty(8))
    past.append(torch.zeros(2, 8))
    before = past.room
    so_far = past.append(torch.ones(2, 8))
    assert past.room is before
    assert so_far.shape == (2, 2, 8)
    assert torch.equal(so_far[:, 1], torch.ones(2, 8))


def test_room_that_is_full_grows_by_what_is_in_it_alone() -> None:
    """Rows that left long ago would take memory that nobody touched so far."""
    past = Past(6, torch.empty(8))
    written = [torch.randn(6, 8) for _ in range(len(past.room))]
    for last in written:
        past.append(last)
    past.keep(torch.tensor([4, 1]), torch.empty(len(written), 6, 8))
    last = torch.randn(2, 8)
    so_far = past.append(last)
    assert past.room.shape == (2 * len(written), 2, 8)
    assert torch.equal(so_far, torch.stack([*(rows[[4, 1]] for rows in written), last], dim=1))


def own_marian() -> TranslationModel:
    """One that a test may change."""
    return load_model(str(tiny_folder("marian")))


class Adapter(nn.Module):
    """As a fine-tuning library puts it in place of a layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        adapted: torch.Tensor = 1.5 * self.layer(states)
        return adapted


def with_adapter(model: TranslationModel) -> TranslationModel:
    layer: Any = model.network.get_decoder().layers[0]
    layer.fc2 = Adapter(layer.fc2)
    return model


def in_training(model: TranslationModel) -> TranslationModel:
    model.network.train()
    return model


KINDS: dict[str, tuple[Callable[[], TranslationModel], bool]] = {
    "marian": (own_marian, True),
    "keys from elsewhere": (lambda: replace(own_marian(), key_site=KeySite("decoder.layers[-1].self_attn")), False),
    "in training": (lambda: in_training(own_marian()), False),
    "with an adapter": (lambda: with_adapter(own_marian()), True),
    "bart": (lambda: tiny_model("bart"), False),
    "t5": (lambda: tiny_model("t5"), False),
}


@pytest.mark.parametrize("kind", KINDS)
def test_only_a_marian_with_the_usual_keys_is_run_directly(kind: str) -> None:
    make, direct = KINDS[kind]
    assert (direct_decoder(make()) is not None) == direct


@pytest.mark.parametrize("wrong", ["keys", "states"])
def test_a_step_that_disagrees_with_the_network_is_not_used(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = MarianDecoder.step

    def off(decoder: MarianDecoder, tokens: torch.Tensor) -> Passed:
        passed = ours(decoder, tokens)
        return passed._replace(**{wrong: getattr(passed, wrong) + 0.01})

    monkeypatch.setattr(MarianDecoder, "step", off)
    assert direct_decoder(own_marian()) is None


@pytest.mark.parametrize("name", ["marian", "bart", "t5", "fsmt"])
@pytest.mark.parametrize("times", [1, 2], ids=["first use", "later"])
def test_the_first_step_has_the_keys_of_the_sources(name: str, times: int) -> None:
    model = own_marian() if name == "marian" else tiny_model(name)
    steps = [begin(model)[1] for _ in range(times)]
    sources, starts = model.encode_sources(list(GERMAN)), [[model.end_token]] * len(GERMAN)
    with torch.inference_mode():
        inputs = model.teacher_forcing(sources, starts)
        expected = teacher_forced_keys(model.network, model.key_site, inputs)[:, -1]
    torch.testing.assert_close(steps[-1].keys, expected, atol=1e-4, rtol=1e-4)


def q_proj_of_the_encoder(network: Any) -> torch.Tensor:
    weight: torch.Tensor = network.get_encoder().layers[0].self_attn.q_proj.weight
    return weight


def k_proj_of_the_decoder(network: Any) -> torch.Tensor:
    weight: torch.Tensor = network.get_decoder().layers[-1].self_attn.k_proj.weight
    return weight


def v_proj_of_the_source(network: Any) -> torch.Tensor:
    weight: torch.Tensor = network.get_decoder().layers[0].encoder_attn.v_proj.weight
    return weight


@pytest.mark.parametrize("way", ["counted by PyTorch", "behind its back"])
@pytest.mark.parametrize("weight_of", [q_proj_of_the_encoder, k_proj_of_the_decoder, v_proj_of_the_source])
@torch.no_grad()
def test_weights_that_change_are_used_as_they_are(weight_of: Callable[[Any], torch.Tensor], way: str) -> None:
    model = own_marian()
    first = begin(model)[1].keys
    weight = weight_of(model.network)
    (weight if way == "counted by PyTorch" else weight.data).mul_(-3).add_(1)
    stepper, second = begin(model)
    assert isinstance(stepper.decoder, MarianDecoder)
    tokens = torch.full((len(GERMAN) * BEAM,), 7)
    written = torch.tensor([[*model.decoder_prefix, 7]] * len(tokens))
    repeated = [source for source in GERMAN for _ in range(BEAM)]
    with torch.inference_mode():
        found = stepper.decoder.step(tokens).states
    torch.testing.assert_close(found, states_of(model, written, repeated), atol=1e-4, rtol=1e-4)
    if weight_of is not k_proj_of_the_decoder:  # which does not matter for a single token
        assert not torch.allclose(second.keys, first, atol=1e-3)


@pytest.mark.parametrize(
    "name",
    ["", "self_attn", "encoder_attn", "fc1", "fc2", "final_layer_norm", "self_attn.out_proj", "encoder_attn.q_proj"],
)
@torch.inference_mode()
def test_whoever_hooks_a_module_is_told_of_each_step(name: str) -> None:
    model, told = own_marian(), []
    module: Any = model.network.get_decoder().layers[0].get_submodule(name)
    assert direct_decoder(model) is not None
    handle = module.register_forward_hook(lambda *_: told.append(name))
    ids, mask = pad(model.encode_sources(list(GERMAN)), model.padding)
    stepper = Stepper(model, BEAM, quick=False)
    with stepper.attached():
        stepper.begin(ids, mask)
        before = len(told)
        stepper.step(torch.full((len(GERMAN) * BEAM,), 7))
    assert len(told) == before + 1
    handle.remove()
    assert direct_decoder(model) is not None


@pytest.mark.parametrize("place", ["network", "projection"])
@torch.inference_mode()
def test_hooks_on_the_network_and_its_projection_are_told_of_each_step(place: str) -> None:
    model, told = own_marian(), []
    module: Any = model.network if place == "network" else model.network.get_output_embeddings()
    module.register_forward_hook(lambda *_: told.append(place))
    stepper, _ = begin(model)
    before = len(told)
    with stepper.attached():
        stepper.step(torch.full((len(GERMAN) * BEAM,), 7))
    assert len(told) == before + 1


class Wrapped(nn.Module):
    """As somebody may put it around a whole layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *given: Any, **named: Any) -> Any:
        return self.layer(*given, **named)


def test_a_model_built_in_another_way_is_left_to_transformers() -> None:
    model = own_marian()
    layers: Any = model.network.get_encoder().layers
    assert direct_decoder(model) is not None
    layers[0] = Wrapped(layers[0])  # also where it was run directly before
    assert direct_decoder(model) is None


@pytest.mark.parametrize(
    "path", ["decoder.layers[0].self_attn", "decoder.layers[-1].encoder_attn", "decoder.layers[0]"]
)
def test_hooks_of_a_user_are_called_in_every_batch(path: str) -> None:
    model = tiny_model("marian")
    translator = Translator(model, None, TranslateSettings(beam=2, weight=0))
    translator.translate(["eins zwei"])  # the network has been judged, and would be run directly
    calls: list[int] = []
    handle = module_at(model.network, path).register_forward_hook(lambda *_: calls.append(1))
    try:
        for _ in range(2):
            before = len(calls)
            translator.translate(["eins zwei"])
            assert len(calls) - before > 1
    finally:
        handle.remove()
