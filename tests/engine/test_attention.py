"""Cross-attention of every kind of network, and that networks stay as they were."""

import numpy as np
import pytest
import torch
from tiny_models import ARCHITECTURES, tiny_model

from knnmt.engine.attention import cross_attention, plain_attention
from knnmt.switches import VARIABLE

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
