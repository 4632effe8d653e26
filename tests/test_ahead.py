"""Searching ahead against searching when asked: the same translations, and nothing left changed."""

import pytest
import torch
from tiny_models import tiny_model

from knnmt import Store, Translator
from knnmt.ahead import SMALL, rows_of_small_steps
from knnmt.decoding import SearchSettings
from knnmt.demo import read_demo
from knnmt.model import TranslationModel
from knnmt.retrieval import Neighbours, Retriever

TEXTS = [segment.source for segment in read_demo("test")[:6]]


def translations(monkeypatch: pytest.MonkeyPatch, translator: Translator, few: int) -> list[tuple[int, ...]]:
    monkeypatch.setattr("knnmt.decoding.rows_of_small_steps", lambda _: few)
    return [translation.tokens for translation in translator.translations(TEXTS)]


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("certain", [1.0, 0.5])
def test_the_same_is_found(
    monkeypatch: pytest.MonkeyPatch, store: Store, embedded: TranslationModel, exact: bool, certain: float
) -> None:
    settings = SearchSettings(k=8, exact=exact, certain=certain)
    translator = Translator(embedded, Retriever([store]), settings)
    threads = torch.get_num_threads()
    plain = translations(monkeypatch, translator, few=0)
    asked = translator.asked.retrieved
    assert translations(monkeypatch, translator, few=SMALL) == plain
    assert translations(monkeypatch, translator, few=15) == plain  # only when most sentences have ended
    assert translator.asked.retrieved == 3 * asked
    assert torch.get_num_threads() == threads


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
        translations(monkeypatch, translator, few=SMALL)
    assert torch.get_num_threads() == threads
    assert translator.base().translate([TEXTS[0]])[0]  # and no hook is left behind


def test_what_counts_as_few(embedded: TranslationModel) -> None:
    assert 5 <= rows_of_small_steps(embedded.network) < 32
    assert rows_of_small_steps(tiny_model("marian").network) > 1000
