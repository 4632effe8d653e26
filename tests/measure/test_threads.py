"""One model in several threads: building, tuning, explaining and `generate` beside translating.

Everything that runs a network puts hooks on it and sees every forward pass, so each holds the network's lock.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import ENGLISH, GERMAN, tiny_folder, tiny_model

from knnmt import Corpus, Store, Translator, attach_retrieval, build_store
from knnmt.measure.tuning import tune
from knnmt.models.translation_model import TranslationModel, load_model
from knnmt.translate.settings import TranslateSettings

NAMES = ("marian", "bart")  # run directly; run by its own forward pass
TIMES = 2


@contextmanager
def translating_beside(model: TranslationModel) -> Iterator[None]:
    """Inside, another thread translates with the model; afterwards all of its translations must have been right."""
    translator = Translator(model, None, TranslateSettings(beam=2, weight=0))
    expected, ended, wrong = translator.translate(list(GERMAN)), threading.Event(), []
    turns = 0

    def work() -> None:
        nonlocal turns
        while not ended.is_set():
            try:
                if translator.translate(list(GERMAN)) != expected:
                    wrong.append("another translation")
            except Exception as error:
                wrong.append(repr(error))
            turns += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert wrong == []
    assert turns > 0


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    file = tmp_path / "memory.tsv"
    file.write_text("".join(f"{one}\t{other}\n" for one, other in zip(GERMAN, ENGLISH, strict=True)), encoding="utf-8")
    return Corpus(file)


def built(store: Store) -> Any:
    return np.array(store.gather("keys", np.arange(store.entries)))


def tuned(path: Path, model: TranslationModel) -> Any:
    translator = Translator.from_store(path, k=4, beam=2)
    own = Translator(model, translator.retriever, translator.settings)
    return tune(own, list(GERMAN), list(ENGLISH)).surface.likelihoods


def explained(path: Path, model: TranslationModel) -> Any:
    translator = Translator.from_store(path, k=4, beam=2)
    found = Translator(model, translator.retriever, translator.settings).explain(GERMAN[0])
    return [found.translation]


def generated(path: Path, model: TranslationModel) -> Any:
    with attach_retrieval(model.network, path, tokenizer=model.tokenizer, k=4):
        ids = model.tokenizer(GERMAN[0], return_tensors="pt")
        return model.network.generate(**ids, num_beams=2, max_length=12).numpy()


@pytest.mark.parametrize("name", NAMES)
def test_a_build_beside_translating(name: str, corpus: Corpus, tmp_path: Path) -> None:
    model = load_model(str(tiny_folder(name)))
    expected = built(build_store(tmp_path / "alone", model, [corpus]))
    with translating_beside(model):
        for turn in range(TIMES):
            found = built(build_store(tmp_path / f"beside-{turn}", model, [corpus]))
            np.testing.assert_allclose(found, expected, atol=2e-3)


@pytest.mark.parametrize("work", [tuned, explained, generated], ids=lambda work: work.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_other_work_beside_translating(
    name: str, work: Callable[[Path, TranslationModel], Any], corpus: Corpus, tmp_path: Path
) -> None:
    model = tiny_model(name)
    path = build_store(tmp_path / "store", model, [corpus]).path
    expected = work(path, model)
    with translating_beside(model):
        for _ in range(TIMES):
            found = work(path, model)
            if work is tuned:
                np.testing.assert_allclose(found, expected, atol=1e-3)
            else:
                np.testing.assert_array_equal(found, expected)
