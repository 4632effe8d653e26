"""Cross-attention of every kind of network, and that networks stay as they were."""

import numpy as np
import pytest
import torch
from tiny_models import ARCHITECTURES, tiny_model

from knnmt import Translator
from knnmt.engine import attention
from knnmt.engine.attention import cross_attention, mean_attention, plain_attention
from knnmt.engine.marian import encode
from knnmt.engine.runtime import Encodings, keeping_encodings, runtime_of
from knnmt.models.network import Network
from knnmt.models.translation_model import TranslationModel
from knnmt.switches import VARIABLE
from knnmt.translate.aligning import Aligner
from knnmt.translate.settings import TranslateSettings

SOURCES, TARGETS = ["Guten Tag", "Laden Sie den Akku auf"], ["Good day", "Charge the battery"]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_each_token_has_its_weights(name: str) -> None:
    model = tiny_model(name)
    sources, targets = model.encode_sources(SOURCES), model.encode_targets(TARGETS)
    before = getattr(model.network.config, "_attn_implementation", None)
    together = cross_attention(model, sources, targets)
    assert getattr(model.network.config, "_attn_implementation", None) == before
    for row, weights in enumerate(together):
        assert weights.shape[0] == 2
        assert weights.shape[3:] == (len(targets[row]), len(sources[row]))
        assert np.allclose(weights[0].sum(axis=-1), 1, atol=1e-4)
        assert np.allclose(weights[1, :, :, :-1].sum(axis=-1), 1, atol=1e-4)
        assert not weights[1, :, :, -1].any()
        assert np.allclose(weights[1, :, :, :-1], weights[0, :, :, 1:])
        alone = cross_attention(model, [sources[row]], [targets[row]])[0]
        assert np.allclose(alone, weights, atol=1e-4)


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("heads", [[(0, 0, 0)], [(0, 0, 1), (1, 0, 0), (0, 1, 1)], [(1, 1, 0)]])
def test_the_mean_of_some_heads(name: str, heads: list[tuple[int, int, int]]) -> None:
    model = tiny_model(name)
    sources, targets = model.encode_sources(SOURCES), model.encode_targets(TARGETS)
    every = cross_attention(model, sources, targets)
    for weights, mean in zip(every, mean_attention(model, sources, targets, heads), strict=True):
        assert np.allclose(mean, np.mean([weights[head] for head in heads], axis=0), atol=1e-4)


@pytest.mark.parametrize("pairs", [2, 1])  # with padding, and without
def test_a_marian_network_run_directly_attends_as_the_network_does(
    pairs: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="knnmt")
    model = tiny_model("marian")
    sources, targets = model.encode_sources(SOURCES[:pairs]), model.encode_targets(TARGETS[:pairs])
    directly = cross_attention(model, sources, targets)
    assert "direct: not taken" not in caplog.text
    monkeypatch.setenv(VARIABLE, "direct")
    plainly = cross_attention(model, sources, targets)
    assert "direct: not taken: KNNMT_PLAIN" in caplog.text
    for ours, theirs in zip(directly, plainly, strict=True):
        assert ours.shape == theirs.shape
        assert np.allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("known", [2, 1])
def test_what_was_translated_is_not_encoded_again(known: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("marian")
    sources, targets = model.encode_sources(SOURCES), model.encode_targets(TARGETS)
    expected = cross_attention(model, sources, targets)
    encoded: list[int] = []

    def counted(network: Network, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        encoded.append(len(ids))
        return encode(network, ids, mask)

    monkeypatch.setattr(attention, "encode", counted)
    with keeping_encodings(model.network):
        Translator(model, None, TranslateSettings(beam=2)).translate(SOURCES[:known])
        found = cross_attention(model, sources, targets)
        monkeypatch.setattr(TranslationModel, "fitting_sources", lambda _, texts: (texts, []))
        again = Aligner(model).source_tokens(SOURCES)
    assert again == [*sources[:known], *SOURCES[known:]]  # only what is new was tokenized
    assert encoded == ([] if known == 2 else [1])
    for ours, theirs in zip(found, expected, strict=True):
        assert np.allclose(ours, theirs, atol=1e-4)
    assert runtime_of(model.network).encodings is None


def test_not_more_is_kept_than_there_is_room_for() -> None:
    kept = Encodings()
    kept.room = 3
    ids, mask = torch.tensor([[5, 6], [7, 0], [8, 9]]), torch.tensor([[1, 1], [1, 0], [1, 1]])
    kept.keep(ids, mask, torch.ones(3, 2, 4))
    assert [None if states is None else len(states) for states in kept.find(ids, mask)] == [2, 1, None]


def test_the_projection_is_left_out_and_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "direct")
    model = tiny_model("marian")
    head = model.network.get_output_embeddings()
    with torch.inference_mode():
        before = head(torch.ones(1, head.in_features))
        cross_attention(model, model.encode_sources(SOURCES), model.encode_targets(TARGETS))
        assert torch.equal(head(torch.ones(1, head.in_features)), before)
    assert "forward" not in vars(head)


def test_plain_attention_gives_what_the_fused_one_gives() -> None:
    model = tiny_model("marian")
    inputs = model.teacher_forcing(model.encode_sources(SOURCES), model.encode_targets(TARGETS))
    with torch.inference_mode():
        expected = model.network(**inputs, use_cache=False).logits
        with plain_attention(model.network):
            assert model.network.config._attn_implementation == "eager"
            found = model.network(**inputs, use_cache=False).logits
    mask = inputs["decoder_attention_mask"].bool()
    assert torch.allclose(expected[mask], found[mask], atol=1e-4)
