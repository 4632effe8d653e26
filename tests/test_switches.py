"""Every fast path can be switched off, says so in the log, and its plain twin gives the same."""

import logging

import numpy as np
import pytest
import torch
from tiny_models import GERMAN, tiny_folder

from knnmt import Translator
from knnmt.engine.marian import MarianDecoder
from knnmt.engine.runtime import runtime_of
from knnmt.engine.stepping import Stepper
from knnmt.errors import SettingsError
from knnmt.models.batching import pad
from knnmt.models.translation_model import TranslationModel, load_model
from knnmt.search.centroids import MANY, Centroids
from knnmt.switches import FAST_PATHS, VARIABLE, left_out
from knnmt.translate.settings import TranslateSettings


def own_marian() -> TranslationModel:
    return load_model(str(tiny_folder("marian")))


def begun(model: TranslationModel) -> Stepper:
    ids, mask = pad(model.encode_sources(list(GERMAN)), model.padding)
    stepper = Stepper(model, 2, quick=True)
    with torch.inference_mode(), stepper.attached():
        stepper.begin(ids, mask)
    return stepper


@pytest.mark.parametrize("value", ["", "packed", "packed, int8", "all", "direct,centroids,"])
def test_names(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, value)
    named = [name.strip() for name in value.split(",")]
    assert {path: left_out(path) for path in FAST_PATHS} == {
        path: path in named or "all" in named for path in FAST_PATHS
    }


def test_an_unknown_name_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "packed,quick")
    with pytest.raises(SettingsError, match=r"^KNNMT_PLAIN: 'quick' is no fast path; there are all, packed, direct"):
        left_out("int8")


@pytest.mark.parametrize("path", ["packed", "direct", "int8", "halves"])
def test_a_path_that_is_not_taken_says_so_once(
    path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, path)
    model = own_marian()
    with caplog.at_level(logging.DEBUG, "knnmt.engine"):
        begun(model)
        begun(model)
    assert caplog.messages.count(f"{path}: not taken: KNNMT_PLAIN") == 1


def test_why_a_path_is_not_taken(caplog: pytest.LogCaptureFixture) -> None:
    model = own_marian()
    model.network.train()
    with caplog.at_level(logging.DEBUG, "knnmt.engine"):
        begun(model)
    assert "direct: not taken: the network is in training" in caplog.messages
    assert "int8: not taken: a vocabulary below 16,384 tokens" in caplog.messages


def test_plain_means_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    model = own_marian()
    begun(model)
    assert isinstance(begun(model).decoder, MarianDecoder)
    monkeypatch.setenv(VARIABLE, "all")
    stepper = begun(model)
    assert not isinstance(stepper.decoder, MarianDecoder)
    assert not runtime_of(model.network).packing.copies


@pytest.mark.parametrize("value", [*FAST_PATHS, "all"])
def test_translations_are_the_same_without_a_path(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = TranslateSettings(beam=3, weight=0)
    expected = Translator(own_marian(), None, settings).translate(list(GERMAN))
    monkeypatch.setenv(VARIABLE, value)
    assert Translator(own_marian(), None, settings).translate(list(GERMAN)) == expected


def test_centroids_without_codes(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    random = np.random.default_rng(0)
    centroids = random.normal(size=(MANY, 128)).astype(np.float32)
    queries = centroids[:50] + 0.1 * random.normal(size=(50, 128)).astype(np.float32)
    coded = Centroids(centroids)
    monkeypatch.setenv(VARIABLE, "centroids")
    with caplog.at_level(logging.DEBUG, "knnmt.search"):
        plain = Centroids(centroids)
    assert (coded.coded is None, plain.coded is None) == (False, True)
    assert "centroids: not taken: KNNMT_PLAIN" in caplog.messages
    np.testing.assert_array_equal(coded.nearest(queries, 1)[1], plain.nearest(queries, 1)[1])
