"""Fitting: leaving out, what stores keep of it, when they are fitted anew, and what is refused."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import Run

from knnmt import SettingsError, Store, StoreError, Translator
from knnmt.layout.manifest import read_manifest
from knnmt.layout.records import HASHES, MixingRecord
from knnmt.measure.fitting import ComparedMixers, fit_mixing, general_sentences, learn_with, write_files
from knnmt.mixing.head_mixer import HeadMixer, head_bytes
from knnmt.mixing.heads import LearnedHead
from knnmt.models.translation_model import TranslationModel
from knnmt.retrieval.local_retriever import LocalRetriever
from knnmt.store.removing import remove_from_store
from knnmt.store.versions import changing, commit
from knnmt.text.languages import base_language
from knnmt.translate.leave_one_out import LeavingOut, near_copies, remaining, sampled
from knnmt.translate.mixer_choice import coverage_of, covered, head_of, known_variance, usual_values, variance_of
from knnmt.translate.observing import forced, search_for
from knnmt.translate.settings import TranslateSettings

LANGUAGES = ("de", "en", "es", "fr", "it", "ja", "pt", "ru", "zh")


@pytest.fixture(scope="module")
def model(store: Store) -> TranslationModel:
    return Translator.from_store(store.path).translation_model


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the small stores of tests are fitted, quickly."""
    monkeypatch.setattr("knnmt.measure.fitting.FEWEST_SEGMENTS", 10)
    monkeypatch.setattr("knnmt.measure.fitting.GENERAL_SENTENCES", 6)
    monkeypatch.setattr("knnmt.translate.leave_one_out.seen_text.__kwdefaults__", {"segments": 30})
    monkeypatch.setattr("knnmt.mixing.training.STEPS", 20)


@pytest.fixture
def copied(store: Store, tmp_path: Path) -> Store:
    return Store.open(shutil.copytree(store.path, tmp_path / "store"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_general_sentences_are_a_few_hundred_and_all_different(language: str) -> None:
    sentences = general_sentences(language)
    assert len(sentences) == len(set(sentences)) == 240
    assert all(sentence.strip() == sentence for sentence in sentences)
    units = [len(one) / 2 if language in ("zh", "ja") else len(one.split()) for one in sentences]
    assert min(units) < 6 < 14 < max(units)


def test_a_language_without_general_sentences() -> None:
    assert general_sentences("tlh") == general_sentences(None) == []
    assert general_sentences("de_DE") == general_sentences(base_language("deu_Latn")) == general_sentences("de")


def test_no_neighbour_is_of_the_sentence_itself_or_of_the_same_source(store: Store, model: TranslationModel) -> None:
    numbers = sampled(store, 12)
    pairs = store.segments_at(numbers)
    sources = model.encode_sources([pair.source for pair in pairs])
    targets = model.encode_targets([pair.target for pair in pairs])
    retriever, leaving = LocalRetriever([store]), LeavingOut(store)
    for said in forced(model, sources, targets):
        found = search_for(said, retriever)
        assert (owners_of(store, found.entries)[:, 0] == numbers[said.pairs]).mean() > 0.9  # else nothing is tested
        left = leaving.out(said, found, numbers)
        owners = owners_of(store, left.entries)
        assert not (owners == numbers[said.pairs][:, None]).any()
        same = leaving.hashes[owners] == leaving.hashes[numbers[said.pairs]][:, None]
        assert not (same & (owners >= 0)).any()
        assert (np.diff(np.where(np.isfinite(left.distances), left.distances, 1e30), axis=1) >= 0).all()


def owners_of(store: Store, entries: np.ndarray) -> np.ndarray:
    owners = np.full(entries.shape, -1)
    owners[entries >= 0] = store.segment_numbers(entries[entries >= 0])
    return owners


def test_a_sentence_with_nearly_all_tokens_in_the_same_places_is_a_copy() -> None:
    owners = np.array([[7, 8], [7, 9], [7, 9], [8, 7], [9, 9]])
    hits = np.array([[True, True], [True, False], [True, True], [True, False], [True, True]])
    assert near_copies(owners, hits) == [7]


def test_what_remains_is_nearest_first() -> None:
    from knnmt.mixing.neighbours import Neighbours

    found = Neighbours(np.float32([[1, 2, 3]]), np.array([[5, 6, 7]]), np.array([[1, 2, 3]]))
    left = remaining(found, np.array([[False, True, False]]))
    assert left.distances.tolist() == [[1, 3, np.inf]]
    assert (left.entries.tolist(), left.tokens.tolist()) == ([[5, 7, -1]], [[1, 3, 0]])


def test_a_fitted_store_is_mixed_by_its_own_head(copied: Store, model: TranslationModel, few: None, run: Run) -> None:
    assert run("fit", copied.path)[0] == 0
    record = read_manifest(copied.path).mixing
    assert record
    assert (record.kind, record.covered, len(record.files)) == ("learned", copied.manifest.segments, 2)
    assert record.how["likelihood"]["fitted"] > record.how["likelihood"]["model"]
    assert record.how["general_sentences"] == 6
    translator = Translator.from_store(copied.path)
    assert isinstance(translator.mixer, HeadMixer)
    assert (
        translator.mixer.signature
        != Translator.with_memory(model, LocalRetriever([copied]), TranslateSettings()).mixer.signature
    )  # type: ignore[union-attr]
    assert run("verify", copied.path)[0] == 0
    _, out, _ = run("info", copied.path)
    assert "learned: log-likelihood per token" in out


def test_a_damaged_or_missing_head_is_named(copied: Store, model: TranslationModel, few: None, run: Run) -> None:
    fitted = fit_mixing(copied.path, model)
    name = fitted.manifest.mixing.named(".safetensors")  # type: ignore[union-attr]
    file = copied.path / str(name)
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    code, _, err = run("verify", copied.path)
    assert (code, str(name) in err) == (2, True)
    file.unlink()
    code, _, err = run("evaluate", "--store", copied.path, "--source", __file__, "--target", __file__, "--limit", 1)
    assert (code, str(name) in err, "Traceback" in err) == (2, True, False)


def test_a_head_for_another_model_is_refused(copied: Store) -> None:
    with changing(copied.path) as now:
        content = head_bytes(LearnedHead(), {"model": "somebody else's"})
        files = write_files(now, {"mixing-{:06d}.safetensors": content})
        commit(now, "strange", mixing=MixingRecord("learned", 0, 1.0, files, {}))
    with pytest.raises(StoreError, match="fitted for another model"):
        head_of(Store.open(copied.path), "learned")


def test_a_paper_store_can_still_be_mixed_by_a_head(copied: Store, model: TranslationModel) -> None:
    fitted = fit_mixing(copied.path, model, kind="paper")
    assert known_variance(fitted) == variance_of(fitted) > 0
    mixer = Translator.from_store(copied.path, mixing="learned").mixer
    assert isinstance(mixer, HeadMixer)
    assert mixer.variance > 0
    assert Translator.from_store(copied.path).mixer.temperature == 10  # type: ignore[union-attr]


def test_fixed_values_that_nobody_chose_have_a_temperature_of_the_stores_own(copied: Store) -> None:
    temperature = usual_values(copied)["temperature"]
    assert temperature == pytest.approx(0.08 * variance_of(copied))
    assert Translator.from_store(copied.path, k=8).mixer.temperature == temperature  # type: ignore[union-attr]
    assert Translator.from_store(copied.path, k=8, temperature=3).mixer.temperature == 3  # type: ignore[union-attr]
    assert Translator.from_store(copied.path, mixing="paper").mixer.temperature == 10  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["adaptive", "robust"])
def test_a_store_too_small_for_a_kind(copied: Store, model: TranslationModel, kind: str) -> None:
    with pytest.raises(SettingsError, match="are the fewest to fit it to"):
        fit_mixing(copied.path, model, kind=kind)


def test_a_fit_forgets_what_the_store_was_tuned_to_only_if_asked(copied: Store, model: TranslationModel) -> None:
    with changing(copied.path) as now:
        commit(now, "tuned", tuned={"k": 3, "temperature": 5.0, "weight": 0.1})
    assert fit_mixing(copied.path, model).manifest.tuned
    assert fit_mixing(copied.path, model, keep_tuning=False).manifest.tuned is None


def test_what_is_added_later_counts_as_covered(copied: Store, model: TranslationModel, run: Run) -> None:
    fit_mixing(copied.path, model)
    new = copied.path.parent / "new.tsv"
    new.write_text("Zwergplaneten umkreisen Quasare.\tDwarf planets orbit quasars.\n", encoding="utf-8")
    (tokens,) = model.encode_sources(["Zwergplaneten umkreisen Quasare."])
    before = covered(Store.open(copied.path), model).shares(tokens[:-1])
    assert run("add", copied.path, "--corpus", new)[0] == 0
    grown = Store.open(copied.path)
    assert before[2] < covered(grown, model).shares(tokens[:-1])[2] == 1.0
    assert covered(grown, model) == coverage_of(grown, model)


def test_copies_make_nothing_more_known(copied: Store, model: TranslationModel) -> None:
    """A memory full of duplicates: leaving one out, its copies are left out of the coverage too."""
    first = next(iter(copied.all_segments()))
    hashes = np.concatenate([np.asarray(column)[:, 0] for column in copied.columns(HASHES)])
    alone = coverage_of(copied, model).shares(model.encode_sources([first.source])[0], without_itself=True)
    assert alone[2] < 1
    doubled = coverage_of(copied, model)
    doubled.add([])
    assert doubled == coverage_of(copied, model)
    assert len(np.unique(hashes)) <= copied.manifest.segments


@pytest.mark.parametrize(("before", "now", "anew"), [(100, 149, False), (100, 151, True), (100, 66, True)])
def test_grown_or_shrunk_by_half(before: int, now: int, anew: bool) -> None:
    assert MixingRecord("learned", 0, 1.0, {}, {"segments": before}).outgrown(now) is anew


def test_a_store_that_shrank_is_not_at_once_outgrown(copied: Store, model: TranslationModel) -> None:
    """The segments that are counted are those that are left."""
    remove_from_store(copied.path, segments=list(range(copied.manifest.segments // 2)))
    fitted = fit_mixing(copied.path, model)
    assert fitted.manifest.mixing
    assert not fitted.manifest.mixing.outgrown(fitted.live_segments)


def test_several_ways_to_mix_in_one_comparison(copied: Store, few: None) -> None:
    """What the store has is used; what it has not is fitted on what was seen of the memory once."""
    translator = Translator.from_store(copied.path)
    fitter = ComparedMixers(translator)
    names = {kind: fitter.mixer(kind).signature for kind in ("learned", "robust", "adaptive", "fixed", "paper")}
    assert fitter.fitted_now == ["learned", "robust", "adaptive", "fixed"]
    assert {kind for kind in ("learned", "robust", "adaptive") if f"mixing:{kind}@" in names[kind]} == {
        "learned",
        "robust",
        "adaptive",
    }
    assert names["paper"] == "k:64|T:10|weight:0.5"
    assert names["fixed"] != names["paper"]


def test_text_with_known_translations_joins_the_memorys(copied: Store, few: None) -> None:
    translator = Translator.from_store(copied.path)
    pairs = list(copied.all_segments())[:5]
    without = learn_with(translator, [], [])
    learned = learn_with(translator, [pair.source for pair in pairs], [pair.target for pair in pairs])
    assert learned
    assert without
    assert learned.record
    assert without.record
    assert learned.record.how["sentences"] == without.record.how["sentences"] + 5
    assert torch.is_tensor(learned.mixer.head.gate[0].weight)


def test_no_head_can_be_learned_for_another_source_language(store: Store) -> None:
    translator = Translator.from_store(store.path)
    translator.translation_model = replace(translator.translation_model, source_lang="nl")
    assert learn_with(translator, [], []) is None
