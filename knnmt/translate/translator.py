"""`Translator`: the one object that a library user needs."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from knnmt.engine.keys import lock_of
from knnmt.errors import SettingsError, StoreError
from knnmt.models.architectures import key_site_of
from knnmt.models.batching import batches_by_tokens, pad
from knnmt.models.translation_model import TranslationModel, fingerprint, language_codes, load_model
from knnmt.progress import Advance
from knnmt.store.datastore import ModelRecord, Store, read_manifest
from knnmt.store.filters import Condition
from knnmt.translate.beam import BeamRules, BeamSearch, Hypothesis, longest_output, rules_of
from knnmt.translate.decoding import Asked, SearchSettings, mixing_in, proposing
from knnmt.translate.explanation import Explanation, explain_tokens
from knnmt.translate.memories import StorePaths, open_memories
from knnmt.translate.retriever import Retriever

BATCH_TOKENS = 768  # padded source tokens a batch, before beams


@dataclass(frozen=True, slots=True)
class Translation:
    """One sentence and what came of it."""

    source: str
    text: str
    tokens: tuple[int, ...] = ()  # the end token included; empty for an empty line
    log_probability: float = 0.0
    cut: bool = False  # the source was longer than the model can take, and its end was left out
    unfinished: bool = False  # the translation reached the longest output that the model allows


class Translator:
    """Translates with a model and, where stores are given, with what they remember.

    Threads may share one: they take turns at the model.
    """

    def __init__(
        self, translation_model: TranslationModel, retriever: Retriever | None, settings: SearchSettings
    ) -> None:
        if retriever is not None:
            settings.check_against(retriever.entries)
        self.translation_model = translation_model
        self.retriever = retriever
        self.settings = settings
        self.asked = Asked()
        self._reopen: Callable[[], tuple[Retriever, dict[str, Any]]] | None = None

    @classmethod
    def from_store(
        cls,
        stores: StorePaths,
        *,
        model: str | None = None,
        k: int | None = None,
        temperature: float | None = None,
        weight: float | None = None,
        beam: int | None = None,
        certain: float | None = None,
        exact: bool = False,
        nprobe: int | None = None,
        where: Sequence[str] = (),
        source_lang: str | None = None,
    ) -> "Translator":
        """Open one store or several of the same model; what is not given comes from the first store's tuning.

        A store may be given as `NAME=FOLDER:WEIGHT`. `where` holds conditions such as `corpus=house`: only sentence
        pairs that meet them are ever looked at. `source_lang` is for a model of many languages whose store was made
        from another one. `exact` is the paper's plain method, without what makes it fast and hardly changes it.
        """
        retriever = open_retriever(stores, nprobe=nprobe, where=where)
        given = {"k": k, "temperature": temperature, "weight": weight, "beam": beam, "certain": certain}
        loaded = model_of_store(retriever.stores[0], model, source_lang)
        translator = cls(loaded, retriever, replace(settings_for(retriever, **given), exact=exact))
        translator._reopen = lambda: (open_retriever(stores, nprobe=nprobe, where=where), given)
        return translator

    @classmethod
    def from_model(
        cls,
        model: str,
        *,
        source_lang: str | None = None,
        target_lang: str | None = None,
        beam: int = 5,
        exact: bool = False,
    ) -> "Translator":
        """The base model alone."""
        loaded = load_model(model, source_lang=source_lang, target_lang=target_lang)
        return cls(loaded, None, SearchSettings(beam=beam, weight=0.0, exact=exact))

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
        return self.retriever.stores if self.retriever else []

    def refresh(self) -> bool:
        """Take up what has changed in the stores since they were opened; tells whether anything has."""
        if self._reopen is None or self.retriever is None:
            return False
        if all(read_manifest(store.path) == store.manifest for store in self.stores):
            return False
        retriever, given = self._reopen()
        for store in retriever.stores:
            check_fingerprint(store, store.manifest.model, self.translation_model.fingerprint, "the one that is loaded")
        settings = replace(settings_for(retriever, **given), exact=self.settings.exact)
        settings.check_against(retriever.entries)
        with lock_of(self.model):
            self.retriever, self.settings = retriever, settings
        return True

    def base(self) -> "Translator":
        """The same model without retrieval."""
        return Translator(self.translation_model, None, replace(self.settings, weight=0.0))

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Translations, in the order of the texts; an empty text stays empty."""
        return [translation.text for translation in self.translations(texts)]

    def translations(
        self, texts: Sequence[str], *, batch_tokens: int = BATCH_TOKENS, advance: Advance | None = None
    ) -> list[Translation]:
        """Translations with their tokens, in the order of the texts; `advance` is told of each that is done.

        A text that comes again is translated once.
        """
        if isinstance(texts, str):
            raise SettingsError("translate takes a list of texts; for one text, give a list of one")
        times = Counter(text for text in texts if text.strip())
        wanted = list(times)
        sources, cut = self.translation_model.fitting_sources(wanted)
        done = {}
        for row, output in self._decode(sources, batch_tokens):
            done[wanted[row]] = self._translation(wanted[row], output, cut[row])
            if advance:
                advance(times[wanted[row]], len(output.tokens))
        return [done.get(text) or Translation(text, "") for text in texts]

    def _decode(self, sources: list[list[int]], batch_tokens: int) -> Iterator[tuple[int, Hypothesis]]:
        """Row and output of each source, batch by batch."""
        model, rules = self.translation_model, rules_of(self.translation_model, self.settings.beam)
        for batch in batches_by_tokens([len(source) for source in sources], batch_tokens):
            ids, mask = pad([sources[row] for row in batch], model.padding)
            ids, mask = ids.to(model.network.device), mask.to(model.network.device)
            with lock_of(model.network):
                outputs = self._generate(ids, mask) if rules is None else self._search(ids, mask, rules)
            yield from zip(batch, outputs, strict=True)

    def _search(self, ids: torch.Tensor, mask: torch.Tensor, rules: BeamRules) -> list[Hypothesis]:
        """Outputs by our own beam search."""
        model = self.translation_model
        propose = proposing(self.retriever, self.settings, self.asked)
        return BeamSearch(model, rules, propose, quick=not self.settings.exact).run(ids, mask)

    @torch.inference_mode()
    def _generate(self, ids: torch.Tensor, mask: torch.Tensor) -> list[Hypothesis]:
        """Outputs by the model's own `generate`, for rules that only it knows."""
        model, longest = self.translation_model, longest_output(self.translation_model)
        with self.retrieving():
            rows = model.network.generate(
                input_ids=ids, attention_mask=mask, num_beams=self.settings.beam, max_length=longest, **model.generation
            )
            outputs = [text_tokens(row, model) for row in rows.tolist()]
            return [self._judged(ids[row : row + 1], tokens, longest) for row, tokens in enumerate(outputs)]

    def _judged(self, ids: torch.Tensor, tokens: list[int], longest: int) -> Hypothesis:
        """Given output tokens with their log-probability; source ids are [1, time]."""
        model = self.translation_model
        source = [token for token in ids[0].tolist() if token != model.padding]
        logits = model.network(**model.teacher_forcing([source], [tokens]), use_cache=False).logits
        logarithms = torch.log_softmax(logits[0, len(model.decoder_prefix) - 1 :].float(), dim=-1)
        total = float(logarithms.gather(1, torch.tensor(tokens, device=logits.device)[:, None]).sum())
        at_limit = len(model.decoder_prefix) + len(tokens) >= longest
        unfinished = at_limit and int(logarithms[-1].argmax()) != model.end_token
        return Hypothesis(total / len(tokens), total, tokens, unfinished)

    def _translation(self, text: str, output: Hypothesis, cut: bool) -> Translation:
        model = self.translation_model
        text_out = model.decode(output.tokens)
        return Translation(text, text_out, tuple(output.tokens), output.total, cut, output.unfinished)

    def retrieving(self) -> AbstractContextManager[None]:
        """Inside, the model's distribution is the mixed one."""
        model = self.translation_model
        if self.retriever is None or self.settings.weight == 0:
            return nullcontext()
        return mixing_in(model.network, model.key_site, self.retriever, self.settings)

    def explain(self, text: str) -> Explanation:
        """The translation, and for each of its tokens the neighbours behind it."""
        if self.retriever is None:
            raise StoreError("--store is missing: only a translation with a datastore can be explained")
        translation = self.translations([text])[0]
        with lock_of(self.model):
            return explain_tokens(
                self.translation_model, self.retriever, self.settings, text, translation.tokens, translation.text
            )


def text_tokens(row: list[int], model: TranslationModel) -> list[int]:
    """What `generate` gave, without the decoder's prefix and the padding."""
    tokens = row[len(model.decoder_prefix) :]
    return tokens[: tokens.index(model.end_token) + 1] if model.end_token in tokens else tokens


def open_retriever(stores: StorePaths, *, nprobe: int | None, where: Sequence[str] = ()) -> Retriever:
    """Open one store or several, with the names and weights that were given with them."""
    memories = open_memories(stores)
    try:
        return Retriever(
            [memory.store for memory in memories],
            nprobe=nprobe,
            where=[Condition.parse(text) for text in where],
            trust=[memory.weight for memory in memories],
            names=[memory.name for memory in memories],
        )
    except (StoreError, OSError):
        if all(read_manifest(memory.store.path) == memory.store.manifest for memory in memories):
            raise
        return open_retriever(stores, nprobe=nprobe, where=where)  # a store was changed in this very moment


def settings_for(retriever: Retriever, **given: Any) -> SearchSettings:
    """What the caller gave, else what the first store was tuned to, else the paper's values."""
    defaults = SearchSettings()
    tuned = {"k": defaults.k} | (retriever.stores[0].manifest.tuned or {})
    tuned["k"] = min(tuned["k"], retriever.entries)  # a filter may leave fewer than the store was tuned for
    chosen = {name: given[name] if given[name] is not None else tuned.get(name) for name in given}
    return replace(defaults, **{name: value for name, value in chosen.items() if value is not None})


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
        raise StoreError(
            f"{store.path}: made with another model than {name} "
            f"(fingerprint {record.fingerprint}, not {found}); build it again with this one"
        )


@contextmanager
def attach_retrieval(
    model: Any,
    stores: StorePaths,
    *,
    tokenizer: Any,
    k: int | None = None,
    temperature: float | None = None,
    weight: float | None = None,
    certain: float | None = None,
    nprobe: int | None = None,
    where: Sequence[str] = (),
) -> Iterator[None]:
    """Add retrieval to a loaded Hugging Face model for the time of a `with` block; your own `generate` call goes on."""
    retriever = open_retriever(stores, nprobe=nprobe, where=where)
    record = retriever.stores[0].manifest.model
    check_fingerprint(retriever.stores[0], record, fingerprint(model, tokenizer), "the one given")
    settings = settings_for(retriever, k=k, temperature=temperature, weight=weight, certain=certain)
    site = key_site_of(model, record.key_site)
    with lock_of(model), mixing_in(model, site, retriever, settings):
        yield
