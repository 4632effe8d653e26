"""A datastore's own mixing, fitted on the memory alone: no text with known translations is needed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from knnmt.errors import CorpusError, SettingsError, StoreError
from knnmt.files import write_durably
from knnmt.layout.records import FileRecord, MixingRecord
from knnmt.mixing.coverage import Coverage
from knnmt.mixing.head_mixer import head_bytes
from knnmt.mixing.heads import HEADS
from knnmt.mixing.training import Fitted, Foreign, Seen, fit_head
from knnmt.models.translation_model import TranslationModel
from knnmt.progress import progress_bar
from knnmt.retrieval.local_retriever import LocalRetriever
from knnmt.store.datastore import Store
from knnmt.store.versions import changing, commit
from knnmt.text.inputs import read_lines
from knnmt.text.languages import base_language
from knnmt.translate.leave_one_out import foreign_text, seen_text
from knnmt.translate.mixers import builtin_head, coverage_of, variance_of
from knnmt.translate.settings import KINDS, TranslateSettings
from knnmt.translate.translator import Translator

FEWEST_SEGMENTS = 200  # of a store that a head of its own is fitted to
GENERAL_SENTENCES = 120
HEAD, COVERAGE = "mixing-{:06d}.safetensors", "coverage-{:06d}.roaring"
PRIOR = 0.02  # how strongly a head without general text is held at the built-in one


@dataclass(frozen=True, slots=True)
class Observations:
    """All that a fit needs of a memory."""

    seen: Seen
    foreign: Foreign | None
    coverage: Coverage
    variance: float


def observe_memory(model: TranslationModel, store: Store, general: Sequence[str]) -> Observations:
    """Look at some of the memory's sentences, each left out of its own search, and at general text."""
    retriever = LocalRetriever([store])
    coverage, variance = coverage_of(store, model), variance_of(store)
    seen = seen_text(model, store, retriever, coverage, variance)
    foreign = observe_general(model, retriever, coverage, variance, general) if general else None
    return Observations(seen, foreign, coverage, variance)


def observe_general(
    model: TranslationModel, retriever: LocalRetriever, coverage: Coverage, variance: float, general: Sequence[str]
) -> Foreign:
    """Translate general text by the model alone, greedily, and search for each of its tokens."""
    alone = Translator(model, None, TranslateSettings(beam=1))
    done = [one for one in alone.translations(general) if one.tokens]
    sources = model.fitting_sources([one.source for one in done])[0]
    return foreign_text(model, retriever, coverage, variance, sources, [one.tokens for one in done])


def general_sentences(language: str | None, file: Path | None = None) -> list[str]:
    """General text in a language: of a file, else the package's own; none where it has none."""
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
    show_progress: bool = False,
) -> Store:
    """Fit a store's mixing on its own text, and make that its next version.

    Of a store too small to learn from, only the n-grams of its sources are kept: the built-in head uses them.
    """
    path = Path(path)
    store = Store.open(path)
    if kind not in KINDS:
        raise SettingsError(f"--mixing {kind}: must be one of {', '.join(KINDS)}")
    if kind == "paper":
        with changing(path) as now:
            return commit(now, "mixing set to the paper's", mixing=MixingRecord(kind, 0, 0.0, {}, {}))
    check_fittable(store, model)
    sentences = general_sentences(model.source_lang, general)
    with progress_bar("fitting", 1, show=show_progress) as advance:
        record, contents = fitted_record(store, model, kind, sentences)
        advance(1, 0)
    with changing(path) as now:
        if now.manifest.segments < store.manifest.segments:
            raise StoreError(f"{path}: changed by someone else in the meantime; run the same command again")
        return commit(now, "mixing fitted", mixing=replace(record, files=write_files(now, contents)))


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
    segments = store.manifest.segments
    if store.live_segments < FEWEST_SEGMENTS:
        coverage, variance = coverage_of(store, model), variance_of(store)
        how = {"segments": segments, "head": "built-in"}
        return MixingRecord("learned", segments, variance, {}, how), {COVERAGE: coverage.to_bytes()}
    observed = observe_memory(model, store, general)
    fitted = fitted_to(observed, "learned" if kind == "fixed" else kind)
    how = {"segments": segments} | story(fitted, observed)
    contents = {COVERAGE: observed.coverage.to_bytes()}
    if kind != "fixed":
        contents[HEAD] = head_bytes(fitted.head, {"model": model.fingerprint} | how)
    return MixingRecord(kind, segments, observed.variance, {}, how), contents


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
    head = builtin_head() if builtin else HEADS[kind]()
    prior = 0.0 if observed.foreign else PRIOR
    return fit_head(head, observed.seen, observed.foreign, fresh=not builtin, prior=prior)


def story(fitted: Fitted, observed: Observations) -> dict[str, Any]:
    """What was found, for `knnmt info`."""
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
