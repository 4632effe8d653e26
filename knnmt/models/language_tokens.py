"""How models name languages: by tokens of their vocabulary, by words before the source, or not at all."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from knnmt.errors import ModelError
from knnmt.models.network import Network
from knnmt.text.languages import model_code, three_letters

Pair = tuple[str | None, str | None]  # source and target language


def pair_of_tokenizer(tokenizer: Any) -> Pair:
    """The languages that the tokenizer of a one-pair model names."""
    return getattr(tokenizer, "source_lang", None), getattr(tokenizer, "target_lang", None)


def pair_of_fsmt(tokenizer: Any) -> Pair:
    return tokenizer.src_lang, tokenizer.tgt_lang


def language_codes(tokenizer: Any) -> dict[str, int]:
    """The languages of a multilingual tokenizer and their token ids; empty for a model of one pair."""
    if hasattr(tokenizer, "lang_code_to_id"):
        return dict(tokenizer.lang_code_to_id)
    if type(tokenizer).__name__.startswith("Nllb"):
        names = [str(token) for token in tokenizer.all_special_tokens]
        return {name: tokenizer.convert_tokens_to_ids(name) for name in names if name[3:4] == "_"}
    return {}


def forced_first(_: Any, target: int) -> dict[str, int]:
    """The argument for `generate` that forces the target language's token first."""
    return {"forced_bos_token_id": target}


def mbart_first(tokenizer: Any, target: int) -> dict[str, int]:
    """mBART-25 starts with the language, mBART-50 forces it second."""
    starts = type(tokenizer).__name__.startswith("MBartTokenizer")
    return {"decoder_start_token_id": target} if starts else forced_first(tokenizer, target)


def same_tokenizer(tokenizer: Any) -> Any:
    return tokenizer


def fsmt_turned_round(tokenizer: Any) -> Any:
    """FSMT's tokenizer knows only the source side. A second one with the sides exchanged uses the same files."""
    return type(tokenizer)(
        langs=[tokenizer.tgt_lang, tokenizer.src_lang],
        src_vocab_file=tokenizer.tgt_vocab_file,
        tgt_vocab_file=tokenizer.src_vocab_file,
        merges_file=tokenizer.merges_file,
        do_lower_case=tokenizer.do_lower_case,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Languages:
    """How one kind of model names its languages. By default, the tokenizer is asked."""

    own: Callable[[Any], Pair] = pair_of_tokenizer
    codes: Callable[[Any], dict[str, int]] = language_codes
    first: Callable[[Any, int], dict[str, int]] = forced_first  # of the tokenizer and the target language's token
    target_side: Callable[[Any], Any] = same_tokenizer  # the tokenizer of targets

    def choose(self, tokenizer: Any, source_lang: str | None, target_lang: str | None) -> dict[str, int]:
        """Set the languages of a multilingual tokenizer; return the arguments for `generate`."""
        codes = self.codes(tokenizer)
        if not codes:
            return {}
        for flag, language in (("--source-lang", source_lang), ("--target-lang", target_lang)):
            if language is None:
                raise ModelError(f"{flag} is missing: this model translates between many languages")
        tokenizer.src_lang = model_code(str(source_lang), codes, "--source-lang")
        tokenizer.tgt_lang = model_code(str(target_lang), codes, "--target-lang")
        return self.first(tokenizer, codes[tokenizer.tgt_lang])


def source_prefix_of(network: Network, tokenizer: Any, source_lang: str | None, target_lang: str | None) -> str:
    """The text that a model needs before the source."""
    return task_prefix(network, source_lang, target_lang) or target_prefix(tokenizer, target_lang)


def target_prefix(tokenizer: Any, target_lang: str | None) -> str:
    """OPUS models with several target languages want `>>fra<<` before the source text."""
    codes = getattr(tokenizer, "supported_language_codes", None) or []
    names = (target_lang, three_letters(target_lang or ""))
    wanted = [code for code in codes if code.strip("<>") in names]
    if len(codes) > 1 and not wanted:
        known = ", ".join(code.strip("<>") for code in codes[:8])
        raise ModelError(f"--target-lang {target_lang}: the model translates into several languages: {known}, …")
    return f"{wanted[0]} " if wanted else ""


def task_prefix(network: Network, source_lang: str | None, target_lang: str | None) -> str:
    """T5 needs the task in words; its configuration has the words."""
    tasks = getattr(network.config, "task_specific_params", None) or {}
    task = tasks.get(f"translation_{source_lang}_to_{target_lang}", {})
    return str(task.get("prefix", ""))
