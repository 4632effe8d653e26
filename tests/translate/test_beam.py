"""Our beam search against `generate`, token for token, on every architecture."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from retrievers import ArrayRetriever
from tiny_models import ARCHITECTURES, GERMAN, tiny_folder, tiny_model

from knnmt import Store, Translator
from knnmt.cli.demo import read_demo
from knnmt.engine.stepping import Stepper
from knnmt.models.batching import pad
from knnmt.models.translation_model import TranslationModel, load_model
from knnmt.retrieval.local_retriever import LocalRetriever
from knnmt.translate.beam import BeamRules, Finished, rules_of
from knnmt.translate.settings import TranslateSettings
from knnmt.translate.translator import text_tokens


class RandomMemory(ArrayRetriever):
    """Random keys of the right dimension."""

    def __init__(self, model: TranslationModel, entries: int = 200) -> None:
        random = np.random.default_rng(4)
        keys = random.normal(size=(entries, model.dimension)).astype(np.float32)
        vocabulary = int(model.network.get_output_embeddings().weight.shape[0])
        super().__init__(keys, random.integers(4, vocabulary, entries))


def by_generate(translator: Translator, texts: list[str]) -> list[tuple[int, ...]]:
    """What the model's own `generate` gives, one sentence at a time so that no batch can matter."""
    model = translator.translation_model
    outputs = []
    for text in texts:
        ids = torch.tensor(model.encode_sources([text]))
        with torch.inference_mode(), translator.retrieving():
            output = model.network.generate(input_ids=ids, num_beams=translator.settings.beam, **model.generation)
        outputs.append(tuple(text_tokens(output[0].tolist(), model)))
    return outputs


def by_beam_search(translator: Translator, texts: list[str]) -> list[tuple[int, ...]]:
    assert rules_of(translator.translation_model, 5) is not None
    return [translation.tokens for translation in translator.translations(texts)]


@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_model_alone(name: str, beam: int) -> None:
    translator = Translator(tiny_model(name), None, TranslateSettings(beam=beam, weight=0, exact=True))
    assert by_beam_search(translator, list(GERMAN)) == by_generate(translator, list(GERMAN))


@pytest.mark.parametrize("weight", [0.3, 1.0])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_with_neighbours(name: str, weight: float) -> None:
    model = tiny_model(name)
    settings = TranslateSettings(k=8, temperature=3.0, weight=weight, beam=4, exact=True)
    memory = RandomMemory(model)
    translator = Translator(model, memory, settings)
    assert by_beam_search(translator, list(GERMAN)) == by_generate(translator, list(GERMAN))


class MemoryOfEnds(RandomMemory):
    """A memory in which most sentences end at once."""

    def __init__(self, model: TranslationModel) -> None:
        super().__init__(model)
        self.tokens[::2] = model.end_token


@pytest.mark.parametrize("name", ["marian", "mbart-50", "t5"])
def test_what_neighbours_give_to_a_banned_token_is_shared_out(name: str) -> None:
    """With a minimum length, the end token is banned; what it would have had goes to the others, as in `generate`."""
    model = tiny_model(name)
    memory = MemoryOfEnds(model)
    translator = Translator(model, memory, TranslateSettings(k=8, temperature=3.0, weight=0.6, beam=4, exact=True))
    with changed(model.network.generation_config, {"min_length": 9, "renormalize_logits": True}):
        assert by_beam_search(translator, list(GERMAN)) == by_generate(translator, list(GERMAN))


CHANGES = [
    {"length_penalty": 0.2},
    {"length_penalty": 2.0},
    {"early_stopping": True},
    {"early_stopping": "never"},
    {"min_length": 9},
    {"max_length": 7},
    {"suppress_tokens": [5, 6, 7]},
    {"suppress_tokens": [5, 6, 7], "renormalize_logits": True},
]


@contextmanager
def changed(settings: Any, changes: dict[str, Any]) -> Iterator[None]:
    before = {name: getattr(settings, name) for name in changes}
    for name, value in changes.items():
        setattr(settings, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(settings, name, value)


@pytest.mark.parametrize("changes", CHANGES, ids=str)
@pytest.mark.parametrize("name", ["marian", "mbart-50", "t5"])
def test_the_model_s_own_rules(name: str, changes: dict[str, Any]) -> None:
    model = tiny_model(name)
    translator = Translator(model, None, TranslateSettings(beam=4, weight=0, exact=True))
    with changed(model.network.generation_config, changes):
        assert by_beam_search(translator, list(GERMAN)) == by_generate(translator, list(GERMAN))


@pytest.mark.parametrize(("beam", "moves"), [(1, False), (4, True)])
def test_caches_are_not_touched_where_rows_stay_in_place(
    beam: int, moves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(Stepper, "keep", recording(Stepper.keep, kept))
    translator = Translator(tiny_model("marian"), None, TranslateSettings(beam=beam, weight=0, exact=True))
    assert len(translator.translations([GERMAN[0]])[0].tokens) > 2
    assert bool(kept) == moves


def recording(method: Any, calls: list[Any]) -> Any:
    def recorded(*given: Any) -> Any:
        calls.append(given)
        return method(*given)

    return recorded


def test_a_model_without_a_limit_of_its_own_is_not_cut_short() -> None:
    """`generate` would stop after 20 tokens."""
    model = tiny_model("t5")
    translator = Translator(model, None, TranslateSettings(beam=2, weight=0, exact=True))
    with changed(model.network.generation_config, {"max_length": None}):
        lengths = [len(translation.tokens) for translation in translator.translations(list(GERMAN))]
    assert max(lengths) > 24


@pytest.mark.parametrize(
    "foreign", [{"no_repeat_ngram_size": 2}, {"repetition_penalty": 1.3}, {"bad_words_ids": [[5, 6]]}]
)
def test_rules_that_only_generate_knows_are_left_to_it(foreign: dict[str, Any]) -> None:
    model = tiny_model("marian")
    translator = Translator(model, None, TranslateSettings(beam=3, weight=0, exact=True))
    with changed(model.network.generation_config, foreign):
        assert rules_of(model, 3) is None
        outputs = [translation.tokens for translation in translator.translations(list(GERMAN))]
        assert outputs == by_generate(translator, list(GERMAN))


def test_weights_that_change_between_translations() -> None:
    model = load_model(str(tiny_folder("marian")))
    translator = Translator(model, None, TranslateSettings(beam=3, weight=0, exact=True))
    before = by_beam_search(translator, list(GERMAN))
    with torch.no_grad():
        model.network.get_output_embeddings().weight.mul_(-1)
    after = by_beam_search(translator, list(GERMAN))
    assert after == by_generate(translator, list(GERMAN)) != before


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_real_sentences(store: Store, embedded: TranslationModel, weight: float) -> None:
    settings = TranslateSettings(k=8, weight=weight, exact=True)
    translator = Translator(embedded, LocalRetriever([store]), settings)
    texts = [segment.source for segment in read_demo("test")[20:32]]
    assert by_beam_search(translator, texts) == by_generate(translator, texts)


RULES = BeamRules(
    beam=2,
    max_length=10,
    min_length=0,
    end=0,
    forced_end=None,
    banned=(),
    renormalize=False,
    length_penalty=1.0,
    early_stopping=False,
)


def test_finished_hypotheses_are_ranked_by_score_over_length() -> None:
    finished = Finished(RULES)
    for total, length in ((-6.0, 2), (-4.0, 4), (-5.0, 2)):
        finished.add(total, [length], length)
    assert [hypothesis.total for hypothesis in finished.best] == [-4.0, -5.0]
    assert [(hypothesis.score, hypothesis.tokens) for hypothesis in finished.best] == [(-1.0, [4]), (-2.5, [2])]
    assert not finished.cannot_improve(-7.4, 3)
    assert finished.cannot_improve(-7.6, 3)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_without_exactness_scores_are_nearly_the_same(name: str) -> None:
    model = tiny_model(name)
    exact, quick = (Translator(model, None, TranslateSettings(weight=0, exact=exact)) for exact in (True, False))
    pairs = zip(exact.translations(list(GERMAN)), quick.translations(list(GERMAN)), strict=True)
    same = [(one.log_probability, other.log_probability) for one, other in pairs if one.tokens == other.tokens]
    assert len(same) > len(GERMAN) / 2
    for one, other in same:
        assert other == pytest.approx(one, abs=0.1)


@pytest.mark.parametrize(
    ("certain", "exact", "skipped"), [(1.0, False, 0), (1e-9, False, 1), (1e-9, True, 0)], ids=["ask", "skip", "exact"]
)
def test_where_the_model_is_certain_nothing_is_retrieved(certain: float, exact: bool, skipped: float) -> None:
    model = tiny_model("marian")
    memory = RandomMemory(model)
    translator = Translator(model, memory, TranslateSettings(k=8, certain=certain, exact=exact))
    found = translator.translations(list(GERMAN))
    assert translator.asked.share_skipped == skipped
    assert translator.asked.retrieved + translator.asked.skipped > 0
    if skipped:
        assert [one.tokens for one in found] == [one.tokens for one in translator.base().translations(list(GERMAN))]


def test_generate_does_without_neighbours_at_the_same_steps(store: Store) -> None:
    translator = Translator.from_store(store.path, k=8, beam=2, certain=0.5)
    model, texts = translator.translation_model, [pair.source for pair in read_demo("test")[:4]]
    ours = [one.tokens for one in translator.translations(texts)]
    assert 0 < translator.asked.share_skipped < 1
    ids, mask = pad(model.fitting_sources(texts)[0], model.padding)
    assert [tuple(one.tokens) for one in translator._generate(ids, mask)] == ours
    always = Translator.from_store(store.path, k=8, beam=2)
    assert [one.tokens for one in always.translations(texts)] != ours


@pytest.mark.parametrize("name", ["no_repeat_ngram_size", "a_rule_of_next_year"])
def test_a_setting_that_is_not_understood_is_left_to_generate(name: str) -> None:
    model = tiny_model("marian")
    settings = model.network.generation_config
    assert rules_of(model, 5) is not None
    setattr(settings, name, 3)
    try:
        assert rules_of(model, 5) is None
    finally:
        delattr(settings, name) if name == "a_rule_of_next_year" else setattr(settings, name, None)
    assert rules_of(model, 5) is not None
