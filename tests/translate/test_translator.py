"""The library as a user calls it."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

import knnmt
from knnmt import Corpus, SettingsError, Store, StoreError, Translator, attach_retrieval, build_store
from knnmt.cli.demo import read_demo
from knnmt.files import sha256_of
from knnmt.models.batching import pad
from knnmt.models.translation_model import TranslationModel, load_model
from knnmt.store.adding import add_to_store
from knnmt.store.removing import remove_from_store
from knnmt.store.versions import changing, commit
from knnmt.translate.beam import BeamSearch

TEXTS = ["Prüfen Sie den Akku.", "", "Ziehen Sie die Schraube mit 5 Nm an.", "   ", "Laden Sie den Akku auf."]


@pytest.fixture(scope="module")
def translator(store: Store) -> Translator:
    return Translator.from_store(store.path, k=8)


def test_order_and_empty_lines_are_kept(translator: Translator) -> None:
    together = translator.translate(TEXTS)
    assert together == [translator.translate([text])[0] for text in TEXTS]
    assert (together[1], together[3]) == ("", "")
    assert all(together[position] for position in (0, 2, 4))


def test_the_memory_changes_the_translation(translator: Translator) -> None:
    segment = read_demo("memory")[6]
    assert translator.translate([segment.source]) == [segment.target]
    assert translator.base().translate([segment.source]) != [segment.target]


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_the_ends_of_the_scale(store: Store, weight: float) -> None:
    at_end = Translator.from_store(store.path, k=8, weight=weight)
    segment = read_demo("memory")[6]
    expected = at_end.base().translate([segment.source]) if weight == 0 else [segment.target]
    assert at_end.translate([segment.source]) == expected


def test_a_text_that_comes_again_is_translated_once(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded, told = list[list[int]](), list[int]()
    decode = Translator._decode

    def count(self: Translator, sources: list[list[int]], batch_tokens: int) -> Any:
        decoded.extend(sources)
        return decode(self, sources, batch_tokens)

    monkeypatch.setattr(Translator, "_decode", count)
    texts = ["Der Akku ist leer.", "", "Die Bremse quietscht.", "Der Akku ist leer.", "Der Akku ist leer."]
    found = translator.translations(texts, advance=lambda sentences, _: told.append(sentences))
    assert [translation.source for translation in found] == texts
    assert found[0] == found[3] == found[4]
    assert (len(decoded), sorted(told)) == (2, [1, 3])


def test_no_texts(translator: Translator) -> None:
    assert translator.translate([]) == []


def test_a_bare_string_is_an_error(translator: Translator) -> None:
    with pytest.raises(SettingsError, match="list"):
        translator.translate("Hallo")


def test_an_overlong_source_is_cut_and_says_so(translator: Translator) -> None:
    translation = translator.base().translations(["Wort " * 700])[0]
    assert translation.cut
    assert translation.text
    model = translator.translation_model
    (source,), (cut,) = model.fitting_sources(["Wort " * 700])
    assert (len(source), source[-1], cut) == (512, model.end_token, True)


def test_an_output_that_reaches_the_limit_says_so(translator: Translator) -> None:
    settings = translator.model.generation_config
    before, settings.max_length = settings.max_length, 4
    try:
        translation = translator.translations(["Prüfen Sie den Akku."])[0]
    finally:
        settings.max_length = before
    assert translation.unfinished
    assert len(translation.tokens) == 3
    assert not translator.translations(["Prüfen Sie den Akku."])[0].unfinished


def test_a_forced_end_counts_as_no_retrieval(store: Store) -> None:
    """Whether the model would have ended by itself is asked beside the search, and only of the best hypothesis."""
    text, translator = "Prüfen Sie den Akku.", Translator.from_store(store.path, k=4, beam=1)
    tokens = len(translator.translations([text])[0].tokens)
    assert translator.asked.retrieved == tokens
    settings = translator.model.generation_config
    settings.max_length = len(translator.translation_model.decoder_prefix) + tokens
    assert not translator.translations([text])[0].unfinished
    assert translator.asked.retrieved == tokens + (tokens - 1)


def test_nobody_is_asked_where_every_best_hypothesis_ended_before_the_limit(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    found = BeamSearch._find_own_ends

    def counted(self: BeamSearch, step: Any, winners: list[Any]) -> None:
        asked.append(len(winners))
        found(self, step, winners)

    monkeypatch.setattr(BeamSearch, "_find_own_ends", counted)
    base, settings = translator.base(), translator.model.generation_config
    text, before = "Prüfen Sie den Akku.", settings.max_length
    length = len(base.translation_model.decoder_prefix) + len(base.translations([text])[0].tokens)
    try:
        settings.max_length = length + 1
        base.translations([text])
    finally:
        settings.max_length = before
    assert asked in ([], [0])


def test_a_translation_that_ends_by_itself_at_the_limit_is_finished(translator: Translator) -> None:
    base, settings = translator.base(), translator.model.generation_config
    # Where one token fewer is allowed, no shorter translation that ends by itself is better than this one, cut off.
    model, text, before = base.translation_model, "Öffnen Sie das Fenster.", settings.max_length
    length = len(model.decoder_prefix) + len(base.translations([text])[0].tokens)
    ids, mask = pad(model.fitting_sources([text])[0], model.padding)
    try:
        for limit, unfinished in ((length, False), (length - 1, True)):
            settings.max_length = limit
            assert base.translations([text])[0].unfinished == unfinished
            assert base._generate(ids, mask)[0].unfinished == unfinished
    finally:
        settings.max_length = before


def test_threads_may_share_a_translator(translator: Translator) -> None:
    texts = [segment.source for segment in read_demo("test")[:8]]
    expected = translator.translate(texts)
    with ThreadPoolExecutor(4) as pool:
        assert [
            line for part in pool.map(lambda text: translator.translate([text]), texts) for line in part
        ] == expected


def test_text_that_looks_like_a_special_token_is_text(translator: Translator) -> None:
    model = translator.translation_model
    tokens = model.encode_targets(["a </s> b <pad> c"])[0]
    assert tokens.index(model.end_token) == len(tokens) - 1
    assert model.padding not in tokens


def test_the_hugging_face_objects_are_there(translator: Translator) -> None:
    assert translator.model.config.model_type == "marian"
    assert translator.tokenizer.eos_token == "</s>"


def test_scores_are_those_of_the_steps(translator: Translator) -> None:
    """The score is the sum of log-probabilities, which `explain` computes on another way."""
    translation = translator.translations(["Prüfen Sie den Akku."])[0]
    steps = [token.probability for token in translator.explain("Prüfen Sie den Akku.").tokens]
    assert translation.log_probability == pytest.approx(float(torch.tensor(steps).log().sum()), abs=1e-3)


def test_defaults_are_the_papers_and_fit_the_store(store: Store) -> None:
    settings = Translator.from_store(store.path).settings
    fixed = settings.fixed
    assert (fixed.k, fixed.temperature, fixed.weight, settings.beam) == (64, 10.0, 0.5, 5)


@pytest.mark.parametrize(
    ("wrong", "flag"),
    [
        ({"k": 0}, "--k 0"),
        ({"k": 10**9}, "--k 1000000000: larger than the datastore"),
        ({"temperature": 0.0}, "--temperature 0"),
        ({"weight": 1.5}, "--weight 1.5"),
        ({"weight": -0.1}, "--weight -0.1"),
        ({"weight": float("nan")}, "--weight nan"),
        ({"beam": 0}, "--beam 0"),
        ({"nprobe": 0}, "--nprobe 0"),
    ],
)
def test_wrong_settings_name_the_flag(store: Store, wrong: dict[str, float], flag: str) -> None:
    with pytest.raises(SettingsError, match=flag):
        Translator.from_store(store.path, **wrong)


def test_two_stores_know_what_each_knows(store: Store, other_store: Store) -> None:
    both = Translator.from_store([store.path, other_store.path], k=8)
    sources = [read_demo("memory")[6].source, read_demo("test")[3].source]
    assert both.translate(sources) == [read_demo("memory")[6].target, read_demo("test")[3].target]


def test_attach_retrieval_to_your_own_generate(store: Store, translator: Translator) -> None:
    model, tokenizer = translator.model, translator.tokenizer
    inputs = tokenizer(["Prüfen Sie den Akku."], return_tensors="pt")
    plain = model.generate(**inputs)
    with attach_retrieval(model, store.path, tokenizer=tokenizer, k=8):
        mixed = model.generate(**inputs)
    assert tokenizer.batch_decode(mixed, skip_special_tokens=True) == translator.translate(["Prüfen Sie den Akku."])
    assert torch.equal(model.generate(**inputs), plain)


def test_attach_retrieval_refuses_another_model(store: Store) -> None:
    from tiny_models import tiny_model

    other = tiny_model("marian")
    with (
        pytest.raises(StoreError, match="made with another model"),
        attach_retrieval(other.network, store.path, tokenizer=other.tokenizer),
    ):
        pass


def test_translating_leaves_the_store_alone(store: Store, translator: Translator) -> None:
    before = {file: sha256_of(file) for file in Path(store.path).rglob("*") if file.is_file()}
    translator.translate(["Prüfen Sie den Akku."])
    assert before == {file: sha256_of(file) for file in Path(store.path).rglob("*") if file.is_file()}


def test_the_public_names() -> None:
    assert knnmt.__all__ == sorted(knnmt.__all__)
    for name in knnmt.__all__:
        assert getattr(knnmt, name) is not None
    with pytest.raises(AttributeError):
        knnmt.nonsense  # noqa: B018


def test_a_filter_keeps_other_clients_out(embedded: TranslationModel, tmp_path: Path) -> None:
    """The same sentence, two clients' words."""
    for client, word in (("north", "accumulator"), ("south", "power pack")):
        (tmp_path / f"{client}.tsv").write_text(f"Laden Sie den Akku.\tCharge the {word}.\n", encoding="utf-8")
    corpora = [Corpus(tmp_path / f"{client}.tsv") for client in ("north", "south")]
    build_store(tmp_path / "store", embedded, corpora)
    for client, word in (("north", "accumulator"), ("south", "power pack")):
        translator = Translator.from_store(tmp_path / "store", k=4, weight=0.9, where=[f"corpus={client}"])
        assert translator.translate(["Laden Sie den Akku."]) == [f"Charge the {word}."]


@pytest.mark.parametrize(("weights", "word"), [((1, 0.01), "accumulator"), ((0.01, 1), "power pack")])
def test_the_weight_of_a_store_decides(
    embedded: TranslationModel, tmp_path: Path, weights: tuple[float, float], word: str
) -> None:
    names = {"north": "accumulator", "south": "power pack"}
    for client, its_word in names.items():
        file = tmp_path / f"{client}.tsv"
        file.write_text(f"Laden Sie den Akku.\tCharge the {its_word}.\n", encoding="utf-8")
        build_store(tmp_path / client, embedded, [Corpus(file)])
    stores = [f"{name}={tmp_path / name}:{weight}" for name, weight in zip(names, weights, strict=True)]
    translator = Translator.from_store(stores, k=4, weight=0.9)
    assert translator.translate(["Laden Sie den Akku."]) == [f"Charge the {word}."]
    explained = translator.explain("Laden Sie den Akku.")
    assert {near.store for token in explained.tokens for near in token.neighbours} <= set(names)


def test_refresh_takes_up_changes(embedded: TranslationModel, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("Guten Tag.\tGood day.\n", encoding="utf-8")
    (tmp_path / "b.tsv").write_text("Laden Sie den Akku.\tCharge the power pack.\n", encoding="utf-8")
    build_store(tmp_path / "store", embedded, [Corpus(tmp_path / "a.tsv")])
    translator = Translator.from_store(tmp_path / "store", weight=0.9)
    assert not translator.refresh()
    add_to_store(tmp_path / "store", embedded, [Corpus(tmp_path / "b.tsv")])
    assert translator.translate(["Laden Sie den Akku."]) != ["Charge the power pack."]
    assert translator.refresh()
    assert translator.translate(["Laden Sie den Akku."]) == ["Charge the power pack."]
    remove_from_store(tmp_path / "store", corpora=["b"])
    assert translator.refresh()
    assert translator.translate(["Laden Sie den Akku."]) != ["Charge the power pack."]
    assert not translator.base().refresh()


def test_another_source_language_than_the_stores(tmp_path: Path) -> None:
    """A store made from German, used for French: the model is told the new language, the signature says so."""
    from tiny_models import ENGLISH, GERMAN, tiny_folder

    from knnmt import Corpus, build_store, load_model
    from knnmt.measure.evaluation import signature_of

    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in zip(GERMAN, ENGLISH, strict=True)))
    model = load_model(str(tiny_folder("m2m_100")), source_lang="de", target_lang="en")
    build_store(tmp_path / "store", model, [Corpus(tmp_path / "pairs.tsv")])
    own, other = (Translator.from_store(tmp_path / "store", k=2, source_lang=lang) for lang in (None, "fr"))
    languages = own.tokenizer.lang_code_to_id
    assert own.translation_model.encode_sources(["Haus"])[0][0] == languages["de"]
    assert other.translation_model.encode_sources(["maison"])[0][0] == languages["fr"]
    assert own.translation_model.decoder_prefix == other.translation_model.decoder_prefix
    assert "|source:" not in signature_of(own)
    assert "|source:fr|" in signature_of(other)


def test_a_model_of_one_pair_has_one_source_language(store: Store) -> None:
    with pytest.raises(SettingsError, match="--source-lang fr: builtin:de-en translates one language only"):
        Translator.from_store(store.path, source_lang="fr")


def test_attach_retrieval_follows_the_tuned_certainty(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned = shutil.copytree(store.path, tmp_path / "tuned")
    with changing(tuned) as now:
        commit(now, "tuned", tuned={"k": 4, "certain": 0.7})
    seen: list[float] = []
    monkeypatch.setattr(
        "knnmt.translate.translator.mixing_in", lambda *given: nullcontext(seen.append(given[-1].certain))
    )
    model = load_model("builtin:de-en")
    for given in ({}, {"certain": 0.9}):
        with attach_retrieval(model.network, tuned, tokenizer=model.tokenizer, **given):
            pass
    assert seen == [0.7, 0.9]
