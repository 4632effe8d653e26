"""A Marian decoder's step as one graph, against the network's own forward pass over the same tokens."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from decoder_steps import BEAM, check_every_step, states_of
from tiny_models import GERMAN, tiny_folder
from torch import nn

from knnmt import Translator
from knnmt.engine import compiled
from knnmt.engine.compiled import FEW, WARM, CompiledDecoder
from knnmt.engine.decoder import Decoder
from knnmt.engine.marian import MarianDecoder
from knnmt.engine.runtime import runtime_of
from knnmt.engine.stepping import Stepper
from knnmt.models.batching import pad
from knnmt.models.translation_model import TranslationModel, load_model
from knnmt.translate.settings import TranslateSettings

STEPS = 30


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "WARM", 0)
    ours = compiled.seconds_of

    def by_kind(decoder: Decoder, sentences: int, beam: int) -> float:
        """No test depends on a clock."""
        ours(decoder, sentences, beam)
        return 1.0 if isinstance(decoder, CompiledDecoder) else 2.0

    monkeypatch.setattr(compiled, "seconds_of", by_kind)


def own_marian() -> TranslationModel:
    return load_model(str(tiny_folder("marian")))


@torch.inference_mode()
def decoder_of(model: TranslationModel, beam: int = BEAM, dtype: torch.dtype = torch.float32) -> Decoder:
    """What runs the steps after the first batches, over sources of unequal length."""
    ids, mask = pad(model.encode_sources(list(GERMAN)), model.padding)
    for _ in range(2):  # the first batch is begun by the network
        stepper = Stepper(model, beam, quick=False, dtype=dtype)
        with stepper.attached():
            stepper.begin(ids, mask)
    return stepper.decoder


def test_every_step_is_what_the_network_gives_though_rows_change_places_and_sentences_end() -> None:
    model = own_marian()
    decoder = decoder_of(model)
    assert isinstance(decoder, CompiledDecoder)
    check_every_step(model, decoder, STEPS, leaving_every=7)


@pytest.mark.parametrize("activation", ["relu", "silu"])
@torch.inference_mode()
def test_keys_are_those_of_the_plain_twin(activation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = own_marian()
    model.network.config.activation_function = activation
    for layer in [*model.network.get_encoder().layers, *model.network.get_decoder().layers]:
        layer.activation_fn = nn.ReLU() if activation == "relu" else nn.SiLU()
    fast = decoder_of(model)
    monkeypatch.setenv("KNNMT_PLAIN", "compiled")
    plain = decoder_of(model)
    assert (type(fast), type(plain)) == (CompiledDecoder, MarianDecoder)
    for token in (7, 8, 9):
        tokens = torch.full((len(GERMAN) * BEAM,), token)
        torch.testing.assert_close(fast.step(tokens).keys, plain.step(tokens).keys, atol=1e-5, rtol=1e-5)


def test_translations_one_at_a_time_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = TranslateSettings(beam=3, weight=0)
    translator = Translator(own_marian(), None, settings)
    found = [translator.translate([text])[0] for text in GERMAN]
    assert runtime_of(translator.model).compiled is not None
    monkeypatch.setenv("KNNMT_PLAIN", "compiled")
    assert [Translator(own_marian(), None, settings).translate([text])[0] for text in GERMAN] == found


def weight_of_a_layer(network: Any) -> torch.Tensor:
    weight: torch.Tensor = network.get_decoder().layers[0].fc1.weight
    return weight


def bias_of_a_norm(network: Any) -> torch.Tensor:
    bias: torch.Tensor = network.get_decoder().layers[-1].self_attn_layer_norm.bias
    return bias


def an_embedding(network: Any) -> torch.Tensor:
    weight: torch.Tensor = network.get_decoder().embed_tokens.weight
    return weight


@pytest.mark.parametrize("way", ["in place", "behind PyTorch's back", "other memory"])
@pytest.mark.parametrize("weight_of", [weight_of_a_layer, bias_of_a_norm, an_embedding])
@torch.no_grad()
def test_weights_that_change_are_used_as_they_are(weight_of: Callable[[Any], torch.Tensor], way: str) -> None:
    model = own_marian()
    assert isinstance(decoder_of(model), CompiledDecoder)
    weight = weight_of(model.network)
    if way == "other memory":
        weight.data = weight * -3 + 1
    else:
        (weight if way == "in place" else weight.data).mul_(-3).add_(1)
    decoder = decoder_of(model)
    assert isinstance(decoder, CompiledDecoder)
    tokens = torch.full((len(GERMAN) * BEAM,), 7)
    written = torch.tensor([[*model.decoder_prefix, 7]] * len(tokens))
    repeated = [source for source in GERMAN for _ in range(BEAM)]
    with torch.inference_mode():
        torch.testing.assert_close(
            decoder.step(tokens).states, states_of(model, written, repeated), atol=1e-3, rtol=1e-3
        )


class Doubled(nn.Linear):
    """As a fine-tuning library puts it in place of a layer."""

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(states)


def doubled(model: TranslationModel) -> None:
    layer: Any = model.network.get_decoder().layers[0]
    layer.fc2.__class__ = Doubled


def wrong(model: TranslationModel) -> None:
    """Its activation is another than its configuration says."""
    for layer in model.network.get_decoder().layers:
        layer.activation_fn = nn.Tanh()


def nothing(_: TranslationModel) -> None:
    pass


def not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "find_spec", lambda name: None if name == "onnx" else name)


def warming(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "WARM", WARM)


def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "seconds_of", lambda *_: 1.0)


OBJECTIONS: dict[str, tuple[Callable[[TranslationModel], None], Callable[[pytest.MonkeyPatch], None], int]] = {
    "KNNMT_PLAIN": (nothing, lambda patch: patch.setenv("KNNMT_PLAIN", "compiled"), BEAM),
    "onnx not installed: pip install 'knnmt[compiled]'": (nothing, not_installed, BEAM),
    f"more than {FEW} rows": (nothing, lambda _: None, FEW),
    f"not before {WARM} small batches": (nothing, warming, BEAM),
    "a layer is a Doubled": (doubled, lambda _: None, BEAM),
    "packed weights are as fast on this machine": (nothing, slow, BEAM),
    "its graph does not give what the network gives": (wrong, lambda _: None, BEAM),
}


@pytest.mark.parametrize("why", OBJECTIONS)
def test_why_no_graph_is_run(why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    change, surround, beam = OBJECTIONS[why]
    model = own_marian()
    change(model)
    surround(monkeypatch)
    with caplog.at_level(logging.DEBUG, "knnmt.engine"):
        assert isinstance(decoder_of(model, beam), MarianDecoder)
    assert f"compiled: not taken: {why}" in caplog.messages


def test_a_graph_that_cannot_be_made_is_not_run(caplog: pytest.LogCaptureFixture) -> None:
    model = own_marian()
    model.network.config.activation_function = "mish"
    with caplog.at_level(logging.DEBUG, "knnmt.engine"):
        assert isinstance(decoder_of(model), MarianDecoder)
    assert "compiled: not taken: no graph can be made of it: 'mish'" in caplog.messages
