"""Any Hugging Face encoder-decoder as a translation model: its languages, its token ids, its fingerprint."""

import hashlib
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PreTrainedTokenizerBase

from knnmt.errors import ModelError
from knnmt.models.architectures import KeySite, architecture_of, key_site_of, module_at
from knnmt.models.batching import pad
from knnmt.models.language_tokens import source_prefix_of
from knnmt.models.marian_tokenizer import load_tokenizer
from knnmt.models.network import Network

BUILTIN = "builtin:"
PLAIN_TEXT = {"split_special_tokens": True}  # a text that says "</s>" means those four characters, not the end
HUB_NAME = re.compile(r"(\w[\w.-]*/)?\w[\w.-]*", re.ASCII)
DEFAULT_POSITIONS = 512  # for models with relative positions, which have no limit of their own
COMPUTED_WEIGHTS = ("embed_positions.weight", "final_logits_bias")  # the model makes them where a file has none


@dataclass(frozen=True)
class TranslationModel:
    """A loaded model and everything needed to feed it."""

    name: str
    network: Network
    tokenizer: PreTrainedTokenizerBase
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
        """The dimension of a key. With `--key-site` it can differ from the model's."""
        site = module_at(self.network, self.key_site.path)
        return int(getattr(site, "in_features", self.network.config.d_model))

    @property
    def end_token(self) -> int:
        end = self.network.generation_config.eos_token_id
        return int(end[0] if isinstance(end, list) else end)

    @property
    def padding(self) -> int:
        return int(self.network.config.pad_token_id)

    @property
    def positions(self) -> int:
        """The maximum sequence length."""
        return int(getattr(self.network.config, "max_position_embeddings", None) or DEFAULT_POSITIONS)

    def encode_sources(self, texts: Sequence[str], *, longest: int | None = None) -> list[list[int]]:
        """Source tokens with special tokens; with `longest`, truncated inside them."""
        if not texts:
            return []
        cutting = {} if longest is None else {"truncation": True, "max_length": longest}
        given = [self.source_prefix + text for text in texts]
        encoded = self.tokenizer(given, **PLAIN_TEXT, **cutting, verbose=False)  # who asks knows what a long text is
        return [list(ids) for ids in encoded["input_ids"]]

    def fitting_sources(self, texts: Sequence[str]) -> tuple[list[list[int]], list[bool]]:
        """Source tokens within the model's limit, and which texts were truncated."""
        sources = self.encode_sources(texts)
        cut = [len(source) > self.positions for source in sources]
        for row, overlong in enumerate(cut):
            if overlong:
                sources[row] = self.encode_sources([texts[row]], longest=self.positions)[0]
        return sources, cut

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """Target tokens and the end token: what the decoder must produce after `decoder_prefix`."""
        if self.target_tokenizer is self.tokenizer:
            encoded = self.tokenizer(text_target=list(texts), add_special_tokens=False, **PLAIN_TEXT)
        else:
            encoded = self.target_tokenizer(list(texts), add_special_tokens=False, **PLAIN_TEXT)
        return [[*ids, self.end_token] for ids in encoded["input_ids"]]

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True)).strip()

    def token_text(self, token: int) -> str:
        """The token's string in the vocabulary."""
        return str(self.tokenizer.convert_ids_to_tokens([token])[0])

    def token_texts(self, tokens: Sequence[int]) -> list[str]:
        """The same for several tokens, with one call to the tokenizer."""
        known = self.known_texts
        new = [token for token in tokens if token not in known]
        known.update(zip(new, map(str, self.tokenizer.convert_ids_to_tokens(new)), strict=True))
        return [known[token] for token in tokens]

    @cached_property
    def known_texts(self) -> dict[int, str]:
        return {}

    @cached_property
    def special_tokens(self) -> frozenset[int]:
        """Tokens that are no text."""
        return frozenset(self.tokenizer.all_special_ids)

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
    """Load a model: a name on the Hugging Face Hub, a folder, or `builtin:de-en`."""
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


def load_weights(name: str) -> tuple[Network, PreTrainedTokenizerBase]:
    """The Hugging Face objects, in single precision: half is slower on a CPU."""
    place = model_folder(name)
    with explaining(f"--model {name}: cannot be loaded"):
        network, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(
            place, dtype=torch.float32, output_loading_info=True
        )
    missing = sorted(weight for weight in report["missing_keys"] if not weight.endswith(COMPUTED_WEIGHTS))
    if missing:
        raise ModelError(f"--model {name}: the file of weights lacks {len(missing)} of them, such as {missing[0]}")
    with explaining(f"--model {name}: its tokenizer cannot be loaded, perhaps for a missing file"):
        tokenizer = load_tokenizer(place, model_type=network.config.model_type)
    known, needed = len(tokenizer), network.get_input_embeddings().weight.shape[0]
    if known < needed / 2:  # sizes are often rounded up, but without its files a tokenizer is just a few special tokens
        raise ModelError(f"--model {name}: its tokenizer knows {known} tokens of {needed}; are its files there?")
    return network.eval(), tokenizer


@contextmanager
def explaining(what: str) -> Iterator[None]:
    """Turn any exception of the libraries into one ModelError."""
    try:
        yield
    except Exception as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise ModelError(f"{what}: {reason}") from error


def model_folder(name: str) -> str:
    """The argument for `from_pretrained`: a folder, or a name on the Hub."""
    if name.startswith(BUILTIN):
        folder = Path(str(resources.files("knnmt"))) / "data" / name.removeprefix(BUILTIN)
        if not (folder / "config.json").is_file():
            raise ModelError(f"--model {name}: no such embedded model; there is {BUILTIN}de-en")
        return str(folder)
    place = Path(name).expanduser()
    if place.is_dir() and not (place / "config.json").is_file():
        raise ModelError(f"--model {name}: the folder has no config.json, so it holds no model")
    if not place.is_dir() and (place.exists() or not HUB_NAME.fullmatch(name)):
        raise ModelError(f"--model {name}: no such folder, and not a name of the Hugging Face Hub")
    return str(place) if place.is_dir() else name


def wrap_model(
    network: Network,
    tokenizer: Any,
    *,
    name: str,
    source_lang: str | None = None,
    target_lang: str | None = None,
    source_prefix: str | None = None,
    key_site: str | None = None,
) -> TranslationModel:
    """Wrap loaded Hugging Face objects, with everything that follows from them."""
    site, languages = key_site_of(network, key_site), architecture_of(network).languages
    source_lang, target_lang = (
        given or own for given, own in zip((source_lang, target_lang), languages.own(tokenizer), strict=True)
    )
    generation = languages.choose(tokenizer, source_lang, target_lang) or forced_opening(network, tokenizer)
    if source_prefix is None:
        source_prefix = source_prefix_of(network, tokenizer, source_lang, target_lang)
    return TranslationModel(
        name=name,
        network=network,
        tokenizer=tokenizer,
        target_tokenizer=languages.target_side(tokenizer),
        key_site=site,
        source_lang=source_lang,
        target_lang=target_lang,
        source_prefix=source_prefix,
        generation=generation,
        decoder_prefix=decoder_prefix(network, generation),
        fingerprint=fingerprint(network, tokenizer),
    )


def forced_opening(network: Network, tokenizer: Any) -> dict[str, int]:
    """Force `<s>` as the first token for BART: in training, its tokenizer put it before every target."""
    first = tokenizer(text_target="")["input_ids"][0]
    forced = network.generation_config.forced_bos_token_id is not None
    return {} if forced or first != tokenizer.bos_token_id else {"forced_bos_token_id": int(first)}


def decoder_prefix(network: Network, generation: dict[str, int]) -> tuple[int, ...]:
    """Start token and, where there is one, the forced first token."""
    settings = network.generation_config
    start = generation.get("decoder_start_token_id", settings.decoder_start_token_id)
    if start is None:
        start = settings.bos_token_id
    forced = generation.get("forced_bos_token_id", settings.forced_bos_token_id)
    return (int(start),) if forced is None else (int(start), int(forced))


def fingerprint(network: Network, tokenizer: Any) -> str:
    """A hash of weights and vocabulary, independent of where they were loaded from."""
    digest = hashlib.sha256()
    for name, weight in sorted(network.named_parameters()):
        values = weight.detach().float().cpu().contiguous().numpy()
        # A strong hash of them all takes seconds.
        digest.update(f"{name}{values.shape}{zlib.crc32(values.data)}\n".encode())
    for vocabulary in vocabularies(tokenizer):
        for token, number in sorted(vocabulary.items()):
            digest.update(f"{token}\t{number}\n".encode())
    return digest.hexdigest()[:16]


def vocabularies(tokenizer: Any) -> list[dict[str, int]]:
    """The tokenizer's vocabulary, and the target's if it has its own."""
    known = tokenizer.get_vocab()
    target = getattr(tokenizer, "decoder", None)  # token number to token, where the tokenizer is FSMT's or Marian's
    if not isinstance(target, dict) or all(known.get(token) == number for number, token in target.items()):
        return [known]
    return [known, {token: number for number, token in target.items()}]
