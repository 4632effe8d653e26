"""Products in bfloat16: nearly those of float32, on every architecture; named in signatures; never chosen unseen."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_models import ARCHITECTURES, ENGLISH, GERMAN, tiny_folder, tiny_model
from torch import nn

from knnmt import Store, Translator
from knnmt.engine.keys import teacher_forced_keys
from knnmt.engine.packed_layers import packed_layers
from knnmt.engine.precision import dtype_of, objection_to_bfloat16
from knnmt.engine.runtime import runtime_of
from knnmt.errors import SettingsError
from knnmt.measure.evaluation import signature_of
from knnmt.measure.tuning import FEWEST_TO_COMPARE, Candidate, with_less_precision
from knnmt.models.translation_model import load_model
from knnmt.packed_weights import PackedWeights
from knnmt.switches import VARIABLE
from knnmt.translate.settings import TranslateSettings
from knnmt.translate.translator import with_precision

needs_bfloat16 = pytest.mark.skipif(objection_to_bfloat16() is not None, reason="no bfloat16 here")


@needs_bfloat16
@pytest.mark.parametrize("bias", [True, False])
def test_a_product_is_nearly_the_product(bias: bool) -> None:
    torch.manual_seed(0)
    layer, states = nn.Linear(64, 48, bias=bias), torch.randn(3, 5, 64)
    with torch.inference_mode():
        exact = layer(states)
        found = PackedWeights(layer.weight, layer.bias, torch.bfloat16).product(states)
    assert found.dtype == torch.float32
    assert (found - exact).norm() / exact.norm() < 0.01


@needs_bfloat16
@pytest.mark.parametrize("name", ARCHITECTURES)
@torch.inference_mode()
def test_keys_are_nearly_the_keys(name: str) -> None:
    model = tiny_model(name)
    inputs = model.teacher_forcing(model.encode_sources(list(GERMAN)), model.encode_targets(list(ENGLISH)))
    exact = teacher_forced_keys(model.network, model.key_site, inputs)
    with packed_layers(model.network, dtype=torch.bfloat16):
        found = teacher_forced_keys(model.network, model.key_site, inputs)
    off = (found - exact).norm() / exact.norm()
    assert 0 < off < 0.25  # large random weights make much of a rounding; real models are off by 0.005
    with packed_layers(model.network):
        again = teacher_forced_keys(model.network, model.key_site, inputs)
    torch.testing.assert_close(again, exact, atol=1e-4, rtol=1e-4)  # not what was packed in bfloat16


@needs_bfloat16
def test_a_translator_runs_its_layers_in_it_and_its_signature_says_so() -> None:
    model = load_model(str(tiny_folder("marian")))
    translator = Translator(model, None, TranslateSettings(beam=2, precision="bfloat16"))
    translator.translate(list(GERMAN))
    assert {copy.packed.dtype for copy in runtime_of(model.network).packing.copies.values()} == {torch.bfloat16}
    assert "|precision:bfloat16|" in signature_of(translator)
    plain = Translator(model, None, TranslateSettings(beam=2))
    plain.translate(list(GERMAN))
    assert {copy.packed.dtype for copy in runtime_of(model.network).packing.copies.values()} == {torch.float32}
    assert "precision" not in signature_of(plain)


@pytest.mark.parametrize("given", [None, "auto", "float32", "bfloat16"])
def test_what_a_store_was_tuned_to_fills_in_what_is_left_open(
    given: str | None, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    retriever: Any = SimpleNamespace(
        stores=[SimpleNamespace(manifest=replace(store.manifest, tuned={"k": 8, "precision": "bfloat16"}))], entries=99
    )
    for objection, chosen in ((None, "bfloat16"), ("no such processor", None)):
        monkeypatch.setattr("knnmt.translate.translator.objection_to_bfloat16", lambda found=objection: found)
        expected = chosen if given in (None, "auto") else given
        assert with_precision(retriever, TranslateSettings(precision=given)).precision == expected


class FakeScorer:
    """Every setting in bfloat16 has the BLEU given."""

    def __init__(self, bleu: float) -> None:
        self.bleu = bleu

    def scored(self, candidate: Candidate, sentences: int, _: Any = None) -> Candidate:
        return replace(candidate, bleu=self.bleu, sentences=sentences)


@needs_bfloat16
@pytest.mark.parametrize(
    ("bleu", "sentences", "chosen"),
    [
        (30.0, FEWEST_TO_COMPARE, "bfloat16"),
        (29.91, FEWEST_TO_COMPARE, "bfloat16"),
        (29.8, FEWEST_TO_COMPARE, None),
        (30.0, FEWEST_TO_COMPARE - 1, None),
    ],
)
def test_tuning_chooses_it_where_bleu_stays(bleu: float, sentences: int, chosen: str | None) -> None:
    best = Candidate(TranslateSettings(k=4), "likeliest", bleu=30.0, sentences=sentences)
    scorer: Any = FakeScorer(bleu)
    assert with_less_precision(scorer, [best])[0].settings.precision == chosen


def test_what_cannot_be_had_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match=r"^--precision int4: must be one of auto, float32, bfloat16$"):
        TranslateSettings(precision="int4")
    monkeypatch.setattr("knnmt.engine.precision.has_bfloat16", lambda: False)
    with pytest.raises(SettingsError, match=r"^--precision bfloat16: "):
        dtype_of("bfloat16")
    monkeypatch.setenv(VARIABLE, "packed")
    with pytest.raises(SettingsError, match=r"^--precision bfloat16: KNNMT_PLAIN$"):
        dtype_of("bfloat16")
    network = tiny_model("marian").network
    with (
        pytest.raises(SettingsError, match=r"^--precision bfloat16: KNNMT_PLAIN$"),
        packed_layers(network, dtype=torch.bfloat16),
    ):
        pass
