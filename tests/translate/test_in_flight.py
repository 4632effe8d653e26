"""Two batches in flight: the same translations, and one batch goes on while the other one waits."""

import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from knnmt import Store, Translator
from knnmt.cli.demo import read_demo
from knnmt.engine.runtime import lock_of, runtime_of
from knnmt.mixing.neighbours import Neighbours
from knnmt.retrieval.local_retriever import LocalRetriever

TEXTS = [pair.source for pair in read_demo("test")[:6]]


class Waiting(LocalRetriever):
    """Searches as if other machines did it; notes how many batches wait at the same time."""

    waits = True

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.together, self.most, self.fails_at, self.asked = 0, 0, 0, 0
        self.both = threading.Event()

    def search(self, queries: NDArray[np.float32], k: int) -> Neighbours:
        self.together, self.asked = self.together + 1, self.asked + 1
        self.most = max(self.most, self.together)
        if self.together == 2:
            self.both.set()
        self.both.wait(timeout=60 if self.asked == 1 else 0)  # only the second batch can end the first wait
        self.together -= 1
        if self.asked == self.fails_at:
            raise ValueError("a shard is gone")
        return super().search(queries, k)


def waiting_on(store: Store, **options: Any) -> tuple[Translator, Waiting]:
    translator = Translator.from_store(store.path, k=8, searched_by=Waiting, **options)
    assert isinstance(translator.retriever, Waiting)
    return translator, translator.retriever


def texts_of(translator: Translator) -> list[str]:
    return [one.text for one in translator.translations(TEXTS, batch_tokens=24)]


@pytest.mark.parametrize("plain", ["compiled", "compiled,direct", "compiled,packed"])
def test_the_translations_are_the_same(store: Store, plain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the network is run: each batch has a decoder of its own. Whether a graph runs it is a matter of speed."""
    monkeypatch.setenv("KNNMT_PLAIN", plain)
    expected = texts_of(Translator.from_store(store.path, k=8))
    translator, retriever = waiting_on(store)
    assert texts_of(translator) == expected
    assert retriever.most == 2
    assert runtime_of(translator.model).host is None
    assert not [name for name, module in translator.model.named_modules() if "forward" in vars(module)]


def test_the_switch(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KNNMT_PLAIN", "turns,compiled")
    translator, retriever = waiting_on(store)
    retriever.both.set()
    assert texts_of(translator) == texts_of(Translator.from_store(store.path, k=8))
    assert retriever.most == 1


def test_counts_of_searches_are_the_same(store: Store) -> None:
    local, (waiting, _) = Translator.from_store(store.path, k=8), waiting_on(store)
    texts_of(local), texts_of(waiting)
    assert waiting.asked == local.asked


def test_an_error_is_raised_and_the_network_is_free(store: Store) -> None:
    translator, retriever = waiting_on(store)
    retriever.fails_at = 5
    with pytest.raises(ValueError, match="a shard is gone"):
        texts_of(translator)
    taken = threading.Thread(target=lambda: lock_of(translator.model).acquire())
    taken.start()
    taken.join(10)
    assert not taken.is_alive()


def test_local_search_does_not_take_turns(store: Store) -> None:
    assert not LocalRetriever.waits
