"""Any Hugging Face encoder-decoder as a translation model: its languages, its token ids, its fingerprint."""

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import torch
import transformers

from knnmt.batching import pad
from knnmt.errors import ModelError
from knnmt.keys import KeySite, key_site_of
from knnmt.languages import model_code

BUILTIN = "builtin:"
DEFAULT_POSITIONS = 512  # for models with relative positions, which have no limit of their own
FINGERPRINT_VALUES = 256  # values read of each weight: enough to tell any two trainings apart, at no cost


@dataclass(frozen=True)
class TranslationModel:
    """A loaded model and everything needed to feed it."""

    name: str
    network: Any
    tokenizer: Any
    target_tokenizer: Any  # FSMT keeps a vocabulary for each side; elsewhere the same object
    key_site: KeySite
    source_lang: str | None
    target_lang: str | None
    source_prefix: str
    generation: dict[str, int]  # what `generate` must be told, such as the target language
    decoder_prefix: tuple[int, ...]  # what the decoder is given before the first token of the text
    fingerprint: str

    @property
    def dimension(self) -> int:
        return int(self.network.config.d_model)

    @property
    def end_token(self) -> int:
        end = self.network.generation_config.eos_token_id
        return int(end[0] if isinstance(end, list) else end)

    @property
    def padding(self) -> int:
        return int(self.network.config.pad_token_id)

    @property
    def positions(self) -> int:
        """The longest sequence that the model can take."""
        return int(getattr(self.network.config, "max_position_embeddings", None) or DEFAULT_POSITIONS)

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        encoded = self.tokenizer([self.source_prefix + text for text in texts])
        return [list(ids) for ids in encoded["input_ids"]]

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokens of the text and the end token: what the decoder is to produce after `decoder_prefix`."""
        if self.target_tokenizer is self.tokenizer:
            encoded = self.tokenizer(text_target=list(texts), add_special_tokens=False)
        else:
            encoded = self.target_tokenizer(list(texts), add_special_tokens=False)
        return [[*ids, self.end_token] for ids in encoded["input_ids"]]

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True)).strip()

    def token_text(self, token: int) -> str:
        """One token as the vocabulary writes it."""
        return str(self.tokenizer.convert_ids_to_tokens([token])[0])

    def teacher_forcing(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> dict[str, Any]:
        """Inputs of one forward pass in which position `len(decoder_prefix) - 1 + i` predicts token i of the target."""
        source_ids, source_mask = pad(sources, self.padding)
        prefixed = [[*self.decoder_prefix, *target[:-1]] for target in targets]
        target_ids, target_mask = pad(prefixed, self.padding)
        inputs = {
            "input_ids": source_ids,
            "attention_mask": source_mask,
            "decoder_input_ids": target_ids,
            "decoder_attention_mask": target_mask,
        }
        return {name: tensor.to(self.network.device) for name, tensor in inputs.items()}


def load_model(
    name: str,
    *,
    source_lang: str | None = None,
    target_lang: str | None = None,
    source_prefix: str | None = None,
    key_site: str | None = None,
) -> TranslationModel:
    """Load a model by Hugging Face name, folder, or `builtin:de-en`."""
    network, tokenizer = load_weights(name)
    return wrap_model(
        network,
        tokenizer,
        name=name,
        source_lang=source_lang,
        target_lang=target_lang,
        source_prefix=source_prefix,
        key_site=key_site,
    )


def load_weights(name: str) -> tuple[Any, Any]:
    """The Hugging Face objects, in single precision: half is slower on a CPU."""
    place = model_folder(name)
    quiet()
    try:
        network = transformers.AutoModelForSeq2SeqLM.from_pretrained(place, dtype=torch.float32)
        tokenizer = transformers.AutoTokenizer.from_pretrained(place)
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ModelError(f"--model {name}: cannot be loaded: {reason}") from error
    return network.eval(), tokenizer


def quiet() -> None:
    """Loading is not worth a line unless it fails."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)


def model_folder(name: str) -> str:
    """What `from_pretrained` takes for the name."""
    if not name.startswith(BUILTIN):
        return name
    folder = Path(str(resources.files("knnmt"))) / "data" / name.removeprefix(BUILTIN)
    if not (folder / "config.json").is_file():
        raise ModelError(f"--model {name}: no such embedded model; there is {BUILTIN}de-en")
    return str(folder)


def wrap_model(
    network: Any,
    tokenizer: Any,
    *,
    name: str,
    source_lang: str | None = None,
    target_lang: str | None = None,
    source_prefix: str | None = None,
    key_site: str | None = None,
) -> TranslationModel:
    """Everything that the loaded objects imply."""
    site = key_site_of(network, key_site)
    source_lang = source_lang or getattr(tokenizer, "source_lang", None)
    target_lang = target_lang or getattr(tokenizer, "target_lang", None)
    generation = set_languages(network, tokenizer, source_lang, target_lang)
    return TranslationModel(
        name=name,
        network=network,
        tokenizer=tokenizer,
        target_tokenizer=target_side(tokenizer),
        key_site=site,
        source_lang=source_lang,
        target_lang=target_lang,
        source_prefix=target_language_prefix(tokenizer, target_lang) if source_prefix is None else source_prefix,
        generation=generation,
        decoder_prefix=decoder_prefix(network, generation),
        fingerprint=fingerprint(network, tokenizer),
    )


def set_languages(network: Any, tokenizer: Any, source_lang: str | None, target_lang: str | None) -> dict[str, int]:
    """Tell a multilingual tokenizer its languages; return what `generate` must be told."""
    codes = language_codes(tokenizer)
    if not codes:
        return {}
    for flag, language in (("--source-lang", source_lang), ("--target-lang", target_lang)):
        if language is None:
            raise ModelError(f"{flag} is missing: this model translates between many languages")
    tokenizer.src_lang = model_code(str(source_lang), codes, "--source-lang")
    tokenizer.tgt_lang = model_code(str(target_lang), codes, "--target-lang")
    target = codes[tokenizer.tgt_lang]
    if network.config.model_type == "mbart" and type(tokenizer).__name__.startswith("MBartTokenizer"):
        return {"decoder_start_token_id": target}  # mBART-25 starts with the language, mBART-50 forces it second
    return {"forced_bos_token_id": target}


def language_codes(tokenizer: Any) -> dict[str, int]:
    """The languages of a multilingual tokenizer and their token ids; empty for a model of one pair."""
    if hasattr(tokenizer, "lang_code_to_id"):
        return dict(tokenizer.lang_code_to_id)
    if type(tokenizer).__name__.startswith("Nllb"):
        names = [str(token) for token in tokenizer.all_special_tokens]
        return {name: tokenizer.convert_tokens_to_ids(name) for name in names if name[3:4] == "_"}
    return {}


def target_language_prefix(tokenizer: Any, target_lang: str | None) -> str:
    """OPUS models with several target languages want `>>fra<<` before the source text."""
    codes = getattr(tokenizer, "supported_language_codes", None) or []
    wanted = [code for code in codes if code.strip("<>") == target_lang]
    return f"{wanted[0]} " if wanted else ""


def target_side(tokenizer: Any) -> Any:
    """FSMT's tokenizer only knows the source side: the target's is made from the same files, turned round."""
    if not type(tokenizer).__name__.startswith("FSMT"):
        return tokenizer
    return type(tokenizer)(
        langs=[tokenizer.tgt_lang, tokenizer.src_lang],
        src_vocab_file=tokenizer.tgt_vocab_file,
        tgt_vocab_file=tokenizer.src_vocab_file,
        merges_file=tokenizer.merges_file,
        do_lower_case=tokenizer.do_lower_case,
    )


def decoder_prefix(network: Any, generation: dict[str, int]) -> tuple[int, ...]:
    """Start token and, where there is one, the forced first token."""
    settings = network.generation_config
    start = generation.get("decoder_start_token_id", settings.decoder_start_token_id)
    if start is None:
        start = settings.bos_token_id
    forced = generation.get("forced_bos_token_id", settings.forced_bos_token_id)
    return (int(start),) if forced is None else (int(start), int(forced))


def fingerprint(network: Any, tokenizer: Any) -> str:
    """A name for exactly these weights and this vocabulary, wherever they were loaded from."""
    digest = hashlib.sha256()
    for name, weight in sorted(network.named_parameters()):
        flat = weight.detach().flatten()
        values = flat[:: max(1, flat.numel() // FINGERPRINT_VALUES)].float().cpu().numpy()
        digest.update(f"{name}{tuple(weight.shape)}".encode() + values.tobytes())
    for token, number in sorted(tokenizer.get_vocab().items()):
        digest.update(f"{token}\t{number}\n".encode())
    return digest.hexdigest()[:16]
