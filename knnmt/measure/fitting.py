"""Fits the mixing of a datastore on its memory alone, without other reference translations."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from knnmt.errors import CorpusError, SettingsError, StoreError
from knnmt.files import write_durably
from knnmt.layout.records import FileRecord, MixingRecord
from knnmt.mixing.coverage import Coverage
from knnmt.mixing.fixed_values import PAPER_K
from knnmt.mixing.head_mixer import HeadMixer, head_bytes
from knnmt.mixing.mixer import Mixer
from knnmt.mixing.training import Fitted, Foreign, Seen, all_seen, fit_head, new_head
from knnmt.models.translation_model import TranslationModel
from knnmt.progress import progress_bar
from knnmt.retrieval.local_retriever import LocalRetriever
from knnmt.store.datastore import Store
from knnmt.store.versions import changing, commit
from knnmt.text.inputs import read_lines
from knnmt.text.languages import base_language
from knnmt.translate.leave_one_out import foreign_rows, new_text, seen_text
from knnmt.translate.mixer_choice import (
    builtin_head,
    coverage_of,
    fixed_mixer,
    head_mixer,
    mixer_for,
    own_head,
    variance_of,
)
from knnmt.translate.settings import KINDS, TranslateSettings
from knnmt.translate.translator import Translator

LEARNED = "learned"
FEWEST_SEGMENTS = 200  # of a store that a head of its own is fitted to
GENERAL_SENTENCES = 240
HEAD, COVERAGE = "mixing-{:06d}.safetensors", "coverage-{:06d}.roaring"
PRIOR = 0.02  # how strongly a head without general text is held at the built-in one


@dataclass(frozen=True, slots=True)
class Observations:
    """Everything that a fit needs of a memory."""

    seen: Seen
    foreign: Foreign | None
    coverage: Coverage
    variance: float


def observe_memory(model: TranslationModel, store: Store, general: Sequence[str]) -> Observations:
    """Observe sentences of the memory, each left out of its own search, and general text."""
    retriever = LocalRetriever([store])
    coverage, variance = coverage_of(store, model), variance_of(store)
    seen = seen_text(model, store, retriever, coverage, variance)
    foreign = observe_general(model, retriever, coverage, variance, general) if general else None
    return Observations(seen, foreign, coverage, variance)


@dataclass(frozen=True, slots=True)
class FittedHead:
    """A head that was fitted to a store, and what the store must keep of it."""

    mixer: HeadMixer
    record: MixingRecord | None  # None: it is the built-in head
    contents: dict[str, bytes]


def learn_with(translator: Translator, sources: Sequence[str], references: Sequence[str]) -> FittedHead | None:
    """The head for a translator's first store, fitted to the memory and to text with known translations.

    None where no head can serve: without keys, or for another source language than the store's.
    """
    model, retriever, stores = translator.translation_model, translator.retriever, translator.stores
    if not isinstance(retriever, LocalRetriever) or not stores[0].has_keys:
        return None
    if model.source_lang != stores[0].manifest.model.source_lang:
        return None
    if stores[0].live_segments < FEWEST_SEGMENTS:
        return FittedHead(head_mixer(retriever, model, builtin_head()), None, {})
    observed = observe_memory(model, stores[0], general_sentences(model.source_lang))
    observed = with_text(observed, model, LocalRetriever([stores[0]]), sources, references)
    fitted = fitted_to(observed)
    record, contents = record_of(stores[0], model, "learned", observed, fitted)
    return FittedHead(head_mixer(retriever, model, fitted.head), record, contents)


class ComparedMixers:
    """Makes the mixers of a comparison: the first store's own, and others that are fitted now and not kept."""

    def __init__(self, translator: Translator, general: Path | None = None) -> None:
        if not isinstance(translator.retriever, LocalRetriever):
            raise SettingsError("--mixing: only a store on this machine can be mixed in several ways")
        self.translator, self.retriever, self.general = translator, translator.retriever, general
        self.store = self.retriever.stores[0]
        self.fitted_now: list[str] = []  # kinds

    def mixer(self, kind: str) -> Mixer:
        model, asked = self.translator.translation_model, replace(self.translator.settings, mixing=kind)
        if not self.lacks(kind):
            return mixer_for(self.retriever, model, asked)
        self.fitted_now.append(kind)
        fitted = fitted_to(self.observed, LEARNED if kind == "fixed" else kind)
        if kind != "fixed":
            return head_mixer(self.retriever, model, fitted.head, exact=asked.exact)
        values = story(fitted, self.observed)["fixed"]
        return fixed_mixer(asked.filled({"k": min(PAPER_K, self.retriever.entries)} | values), self.retriever.entries)

    def lacks(self, kind: str) -> bool:
        """Whether the store has no head of this kind."""
        if kind == "paper" or (kind == LEARNED and self.store.live_segments < FEWEST_SEGMENTS):
            return False
        if kind != "fixed":
            return own_head(self.store, kind) is None
        mixing = self.store.manifest.mixing
        return not (mixing and "fixed" in mixing.how) and "k" not in (self.store.manifest.tuned or {})

    @cached_property
    def observed(self) -> Observations:
        """What all kinds need; the memory is observed once."""
        model = self.translator.translation_model
        check_fittable(self.store, model)
        return observe_memory(model, self.store, general_sentences(model.source_lang, self.general))


def with_text(
    observed: Observations,
    model: TranslationModel,
    retriever: LocalRetriever,
    sources: Sequence[str],
    references: Sequence[str],
) -> Observations:
    """Observations of a memory and of new text together."""
    new = new_text(model, retriever, observed.coverage, observed.variance, sources, references) if sources else None
    return replace(observed, seen=all_seen([observed.seen, new])) if new else observed


def observe_general(
    model: TranslationModel, retriever: LocalRetriever, coverage: Coverage, variance: float, general: Sequence[str]
) -> Foreign:
    """Translate general text by the model alone, greedily, and search for each of its tokens."""
    alone = Translator(model, None, TranslateSettings(beam=1))
    done = [one for one in alone.translations(general) if one.tokens]
    sources = model.fitting_sources([one.source for one in done])[0]
    return foreign_rows(model, retriever, coverage, variance, sources, [one.tokens for one in done])


def general_sentences(language: str | None, file: Path | None = None) -> list[str]:
    """General text in a language: from a file, otherwise from the package; empty if there is none."""
    if file is not None:
        lines = [line for line in read_lines(file) if line.strip()]
        if not lines:
            raise CorpusError(f"--general {file}: empty")
        return lines
    shipped = resources.files("knnmt").joinpath("data", "general", f"{base_language(language)}.txt")
    if not language or not shipped.is_file():
        return []
    return shipped.read_text(encoding="utf-8").splitlines()[:GENERAL_SENTENCES]


def fit_mixing(
    path: str | Path,
    model: TranslationModel,
    *,
    kind: str = "learned",
    general: Path | None = None,
    keep_tuning: bool = True,
    show_progress: bool = False,
) -> Store:
    """Fit a store's mixing on its own text, and make that its next version.

    Of a store too small to learn from, only the n-grams of its sources are kept: the built-in head uses them. What the
    store was tuned to goes before what it was fitted to, so it is forgotten unless `keep_tuning`.
    """
    path = Path(path)
    store = Store.open(path)
    if kind not in KINDS:
        raise SettingsError(f"--mixing {kind}: must be one of {', '.join(KINDS)}")
    if kind == "paper":
        with changing(path) as now:
            mixing = MixingRecord(kind, 0, 0.0, {}, {})
            return commit(now, "mixing set to the paper's", mixing=mixing, tuned=tuning_of(now, keep_tuning))
    check_fittable(store, model)
    sentences = general_sentences(model.source_lang, general)
    with progress_bar("fitting", 1, show=show_progress) as advance:
        record, contents = fitted_record(store, model, kind, sentences)
        advance(1, 0)
    with changing(path) as now:
        if now.manifest.oldest != store.manifest.oldest:  # it was compacted, and its segments have other numbers
            raise StoreError(f"{path}: changed by someone else in the meantime; run the same command again")
        mixing = replace(record, files=write_files(now, contents))
        return commit(now, "mixing fitted", mixing=mixing, tuned=tuning_of(now, keep_tuning))


def tuning_of(store: Store, keep: bool) -> dict[str, Any] | None:
    return store.manifest.tuned if keep else None


def check_fittable(store: Store, model: TranslationModel) -> None:
    if store.manifest.model.fingerprint != model.fingerprint:
        raise StoreError(
            f"{store.path}: made with another model than {model.name}; its mixing cannot be fitted with it"
        )
    if not store.has_keys:
        raise StoreError(f"{store.path}: its keys were dropped; mixing is fitted with them")
    if not store.live_entries:
        raise StoreError(f"{store.path}: every sentence pair has been removed; nothing is left to fit")


def fitted_record(
    store: Store, model: TranslationModel, kind: str, general: Sequence[str]
) -> tuple[MixingRecord, dict[str, bytes]]:
    """The manifest's record, and what its files hold."""
    if store.live_segments < FEWEST_SEGMENTS:
        return record_of_few(store, model, kind)
    observed = observe_memory(model, store, general)
    return record_of(store, model, kind, observed, fitted_to(observed, "learned" if kind == "fixed" else kind))


def record_of_few(store: Store, model: TranslationModel, kind: str) -> tuple[MixingRecord, dict[str, bytes]]:
    """The record for a store that is too small to learn from: what the built-in head needs, or only the variance of
    the keys.
    """
    if kind not in ("learned", "fixed"):
        raise SettingsError(
            f"--mixing {kind}: {store.path} has {store.live_segments:,} sentence pairs, and {FEWEST_SEGMENTS} are "
            f"the fewest to fit it to; learned uses the built-in head"
        )
    how = {"segments": store.live_segments} | ({"head": "built-in"} if kind == "learned" else {})
    record = MixingRecord(kind, store.manifest.segments, variance_of(store), {}, how)
    return record, {COVERAGE: coverage_of(store, model).to_bytes()}


def record_of(
    store: Store, model: TranslationModel, kind: str, observed: Observations, fitted: Fitted
) -> tuple[MixingRecord, dict[str, bytes]]:
    """The record of a fitted head."""
    how = {"segments": store.live_segments} | story(fitted, observed)
    contents = {COVERAGE: observed.coverage.to_bytes()}
    if kind != "fixed":
        contents[HEAD] = head_bytes(fitted.head, {"model": model.fingerprint} | how)
    return MixingRecord(kind, store.manifest.segments, observed.variance, {}, how), contents


def write_files(store: Store, contents: dict[str, bytes]) -> dict[str, FileRecord]:
    """Files under names that no version has."""
    files = {}
    for kind, content in contents.items():
        name = kind.format(store.manifest.version + 1)
        write_durably(store.path / name, lambda file, content=content: file.write(content))  # type: ignore[misc]
        files[name] = FileRecord.of(store.path / name)
    return files


def fitted_to(observed: Observations, kind: str = "learned") -> Fitted:
    """A head of a kind for a memory, starting from the built-in one where there is one."""
    builtin = kind == "learned"
    head = builtin_head() if builtin else new_head(kind)
    prior = 0.0 if observed.foreign else PRIOR
    return fit_head(head, observed.seen, observed.foreign, fresh=not builtin, prior=prior)


def story(fitted: Fitted, observed: Observations) -> dict[str, Any]:
    """What was found, as `knnmt info` shows it."""
    record: dict[str, Any] = {
        "sentences": len(set(observed.seen.sentences.tolist())),
        "tokens": len(observed.seen.model),
        "general_sentences": len(set(observed.foreign.sentences.tolist())) if observed.foreign else 0,
        "likelihood": {"model": fitted.base, "fixed": fitted.fixed, "fitted": fitted.likelihood},
        "fixed": {"weight": fitted.weight, "temperature": fitted.temperature * observed.variance},
        "divergence": fitted.divergence,
        "general_weight": fitted.foreign_weight,
    }
    return record
