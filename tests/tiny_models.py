"""Tiny models with random weights and real tokenizers, one of every architecture, made offline in a moment.

`tiny_folder(name)` is a folder as `save_pretrained` writes it; `tiny_model(name)` is that folder, loaded as any other.
Both are made once a session. Tests share what they get: leave it as it was.
"""

import io
import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import sentencepiece
import tokenizers
import torch
import transformers
from torch import nn
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

from knnmt.models.batching import pad
from knnmt.models.translation_model import TranslationModel, load_model

GERMAN = (
    "Das Haus steht am Fluss.",
    "Der kleine Hund schläft im Garten.",
    "Bitte öffnen Sie die Tür, bevor Sie gehen.",
    "Der Motor läuft seit drei Stunden.",
    "Wir haben die Datei gespeichert.",
    "Der Druck im Kessel ist viel zu hoch.",
)
ENGLISH = (
    "The house stands by the river.",
    "The small dog sleeps in the garden.",
    "Please open the door before you leave.",
    "The engine has been running for three hours.",
    "We have saved the file.",
    "The pressure in the boiler is much too high.",
)
SEEDS = {"marian": 1, "mbart": 3, "pegasus": 3}  # with these, of the sentences above some end early and some do not
DEFAULT_SEED = 2
MAX_LENGTH = 24
LAYER_SCALE = 1.0  # large, so that what comes next depends on all that came before, not on the last token alone
T5_LAYER_SCALE = 0.5  # its attention has no scale of its own: with more it would look at one token only
EMBEDDING_SCALE = 0.4
END_SCALE = 1.6  # of the end token's row: it wins now and then, so that some hypotheses end early
SMALL = {"d_model": 16, "max_position_embeddings": 64, "dropout": 0.0} | {
    f"{side}_{name}": size
    for side in ("encoder", "decoder")
    for name, size in (("layers", 2), ("attention_heads", 2), ("ffn_dim", 32))
}
SMALL_T5 = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "dropout_rate": 0.0}
NLLB_CODES = ["arb_Arab", "deu_Latn", "eng_Latn", "zho_Hans", "zho_Hant"]


@dataclass(frozen=True)
class Architecture:
    """How a folder of this kind is made, and the languages that a user names."""

    make: Callable[[Path], None]
    languages: tuple[str, str] | None = None


def save(folder: Path, network: Any, tokenizer: Any, **generation: Any) -> None:
    """Random weights of a size that makes the output vary, then both objects to the folder."""
    torch.manual_seed(SEEDS.get(network.config.model_type, DEFAULT_SEED))
    layer_scale = T5_LAYER_SCALE if "t5" in network.config.model_type else LAYER_SCALE
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Embedding) and "Sinusoidal" not in type(module).__name__:
            nn.init.normal_(module.weight, std=EMBEDDING_SCALE if isinstance(module, nn.Embedding) else layer_scale)
    network.generation_config.update(max_length=MAX_LENGTH, **generation)
    rows = output_rows(network)
    nn.init.normal_(rows, std=EMBEDDING_SCALE)
    with torch.no_grad():
        rows[network.generation_config.eos_token_id] *= END_SCALE
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def output_rows(network: Any) -> torch.Tensor:
    if network.config.model_type == "fsmt":
        return network.model.decoder.output_projection.weight  # not what its `get_output_embeddings` gives
    return network.get_output_embeddings().weight


def sentencepiece_model(sentences: Iterable[str], **options: Any) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        **{"vocab_size": 90, "hard_vocab_limit": False, "num_threads": 1, "minloglevel": 2, **options},
    )
    return model.getvalue()


def pieces(model: bytes) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(len(processor)) if not processor.is_control(i)]


def numbered(tokens: Iterable[str]) -> bytes:
    """A vocabulary file."""
    return json.dumps({token: number for number, token in enumerate(dict.fromkeys(tokens))}).encode()


def tokenizer_from(folder: Path, kind: str, files: dict[str, bytes], **settings: Any) -> Any:
    """A tokenizer read from the files that the Hub has for it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind, **settings}))
    return getattr(transformers, kind).from_pretrained(folder)


def make_fsmt(folder: Path) -> None:
    """Two vocabularies of different sizes, as facebook/wmt19-ru-en has."""
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    merges = [("t", "h"), ("th", "e</w>"), ("i", "n</w>"), ("e", "r</w>"), ("e", "n</w>"), ("e", "i")]
    joined = ["".join(pair) for pair in merges]
    sides = {"src": special + characters(GERMAN) + joined, "tgt": special + joined + characters(ENGLISH)}
    files = {f"vocab-{side}.json": numbered(tokens) for side, tokens in sides.items()}
    files["merges.txt"] = "".join(f"{left} {right} 9\n" for left, right in merges).encode()
    tokenizer = tokenizer_from(folder, "FSMTTokenizer", files, langs=["de", "en"])
    config = transformers.FSMTConfig(
        langs=["de", "en"],
        src_vocab_size=tokenizer.src_vocab_size,
        tgt_vocab_size=tokenizer.tgt_vocab_size,
        **SMALL,
    )
    save(folder, transformers.FSMTForConditionalGeneration(config), tokenizer)


def characters(sentences: Sequence[str]) -> list[str]:
    single = sorted(set("".join(sentences)) - {" "})
    return [*single, *(f"{character}</w>" for character in single)]


def make_marian(folder: Path) -> None:
    """A SentencePiece model for each side, one vocabulary for both; the padding starts the decoder."""
    sides = {"source.spm": sentencepiece_model(GERMAN), "target.spm": sentencepiece_model(ENGLISH)}
    both = [piece for model in sides.values() for piece in pieces(model)]
    vocabulary = numbered(["</s>", "<unk>", *both, "<pad>"])
    files = {**sides, "vocab.json": vocabulary}
    tokenizer = tokenizer_from(folder, "MarianTokenizer", files, source_lang="de", target_lang="en")
    padding = tokenizer.pad_token_id
    config = transformers.MarianConfig(
        vocab_size=len(tokenizer),
        pad_token_id=padding,
        eos_token_id=0,
        decoder_start_token_id=padding,
        forced_eos_token_id=0,
        **SMALL,
    )
    save(folder, transformers.MarianMTModel(config), tokenizer, bad_words_ids=[[padding]], renormalize_logits=True)


def make_bart(folder: Path) -> None:
    trainer = tokenizers.ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer.train_from_iterator([*GERMAN, *ENGLISH], vocab_size=300, special_tokens=special, show_progress=False)
    folder.mkdir(parents=True, exist_ok=True)
    trainer.save_model(str(folder))
    tokenizer = tokenizer_from(folder, "BartTokenizer", {})
    config = transformers.BartConfig(vocab_size=len(tokenizer), forced_bos_token_id=0, **SMALL)
    save(folder, transformers.BartForConditionalGeneration(config), tokenizer, forced_bos_token_id=0)


def make_mbart(folder: Path) -> None:
    tokenizer = tokenizer_from(folder, "MBartTokenizer", {"sentencepiece.bpe.model": sentencepiece_model(BOTH)})
    config = transformers.MBartConfig(vocab_size=len(tokenizer), **SMALL)
    save(folder, transformers.MBartForConditionalGeneration(config), tokenizer)


def make_mbart50(folder: Path) -> None:
    tokenizer = tokenizer_from(folder, "MBart50Tokenizer", {"sentencepiece.bpe.model": sentencepiece_model(BOTH)})
    config = transformers.MBartConfig(vocab_size=len(tokenizer), decoder_start_token_id=2, **SMALL)
    save(folder, transformers.MBartForConditionalGeneration(config), tokenizer)


def make_m2m_100(folder: Path) -> None:
    """Its language tokens come after the vocabulary file."""
    model = sentencepiece_model(BOTH)
    vocabulary = numbered(["<s>", "<pad>", "</s>", *pieces(model)])
    files = {"vocab.json": vocabulary, "sentencepiece.bpe.model": model}
    codes = FAIRSEQ_LANGUAGE_CODES["m2m100"]
    tokenizer = tokenizer_from(
        folder, "M2M100Tokenizer", files, additional_special_tokens=[f"__{code}__" for code in codes]
    )
    size = max(tokenizer.lang_code_to_id.values()) + 1 + tokenizer.num_madeup_words
    config = transformers.M2M100Config(vocab_size=size, **SMALL)
    save(folder, transformers.M2M100ForConditionalGeneration(config), tokenizer)


def make_nllb(folder: Path) -> None:
    files = {"sentencepiece.bpe.model": sentencepiece_model(BOTH, model_type="bpe", vocab_size=120)}
    tokenizer = tokenizer_from(folder, "NllbTokenizer", files, additional_special_tokens=NLLB_CODES)
    config = transformers.M2M100Config(vocab_size=len(tokenizer), decoder_start_token_id=2, **SMALL)
    save(folder, transformers.M2M100ForConditionalGeneration(config), tokenizer)


def make_pegasus(folder: Path) -> None:
    files = {"spiece.model": sentencepiece_model(BOTH, **T5_SPECIAL)}
    tokenizer = tokenizer_from(folder, "PegasusTokenizer", files)
    config = transformers.PegasusConfig(vocab_size=len(tokenizer), **SMALL)
    save(folder, transformers.PegasusForConditionalGeneration(config), tokenizer)


def make_t5(folder: Path, kind: str, **settings: Any) -> None:
    files = {"spiece.model": sentencepiece_model(BOTH, **T5_SPECIAL)}
    tokenizer = tokenizer_from(folder, "T5Tokenizer", files, extra_ids=0)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=len(tokenizer), decoder_start_token_id=0, **SMALL_T5, **settings
    )
    save(folder, getattr(transformers, f"{kind}ForConditionalGeneration")(config), tokenizer)


BOTH = [*GERMAN, *ENGLISH]
T5_SPECIAL = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
MANY_LANGUAGES = ("de", "en")
ARCHITECTURES = {
    "fsmt": Architecture(make_fsmt),
    "marian": Architecture(make_marian),
    "bart": Architecture(make_bart),
    "mbart": Architecture(make_mbart, MANY_LANGUAGES),
    "mbart-50": Architecture(make_mbart50, MANY_LANGUAGES),
    "m2m_100": Architecture(make_m2m_100, MANY_LANGUAGES),
    "nllb": Architecture(make_nllb, MANY_LANGUAGES),
    "pegasus": Architecture(make_pegasus),
    "t5": Architecture(lambda folder: make_t5(folder, "T5")),
    "mt5": Architecture(lambda folder: make_t5(folder, "MT5")),
    "umt5": Architecture(lambda folder: make_t5(folder, "UMT5")),
}


@cache
def session_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="knnmt-tiny-")


@cache
def tiny_folder(name: str) -> Path:
    torch.set_num_threads(1)  # on models this small, threads only wait for each other
    folder = Path(session_folder().name) / name
    ARCHITECTURES[name].make(folder)
    return folder


@cache
def tiny_model(name: str) -> TranslationModel:
    source_lang, target_lang = ARCHITECTURES[name].languages or (None, None)
    return load_model(str(tiny_folder(name)), source_lang=source_lang, target_lang=target_lang)


def generate(model: TranslationModel, sources: Sequence[str], **options: Any) -> Any:
    """The model's own `generate`, kept from what only random weights say: the same again and again, and padding."""
    ids, mask = pad(model.encode_sources(sources), model.padding)
    settings = {"no_repeat_ngram_size": 2, "bad_words_ids": [[model.padding]], **model.generation, **options}
    return model.network.generate(input_ids=ids, attention_mask=mask, **settings)


def generated_targets(model: TranslationModel, sequences: torch.Tensor) -> list[list[int]]:
    """What came after the decoder's prefix, to the end token; T5's beams are padded with the end token itself."""
    rows = [row[len(model.decoder_prefix) :] for row in sequences.tolist()]
    return [row[: row.index(model.end_token) + 1] if model.end_token in row else row for row in rows]
