"""Chooses the mixer: the one asked for, the one that the store was tuned or fitted to, or the built-in head."""

import logging
from dataclasses import asdict
from functools import reduce
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knnmt.errors import SettingsError, StoreError
from knnmt.layout.bitmaps import as_array
from knnmt.layout.records import HASHES
from knnmt.mixing.coverage import Coverage
from knnmt.mixing.fixed import FixedMixer
from knnmt.mixing.fixed_values import PAPER_K
from knnmt.mixing.head_mixer import HeadMixer, read_head
from knnmt.mixing.heads import USUAL_TEMPERATURE, Head
from knnmt.mixing.mixer import Mixer
from knnmt.models.translation_model import TranslationModel
from knnmt.retrieval.local_retriever import LocalRetriever
from knnmt.store.datastore import Store
from knnmt.store.filters import numbers_below
from knnmt.translate.leave_one_out import counted_tokens, special_tokens
from knnmt.translate.settings import BY_HAND, TranslateSettings, check_enough

log = logging.getLogger(__name__)

KEYS_SAMPLED = 4096
SOURCES_AT_ONCE = 1024
MANY = 20_000  # segments without a coverage file: opening reads them all
SEED = 0


def mixer_for(retriever: LocalRetriever, model: TranslationModel, asked: TranslateSettings) -> Mixer:
    """The mixer for these stores. The first store decides what the caller left open."""
    kind = kind_for(retriever.stores[0], model, asked)
    if kind in ("fixed", "paper"):
        return fixed_mixer(fixed_settings(retriever, asked, kind), retriever.entries)
    return head_mixer(retriever, model, head_of(retriever.stores[0], kind), exact=asked.exact)


def kind_for(store: Store, model: TranslationModel, asked: TranslateSettings) -> str:
    """The kind of mixing: asked for, tuned, fitted, or the default."""
    tuned, fitted = store.manifest.tuned, store.manifest.mixing
    if asked.by_hand or asked.mixing is not None:
        return asked.mixing or "fixed"
    if model.source_lang != store.manifest.model.source_lang:
        return "fixed"  # coverage compares words of one language
    if tuned is not None:
        return str(tuned.get("mixing", "fixed"))
    if fitted is not None:
        return fitted.kind
    return "learned" if store.has_keys else "fixed"


def mixing_told(mixer: Mixer, settings: TranslateSettings) -> dict[str, Any]:
    """The settings of the mixing, for a reader."""
    if isinstance(mixer, FixedMixer):
        values = {name: getattr(mixer, name) for name in BY_HAND}
        return values | {"beam": settings.beam, "certain": mixer.certain, "exact": settings.exact}
    kind = mixer.head.kind if isinstance(mixer, HeadMixer) else type(mixer).__name__
    return {"mixing": kind, "k": mixer.needs.neighbours, "beam": settings.beam, "exact": settings.exact}


def fixed_mixer(settings: TranslateSettings, entries: int) -> FixedMixer:
    mixer = FixedMixer(**asdict(settings.fixed))
    check_enough(mixer.k, entries)
    return mixer


def fixed_settings(retriever: LocalRetriever, asked: TranslateSettings, kind: str) -> TranslateSettings:
    """The fixed values: given, tuned, fitted, or by a rule; for `paper`, those of the paper."""
    manifest = retriever.stores[0].manifest
    fitted = manifest.mixing.how.get("fixed", {}) if manifest.mixing else {}
    chosen = {"k": PAPER_K}
    if kind != "paper":
        chosen |= usual_values(retriever.stores[0]) | fitted | (manifest.tuned or {})
    chosen["k"] = min(chosen["k"], retriever.entries)  # a filter may leave fewer than the store was tuned for
    chosen.pop("mixing", None)
    return asked.filled(chosen)


def usual_values(store: Store) -> dict[str, float]:
    """A temperature in proportion to the spread of the keys, which differs from model to model."""
    known = store.has_keys or (store.manifest.mixing and store.manifest.mixing.variance)
    return {"temperature": USUAL_TEMPERATURE * known_variance(store)} if known else {}


def head_of(store: Store, kind: str) -> Head:
    """The store's own head, otherwise the built-in one."""
    name = own_head(store, kind)
    if name is not None:
        head, about = read_head(store.path / name)
        check_made_for(store, name, about)
        return head
    if kind != "learned":
        raise SettingsError(f"--mixing {kind}: {store.path} has none; make one with `knnmt fit --mixing {kind}`")
    return builtin_head()


def own_head(store: Store, kind: str) -> str | None:
    """The file of the store's own head of a kind."""
    record = store.manifest.mixing
    return record.named(".safetensors") if record and record.kind == kind else None


def check_made_for(store: Store, name: str, about: dict[str, Any]) -> None:
    made, wanted = about.get("model"), store.manifest.model.fingerprint
    if made != wanted:
        raise StoreError(
            f"{store.path / name}: fitted for another model (fingerprint {made}, not {wanted}); run `knnmt fit` again"
        )


def builtin_head() -> Head:
    """The head for stores without their own."""
    return read_head(Path(str(resources.files("knnmt"))) / "data" / "learned.safetensors")[0]


def head_mixer(retriever: LocalRetriever, model: TranslationModel, head: Head, *, exact: bool = False) -> HeadMixer:
    """A mixer with a head and what it needs to know of the stores."""
    coverages = [covered(store, model) for store in retriever.stores]
    sizes = [store.entries for store in retriever.stores]
    variance = float(np.average([known_variance(store) for store in retriever.stores], weights=sizes))
    return HeadMixer(
        head,
        reduce(Coverage.joined, coverages),
        variance,
        ignored=special_tokens(model),
        entries=retriever.entries,
        always=exact,
    )


def covered(store: Store, model: TranslationModel) -> Coverage:
    """The n-grams of a store's sources: those in its file and those of later additions."""
    record = store.manifest.mixing
    name = record.named(".roaring") if record else None
    if record is None or name is None:
        if store.manifest.segments > MANY:
            log.warning("%s: reading all of its sentences; `knnmt fit` would make opening faster", store.path)
        return coverage_of(store, model)
    known = Coverage.from_bytes(read_file(store.path / name), name)
    if record.covered >= store.manifest.segments:
        return known
    return known.joined(coverage_of(store, model, first=record.covered))


def read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({(error.strerror or str(error)).lower()})") from error


def known_variance(store: Store) -> float:
    """The variance of the keys with which the mixing was fitted; otherwise that of the keys now."""
    record = store.manifest.mixing
    return record.variance if record and record.variance else variance_of(store)


def coverage_of(store: Store, model: TranslationModel, *, first: int = 0) -> Coverage:
    """The n-grams of a store's sources, from the segment of number `first` on."""
    coverage, ignored = Coverage(), special_tokens(model)
    numbers = distinct(store, first)
    for begin in range(0, len(numbers), SOURCES_AT_ONCE):
        pairs = store.segments_at(numbers[begin : begin + SOURCES_AT_ONCE])
        encoded = model.encode_sources([pair.source for pair in pairs])
        coverage.add(counted_tokens(source, ignored) for source in encoded)
    return coverage


def distinct(store: Store, first: int) -> NDArray[np.int64]:
    """Live segments from a number on whose source no earlier segment has: copies add no n-grams."""
    hashes = np.concatenate([np.asarray(column)[:, 0] for column in store.columns(HASHES)])
    live = as_array(numbers_below(store.manifest.segments) - store.removed)
    new = live[np.searchsorted(live, first) :]
    new = new[~np.isin(hashes[new], hashes[:first])] if first else new
    _, firsts = np.unique(hashes[new], return_index=True)
    return np.asarray(new[np.sort(firsts)])


def variance_of(store: Store) -> float:
    """The mean squared distance of a store's keys from their centre."""
    entries = np.random.default_rng(SEED).choice(store.entries, min(KEYS_SAMPLED, store.entries), replace=False)
    keys = store.gather("keys", np.sort(entries)).astype(np.float32)
    return max(float(keys.var(axis=0).sum()), 1e-6)
