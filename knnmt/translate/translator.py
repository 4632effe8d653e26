"""`Translator`, the main class for users of the library."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from knnmt.engine.packed_layers import packed_layers
from knnmt.engine.precision import dtype_of, objection_to_bfloat16
from knnmt.engine.runtime import lock_of, runtime_of
from knnmt.errors import SettingsError, StoreError
from knnmt.layout.manifest import read_manifest
from knnmt.layout.records import ModelRecord
from knnmt.mixing.mixer import Mixer
from knnmt.models.architectures import key_site_of
from knnmt.models.batching import batches_by_tokens, pad
from knnmt.models.language_tokens import language_codes
from knnmt.models.network import Network
from knnmt.models.translation_model import TranslationModel, fingerprint, load_model, wrap_model
from knnmt.progress import Advance
from knnmt.retrieval.local_retriever import LocalRetriever, SearchedBy
from knnmt.retrieval.memories import StorePaths, open_memories
from knnmt.retrieval.retriever import Retriever
from knnmt.store.datastore import Store
from knnmt.store.filters import Condition
from knnmt.translate.beam import BeamRules, BeamSearch, Hypothesis, longest_output, rules_of
from knnmt.translate.decoding import RetrievalCounts, mixing_in, proposing
from knnmt.translate.explanation import Explanation, Tracing
from knnmt.translate.in_flight import in_turns, may_take_turns
from knnmt.translate.mixer_choice import fixed_mixer, mixer_for, mixing_told
from knnmt.translate.settings import TranslateSettings

if TYPE_CHECKING:
    from knnmt.units.report import Report

BATCH_TOKENS = 768  # padded source tokens a batch, before beams


@dataclass(frozen=True, slots=True)
class Translation:
    """A sentence and its translation."""

    source: str
    text: str
    tokens: tuple[int, ...] = ()  # the end token included; empty for an empty line
    log_probability: float = 0.0
    cut: bool = False  # the source was longer than the model can take, and its end was left out
    unfinished: bool = False  # the translation reached the longest output that the model allows
    others: tuple[tuple[int, ...], ...] = ()  # tokens of the next best translations, best first


class Translator:
    """Translates with a model and, if it has stores, with retrieval from them.

    Threads may share a translator; they take turns at using the model.
    """

    def __init__(
        self,
        translation_model: TranslationModel,
        retriever: Retriever | None,
        settings: TranslateSettings | None = None,
        mixer: Mixer | None = None,
    ) -> None:
        """Without a mixer, the fixed values of the settings are used."""
        self.translation_model = translation_model
        self.settings = settings or TranslateSettings()
        self.retriever = retriever
        self.mixer = (mixer or fixed_mixer(self.settings, retriever.entries)) if retriever else None
        self.dtype = dtype_of(self.settings.precision)  # of the model's products
        self.asked = RetrievalCounts()
        self._reopen: Callable[[], LocalRetriever] | None = None

    @classmethod
    def from_store(
        cls,
        stores: StorePaths,
        settings: TranslateSettings | None = None,
        *,
        model: str | None = None,
        source_lang: str | None = None,
        searched_by: SearchedBy = LocalRetriever,
        **options: Any,
    ) -> "Translator":
        """Open one or several stores of the same model. Options that are not given come from the first store's tuning.

        A store may be given as `[NAME=]FOLDER[:WEIGHT]`. Options are the fields of `TranslateSettings`, such as
        `from_store(path, beam=1, where=["corpus=house"])`. `source_lang` is for a model of many languages whose store
        was made from another one. `searched_by` makes the retriever of the stores.
        """
        asked = settings_of(settings, options)
        retriever = open_retriever(stores, asked, searched_by)
        loaded = model_of_store(retriever.stores[0], model, source_lang)
        translator = cls.with_memory(loaded, retriever, asked)
        translator._reopen = lambda: open_retriever(stores, asked, searched_by)
        return translator

    @classmethod
    def with_memory(cls, model: TranslationModel, retriever: LocalRetriever, asked: TranslateSettings) -> "Translator":
        """A translator for a model and open stores. The stores supply the settings that are not given."""
        return cls(model, retriever, with_precision(retriever, asked), mixer_for(retriever, model, asked))

    @classmethod
    def from_model(
        cls,
        model: str,
        settings: TranslateSettings | None = None,
        *,
        source_lang: str | None = None,
        target_lang: str | None = None,
        **options: Any,
    ) -> "Translator":
        """The base model alone."""
        loaded = load_model(model, source_lang=source_lang, target_lang=target_lang)
        return cls(loaded, None, settings_of(settings, options))

    @property
    def model(self) -> Any:
        """The Hugging Face model itself."""
        return self.translation_model.network

    @property
    def tokenizer(self) -> Any:
        """The Hugging Face tokenizer itself."""
        return self.translation_model.tokenizer

    @property
    def stores(self) -> list[Store]:
        """The stores that are searched on this machine."""
        return self.retriever.stores if isinstance(self.retriever, LocalRetriever) else []

    def told(self) -> dict[str, Any]:
        """The settings of the mixing, for display."""
        return mixing_told(self.mixer, self.settings) if self.mixer else {}

    def refresh(self) -> bool:
        """Open the newest versions of the stores; returns whether anything has changed."""
        if self._reopen is None or self.retriever is None:
            return False
        if all(read_manifest(store.path) == store.manifest for store in self.stores):
            return False
        retriever = self._reopen()
        if retriever.fingerprint != self.translation_model.fingerprint:
            raise other_model(self.stores[0], retriever.fingerprint, self.translation_model.fingerprint)
        mixer = mixer_for(retriever, self.translation_model, self.settings)
        with lock_of(self.model):
            self.retriever, self.mixer = retriever, mixer
        return True

    def base(self) -> "Translator":
        """The same model without retrieval."""
        return Translator(self.translation_model, None, self.settings)

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Translations, in the order of the texts; an empty text stays empty."""
        return [translation.text for translation in self.translations(texts)]

    def translate_document(self, source: str | Path, target: str | Path, **options: Any) -> "Report":
        """Translate a document to a file of the same kind, and return a report.

        Options are the fields of `DocumentSettings`, such as `translate_document("a.xlf", "b.xlf", force=True)`, and
        `report`: a .html or .json file to write the report to.
        """
        from knnmt.translate.document_runs import DocumentTranslator
        from knnmt.translate.document_settings import DocumentSettings

        report = options.pop("report", None)
        settings = DocumentSettings(**options)
        run = DocumentTranslator(self, settings, report=None if report is None else Path(report))
        return run.translate([(Path(source), Path(target))])

    def translations(
        self, texts: Sequence[str], *, batch_tokens: int = BATCH_TOKENS, advance: Advance | None = None
    ) -> list[Translation]:
        """Translations with their tokens, in the order of the texts; `advance` is called for each one that is done.

        Repeated texts are translated once.
        """
        if isinstance(texts, str):
            raise SettingsError("translate takes a list of texts; for one text, give a list of one")
        times = Counter(text for text in texts if text.strip())
        wanted = list(times)
        sources, cut = self.translation_model.fitting_sources(wanted)
        encodings = runtime_of(self.model).encodings
        if encodings is not None:
            encodings.tokens.update(zip(wanted, sources, strict=True))
        done = {}
        for row, output in self._decode(sources, batch_tokens):
            done[wanted[row]] = self._translation(wanted[row], output, cut[row])
            if advance:
                advance(times[wanted[row]], len(output.tokens))
        return [done.get(text) or Translation(text, "") for text in texts]

    def _decode(self, sources: list[list[int]], batch_tokens: int) -> Iterator[tuple[int, Hypothesis]]:
        """Row and output of each source, batch by batch."""
        model, rules = self.translation_model, rules_of(self.translation_model, self.settings.beam)
        batches = batches_by_tokens([len(source) for source in sources], batch_tokens)
        if rules is not None and self.retriever is not None and may_take_turns(self.retriever):
            yield from self._decode_in_turns(sources, list(batches), rules, self.retriever)
            return
        for batch in batches:
            some = [sources[row] for row in batch]
            with lock_of(model.network):
                outputs = (
                    self._generate(*self._padded(some)) if rules is None else self._search(some, rules, self.retriever)
                )
            yield from zip(batch, outputs, strict=True)

    def _decode_in_turns(
        self, sources: list[list[int]], batches: list[list[int]], rules: BeamRules, retriever: Retriever
    ) -> Iterator[tuple[int, Hypothesis]]:
        """The same with two batches in flight."""
        host = self._beam_search([], rules, None).stepper

        def search(batch: list[int], retriever: Retriever) -> list[Hypothesis]:
            return self._search([sources[row] for row in batch], rules, retriever)

        for some, found in in_turns(search, batches, retriever, host):
            for batch, outputs in zip(some, found, strict=True):
                yield from zip(batch, outputs, strict=True)

    def _padded(self, sources: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and mask [sentences, time] of a batch, where the network is."""
        model = self.translation_model
        ids, mask = pad(sources, model.padding)
        return ids.to(model.network.device), mask.to(model.network.device)

    def _search(self, sources: list[list[int]], rules: BeamRules, retriever: Retriever | None) -> list[Hypothesis]:
        """Outputs by our own beam search."""
        return self._beam_search(sources, rules, retriever).run(*self._padded(sources))

    def _beam_search(self, sources: list[list[int]], rules: BeamRules, retriever: Retriever | None) -> BeamSearch:
        model, mixer = self.translation_model, self.mixer
        signals = mixer.signals(sources) if mixer and sources else torch.empty(len(sources), 0)
        signals = signals.to(model.network.device)
        propose, aside = (proposing(retriever, mixer, signals, counts) for counts in (self.asked, RetrievalCounts()))
        quick = not self.settings.exact
        return BeamSearch(model, rules, propose, aside=aside, quick=quick, dtype=self.dtype)

    @torch.inference_mode()
    def _generate(self, ids: torch.Tensor, mask: torch.Tensor) -> list[Hypothesis]:
        """Outputs by the model's own `generate`, for rules that only it knows."""
        model, longest = self.translation_model, longest_output(self.translation_model)
        with packed_layers(model.network, dtype=self.dtype), self.retrieving():
            rows = model.network.generate(
                input_ids=ids,
                attention_mask=mask,
                num_beams=self.settings.beam,
                num_return_sequences=self.settings.beam,
                max_length=longest,
                **model.generation,
            )
            outputs = [text_tokens(row, model) for row in rows.tolist()]
            best = [outputs[first : first + self.settings.beam] for first in range(0, len(outputs), self.settings.beam)]
            return [self._judged(ids[row : row + 1], several, longest) for row, several in enumerate(best)]

    def _judged(self, ids: torch.Tensor, outputs: list[list[int]], longest: int) -> Hypothesis:
        """The best of given outputs with its log-probability, and the others; source ids are [1, time]."""
        model, (tokens, *others) = self.translation_model, outputs
        source = [token for token in ids[0].tolist() if token != model.padding]
        logits = model.network(**model.teacher_forcing([source], [tokens]), use_cache=False).logits
        logarithms = torch.log_softmax(logits[0, len(model.decoder_prefix) - 1 :].float(), dim=-1)
        total = float(logarithms.gather(1, torch.tensor(tokens, device=logits.device)[:, None]).sum())
        at_limit = len(model.decoder_prefix) + len(tokens) >= longest
        unfinished = at_limit and int(logarithms[-1].argmax()) != model.end_token
        return Hypothesis(total / len(tokens), total, tokens, unfinished, tuple(map(tuple, others)))

    def _translation(self, text: str, output: Hypothesis, cut: bool) -> Translation:
        model = self.translation_model
        text_out = model.decode(output.tokens)
        return Translation(text, text_out, tuple(output.tokens), output.total, cut, output.unfinished, output.others)

    def alternatives(self, translation: Translation, most: int) -> list[str]:
        """Other translations from the beam that differ in text, best first; fewer than the beam size."""
        texts = dict.fromkeys(self.translation_model.decode(tokens) for tokens in translation.others)
        return [text for text in texts if text and text != translation.text][:most]

    def retrieving(self) -> AbstractContextManager[None]:
        """A context in which the model's `generate` uses retrieval."""
        model = self.translation_model
        if self.retriever is None or self.mixer is None:
            return nullcontext()
        return mixing_in(model.network, model.key_site, self.retriever, self.mixer)

    def explain(self, text: str) -> Explanation:
        """Translate a text, and find the neighbours of each token of the translation."""
        return self.explain_translation(self.translations([text])[0] if self.retriever else Translation(text, ""))

    def memory_shares(self, translation: Translation) -> list[float]:
        """For each token of a translation, the share of its probability that comes from the memory."""
        if self.retriever is None or self.mixer is None or not translation.tokens:
            return [0.0] * len(translation.tokens)
        tracing = Tracing(self.translation_model, self.retriever, self.mixer, self.told())
        with lock_of(self.model):
            return tracing.shares(translation.source, translation.tokens)

    def explain_translation(self, translation: Translation) -> Explanation:
        """Find the neighbours of each token of a given translation."""
        if self.retriever is None or self.mixer is None:
            raise StoreError("--store is missing: only a translation with a datastore can be explained")
        tracing = Tracing(self.translation_model, self.retriever, self.mixer, self.told())
        with lock_of(self.model), packed_layers(self.model, dtype=self.dtype):
            return tracing.explain(translation.source, translation.tokens, translation.text)


def text_tokens(row: list[int], model: TranslationModel) -> list[int]:
    """The tokens that `generate` returned, without the decoder's prefix and padding."""
    tokens = row[len(model.decoder_prefix) :]
    return tokens[: tokens.index(model.end_token) + 1] if model.end_token in tokens else tokens


def open_retriever(
    stores: StorePaths, settings: TranslateSettings | None = None, searched_by: SearchedBy = LocalRetriever
) -> LocalRetriever:
    """Open one store or several, with the names and weights that were given with them."""
    memories, asked = open_memories(stores), settings or TranslateSettings()
    try:
        return searched_by(
            [memory.store for memory in memories],
            nprobe=asked.nprobe,
            where=[Condition.parse(text) for text in asked.where],
            trust=[memory.weight for memory in memories],
            names=[memory.name for memory in memories],
        )
    except (StoreError, OSError):
        if all(read_manifest(memory.store.path) == memory.store.manifest for memory in memories):
            raise
        return open_retriever(stores, settings, searched_by)  # a store was changed in this very moment


def settings_of(settings: TranslateSettings | None, options: dict[str, Any]) -> TranslateSettings:
    """A settings object from an object or from fields."""
    if "where" in options:
        options["where"] = tuple(options["where"])
    return replace(settings, **options) if settings else TranslateSettings(**options)


def with_precision(retriever: LocalRetriever, asked: TranslateSettings) -> TranslateSettings:
    """The settings with an open precision set to that of the first store's tuning."""
    tuned = (retriever.stores[0].manifest.tuned or {}).get("precision")
    return asked if not tuned or objection_to_bfloat16() else asked.filled({"precision": tuned})


def model_of_store(store: Store, name: str | None = None, source_lang: str | None = None) -> TranslationModel:
    """Load the model that the store was made with; `name` says where it is now, if it has moved."""
    record = store.manifest.model
    loaded = load_model(
        name or record.name,
        source_lang=source_lang or record.source_lang,
        target_lang=record.target_lang,
        source_prefix=record.source_prefix,
        key_site=record.key_site,
    )
    check_fingerprint(store, record, loaded.fingerprint, name or record.name)
    if source_lang and not language_codes(loaded.tokenizer):
        raise SettingsError(f"--source-lang {source_lang}: {record.name} translates one language only; leave it out")
    return loaded


def check_fingerprint(store: Store, record: ModelRecord, found: str, name: str) -> None:
    if found != record.fingerprint:
        raise other_model(store, record.fingerprint, found, name)


def other_model(store: Store, made_with: str, found: str, name: str = "the one that is loaded") -> StoreError:
    return StoreError(
        f"{store.path}: made with another model than {name} "
        f"(fingerprint {made_with}, not {found}); build it again with this one"
    )


def own_model(network: Network, tokenizer: Any, record: ModelRecord) -> TranslationModel:
    """A user's own model, as the store knows it."""
    return wrap_model(
        network,
        tokenizer,
        name=record.name,
        source_lang=record.source_lang,
        target_lang=record.target_lang,
        source_prefix=record.source_prefix,
        key_site=record.key_site,
    )


@contextmanager
def attach_retrieval(
    model: Any, stores: StorePaths, settings: TranslateSettings | None = None, *, tokenizer: Any, **options: Any
) -> Iterator[None]:
    """Add retrieval to a loaded Hugging Face model inside a `with` block, where you call `generate` yourself.

    Options are the fields of `TranslateSettings`, except `beam`: your call to `generate` sets it.
    """
    asked = settings_of(settings, options)
    retriever = open_retriever(stores, asked)
    record = retriever.stores[0].manifest.model
    check_fingerprint(retriever.stores[0], record, fingerprint(model, tokenizer), "the one given")
    site, dtype = key_site_of(model, record.key_site), dtype_of(with_precision(retriever, asked).precision)
    mixer = mixer_for(retriever, own_model(model, tokenizer, record), asked)
    with lock_of(model), packed_layers(model, dtype=dtype), mixing_in(model, site, retriever, mixer):
        yield
