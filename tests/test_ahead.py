"""Searching ahead against searching when asked: the same translations, and nothing left changed."""

import pytest
import torch
from tiny_models import GERMAN, tiny_model

from knnmt import Store, Translator
from knnmt.ahead import SMALL, is_small_step
from knnmt.decoding import SearchSettings
from knnmt.demo import read_demo
from knnmt.model import TranslationModel
from knnmt.retrieval import Neighbours, Retriever

TEXTS = [segment.source for segment in read_demo("test")[:6]]


def translations(monkeypatch: pytest.MonkeyPatch, translator: Translator, *, ahead: bool) -> list[tuple[int, ...]]:
    monkeypatch.setattr("knnmt.translator.is_small_step", lambda *_: ahead)
    return [translation.tokens for translation in translator.translations(TEXTS)]


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("certain", [1.0, 0.5])
def test_the_same_is_found(
    monkeypatch: pytest.MonkeyPatch, store: Store, embedded: TranslationModel, exact: bool, certain: float
) -> None:
    settings = SearchSettings(k=8, exact=exact, certain=certain)
    translator = Translator(embedded, Retriever([store]), settings)
    plain = translations(monkeypatch, translator, ahead=False)
    asked = translator.asked.retrieved
    assert translations(monkeypatch, translator, ahead=True) == plain
    assert translator.asked.retrieved == 2 * asked


def test_threads_are_given_back_even_after_a_failure(
    monkeypatch: pytest.MonkeyPatch, store: Store, embedded: TranslationModel
) -> None:
    class Broken(Retriever):
        def search(self, *_: object) -> Neighbours:
            assert torch.get_num_threads() == 1
            raise OSError("the disk is gone")

    threads = torch.get_num_threads()
    translator = Translator(embedded, Broken([store]), SearchSettings(k=8))
    with pytest.raises(OSError, match="the disk is gone"):
        translations(monkeypatch, translator, ahead=True)
    assert torch.get_num_threads() == threads
    assert translator.base().translate([TEXTS[0]])[0]  # and no hook is left behind


def test_what_counts_as_small(embedded: TranslationModel) -> None:
    assert is_small_step(embedded.network, 5)
    assert not is_small_step(embedded.network, 160)
    tiny = tiny_model("marian").network
    assert is_small_step(tiny, len(GERMAN))
    assert not is_small_step(tiny, SMALL)
