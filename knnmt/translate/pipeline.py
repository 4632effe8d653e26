"""`pipeline("translation")`, as transformers had it until version 5, with or without a datastore."""

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import islice
from typing import Any, overload

import torch

from knnmt.engine.runtime import lock_of
from knnmt.errors import SettingsError
from knnmt.models.translation_model import TranslationModel, load_model, wrap_model
from knnmt.retrieval.memories import StorePaths
from knnmt.translate.settings import TranslateSettings
from knnmt.translate.translator import Translation, Translator, check_fingerprint, open_retriever

log = logging.getLogger(__name__)

TASK = re.compile(r"translation(?:_(\w+)_to_(\w+))?")
WITHOUT_EFFECT = ("truncation", "clean_up_tokenization_spaces", "return_text")  # what they ask for is always done
LENGTHS = {"max_length", "max_new_tokens"}  # the one that a call gives replaces both
SETTINGS = {one.name for one in fields(TranslateSettings)}
# What programs said of how a model is loaded, with the values that say what is done here anyway.
LOADING: dict[str, tuple[Any, ...]] = {
    "framework": ("pt",),
    "use_fast": (True, False),
    "torch_dtype": ("auto", "float32", torch.float32),
    "dtype": ("auto", "float32", torch.float32),
    "trust_remote_code": (False,),
}
BLOCK = 64  # texts of a generator that are translated together, unless `batch_size` says otherwise

Translated = list[dict[str, str]]


def pipeline(
    task: str = "translation",
    model: Any = None,
    *,
    tokenizer: Any = None,
    store: StorePaths | None = None,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
    batch_size: int | None = None,
    device: Any = None,
    **options: Any,
) -> "TranslationPipeline":
    """Return a function that translates, as transformers' `pipeline` did.

    `pipeline("translation", model="…")("Guten Tag")` gives `[{"translation_text": …}]`. The model is a name, a folder,
    or a loaded model with its `tokenizer`; with a store, it may be left out. Other options are fields of
    `TranslateSettings`, or settings of `generate` for every call.
    """
    languages = languages_of(task, src_lang, tgt_lang)
    settings, always = parted(options)
    translator = make_translator(model, tokenizer, store, languages, settings)
    check_generation(always, translator.model.generation_config)
    if device not in (None, -1):
        translator.model.to(device)
    if store is not None:  # whose model has the languages of the store
        always |= {name: code for name, code in zip(("src_lang", "tgt_lang"), languages, strict=True) if code}
    return TranslationPipeline(translator, batch_size=batch_size, **always)


def parted(options: dict[str, Any]) -> tuple[TranslateSettings, dict[str, Any]]:
    """The settings of a translator, and what holds for each call."""
    for name in LOADING.keys() & options.keys():
        if options[name] is not None and options[name] not in LOADING[name]:
            hint = '; precision="bfloat16" halves the weights' if "dtype" in name else ""
            raise SettingsError(f"pipeline: {name}={options[name]}: not known here{hint}")
    own = {name: value for name, value in options.items() if name in SETTINGS}
    if options.get("num_beams") is not None:
        own["beam"] = options["num_beams"]
    left = options.keys() - SETTINGS - LOADING.keys() - {"num_beams"}
    return TranslateSettings(**own), {name: value for name, value in options.items() if name in left}


def check_generation(options: dict[str, Any], settings: Any) -> None:
    generation_options({name: options[name] for name in options.keys() - {"num_return_sequences"}}, settings)


def languages_of(task: str, source: str | None, target: str | None) -> tuple[str | None, str | None]:
    """The given languages, otherwise those in the task name: `translation_de_to_en`."""
    found = TASK.fullmatch(task)
    if not found:
        raise SettingsError(f'pipeline("{task}"): only "translation" and "translation_XX_to_YY" are known')
    return source or found[1], target or found[2]


def make_translator(
    model: Any,
    tokenizer: Any,
    store: StorePaths | None,
    languages: tuple[str | None, str | None],
    settings: TranslateSettings,
) -> Translator:
    if store is None and model is None:
        raise SettingsError("pipeline: model or store is missing")
    if store is not None and (model is None or isinstance(model, str)):
        return Translator.from_store(store, settings, model=model)
    loaded = loaded_model(model, tokenizer, languages)
    if store is None:
        return Translator(loaded, None, settings)
    retriever = open_retriever(store, settings)
    check_fingerprint(retriever.stores[0], retriever.stores[0].manifest.model, loaded.fingerprint, "the one given")
    return Translator.with_memory(loaded, retriever, settings)


def loaded_model(model: Any, tokenizer: Any, languages: tuple[str | None, str | None]) -> TranslationModel:
    source, target = languages
    if isinstance(model, str):
        return load_model(model, source_lang=source, target_lang=target)
    if tokenizer is None:
        raise SettingsError("pipeline: a loaded model needs its tokenizer=… too")
    name = str(getattr(model, "name_or_path", "") or type(model).__name__)
    return wrap_model(model.eval(), tokenizer, name=name, source_lang=source, target_lang=target)


class TranslationPipeline:
    """Takes a text, a list or any iterable of texts, and gives what transformers' pipeline gave."""

    def __init__(self, translator: Translator, *, batch_size: int | None = None, **always: Any) -> None:
        if batch_size is not None and batch_size < 1:
            raise SettingsError(f"batch_size {batch_size}: must be at least 1")
        self.translator = translator
        self.batch_size = batch_size
        self.always = always  # options of every call

    @property
    def model(self) -> Any:
        """The Hugging Face model itself."""
        return self.translator.model

    @property
    def tokenizer(self) -> Any:
        """The Hugging Face tokenizer itself."""
        return self.translator.tokenizer

    @overload
    def __call__(self, texts: str | list[str], *more: str, **options: Any) -> Translated | list[Translated]: ...
    @overload
    def __call__(self, texts: Iterable[str], **options: Any) -> Iterator[Translated]: ...
    def __call__(
        self, texts: str | Iterable[str], *more: str, batch_size: int | None = None, **options: Any
    ) -> Translated | list[Translated] | Iterator[Translated]:
        """One dictionary for each text; of an iterable that is no list, a list of one for each, as it is asked for.

        With `num_return_sequences` a list of so many for each text, the best first; for a single text, that list.
        """
        size = batch_size or self.batch_size
        options = self._with_always(options)
        if isinstance(texts, str):
            done = self._translated([texts, *more], size, options)
            return flat(done) if more else done[0]
        if isinstance(texts, list | tuple):
            return flat(self._translated(texts, size, options))
        try:
            given = iter(texts)  # of a dataset, too, which may have no more than __getitem__
        except TypeError as error:
            raise SettingsError(f"pipeline: texts must be str, not {type(texts).__name__}") from error
        return self._stream(given, size or BLOCK, options)

    def _with_always(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options of a call, and those of every call that it does not change."""
        changed = {*options, *(LENGTHS if LENGTHS & options.keys() else ())}
        return {name: value for name, value in self.always.items() if name not in changed} | options

    def _stream(self, texts: Iterator[str], size: int, options: dict[str, Any]) -> Iterator[Translated]:
        while block := list(islice(texts, size)):
            yield from self._translated(block, None, options)

    def _translated(self, texts: Sequence[str], size: int | None, options: dict[str, Any]) -> list[Translated]:
        for text in texts:
            if not isinstance(text, str):
                raise SettingsError(f"pipeline: texts must be str, not {type(text).__name__}")
        size = size or max(1, len(texts))
        blocks = [texts[first : first + size] for first in range(0, len(texts), size)]
        return [done for block in blocks for done in self._records(block, **options)]

    def _records(self, texts: Sequence[str], *, num_return_sequences: int = 1, **options: Any) -> list[Translated]:
        beams = options.get("num_beams") or self.translator.settings.beam
        if num_return_sequences < 1:
            raise SettingsError(f"pipeline: num_return_sequences={num_return_sequences}: must be at least 1")
        if num_return_sequences > beams:
            told = f"num_return_sequences={num_return_sequences}: there are {beams} beams"
            raise SettingsError(f"pipeline: {told}; give num_beams={num_return_sequences}")
        done = self._translations(texts, **options)
        return [records(one, self.translator.translation_model, num_return_sequences) for one in done]

    def _translations(
        self,
        texts: Sequence[str],
        *,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        num_beams: int | None = None,
        **others: Any,
    ) -> list[Translation]:
        translator = self._translator(src_lang, tgt_lang, num_beams)
        settings = translator.model.generation_config
        asked = generation_options(others, settings)
        with lock_of(translator.model):
            before = {name: getattr(settings, name, None) for name in asked}
            try:
                settings.update(**asked)
                return translator.translations(texts)
            finally:
                settings.update(**before)

    def _translator(self, source: str | None, target: str | None, beam: int | None) -> Translator:
        """The translator with the settings of a call."""
        model, settings, changed = self.translator.translation_model, self.translator.settings, False
        if (source or target) and (source, target) != (model.source_lang, model.target_lang):
            model = wrap_model(
                model.network,
                model.tokenizer,
                name=model.name,
                source_lang=source or model.source_lang,
                target_lang=target or model.target_lang,
            )
            changed = True
        if beam is not None and beam != settings.beam:
            settings, changed = replace(settings, beam=beam), True
        own = self.translator
        return Translator(model, own.retriever, settings, own.mixer) if changed else own


def generation_options(options: dict[str, Any], settings: Any) -> dict[str, Any]:
    """The options of one call as the model's own configuration, `settings`, would name them."""
    asked = {name: value for name, value in options.items() if name not in WITHOUT_EFFECT and value is not None}
    for name in asked:
        if name.startswith("_") or name not in vars(settings):
            raise SettingsError(f"pipeline: {name}= is not known here; attach_retrieval leaves generate to you")
    new = asked.pop("max_new_tokens", None)
    return asked if new is None else asked | {"max_length": new + 1}  # the start token counts


def records(translation: Translation, model: TranslationModel, count: int) -> Translated:
    """The best translations of a text, as many as requested."""
    if translation.cut:
        log.warning("a text is too long for the model; its end was not translated: %.60s…", translation.source)
    others = [model.decode(tokens) for tokens in translation.others] or [translation.text] * (count - 1)
    return [{"translation_text": text} for text in [translation.text, *others][:count]]


def flat(done: list[Translated]) -> Translated | list[Translated]:
    """The translation itself for texts with one translation, instead of a list of one."""
    return [one for (one,) in done] if all(len(several) == 1 for several in done) else done
