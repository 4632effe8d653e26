"""Layers in bytes against the layers themselves."""

from copy import deepcopy

import pytest
import torch
from command_line import Run
from tiny_models import ARCHITECTURES, GERMAN, tiny_model
from torch import nn

from knnmt import SettingsError, Store, Translator
from knnmt.bytewise import ByteLinear, has_bytes, is_in_bytes, layers_in_bytes
from knnmt.demo import read_demo
from knnmt.evaluation import signature_of

needs_bytes = pytest.mark.skipif(not has_bytes(torch.device("cpu")), reason="this processor has no product of bytes")


@needs_bytes
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(7, 32), (3, 5, 32), (1, 1, 32)], ids=str)
def test_a_layer_in_bytes_is_nearly_the_layer(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(32, 48, bias=bias)
    states = torch.randn(shape) * torch.logspace(-3, 3, shape[-2])[:, None]  # rows of very different size
    with torch.inference_mode():
        exact, rough = layer(states), ByteLinear(layer)(states)
    assert rough.shape == exact.shape
    off = (rough - exact).norm(dim=-1) / exact.norm(dim=-1)
    assert off.max() < 0.03


@needs_bytes
def test_a_row_does_not_depend_on_its_neighbours() -> None:
    layer, states = ByteLinear(nn.Linear(32, 48)), torch.randn(9, 32)
    with torch.inference_mode():
        together, alone = layer(states), torch.cat([layer(row[None]) for row in states])
    assert torch.equal(together, alone)


@needs_bytes
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_runs_in_bytes(name: str) -> None:
    network, quick = tiny_model(name).network, deepcopy(tiny_model(name).network)
    layers_in_bytes(quick)
    assert (is_in_bytes(network), is_in_bytes(quick)) == (False, True)
    assert type(quick.get_output_embeddings()) is type(network.get_output_embeddings())  # the projection stays
    ids = torch.tensor(tiny_model(name).encode_sources([GERMAN[0]]))
    given = {"input_ids": ids, "decoder_input_ids": torch.tensor([[2, 4, 5]]), "output_hidden_states": True}
    with torch.inference_mode():
        outputs = [one(**given) for one in (network, quick)]
    first, rough = (output.encoder_hidden_states[1] for output in outputs)  # later ones of random weights drift apart
    assert torch.nn.functional.cosine_similarity(first, rough, dim=-1).min() > 0.9
    assert outputs[0].logits.shape == outputs[1].logits.shape


@needs_bytes
def test_the_memory_speaks_in_bytes_as_well(store: Store) -> None:
    segment = read_demo("memory")[6]
    translator = Translator.from_store(store.path, k=8, int8=True)
    assert translator.translate([segment.source]) == [segment.target]
    assert "|int8|" in signature_of(translator)
    assert "|int8|" in signature_of(Translator.from_model("builtin:de-en", int8=True))


def test_a_processor_without_bytes_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("knnmt.bytewise.has_bytes", lambda _: False)
    with pytest.raises(SettingsError, match="--int8: this processor has no product of bytes"):
        layers_in_bytes(tiny_model("marian").network)


def test_not_with_the_plain_method(run: Run) -> None:
    result = run("translate", "--model", "builtin:de-en", "--exact", "--int8")
    assert (result.code, result.out) == (2, "")
    assert "--int8: not with --exact" in result.err
