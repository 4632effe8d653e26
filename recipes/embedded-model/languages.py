"""What a model of many languages has beside Marian's: a token for each language, after the vocabulary's own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import sentencepiece
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

from text import RecipeError

LANGUAGES: tuple[str, ...] = tuple(FAIRSEQ_LANGUAGE_CODES["m2m100"])
UNUSED = 8  # numbers that M2M100Tokenizer counts after the languages and no text uses
PIECES = "sentencepiece.bpe.model"
FIRST = ("<s>", "<pad>", "</s>", "<unk>")  # M2M-100's own order


def language_of(path: Path) -> str:
    """`train.de.gz` is German."""
    code = Path(path.name.removesuffix(".gz")).suffix.removeprefix(".")
    if code not in LANGUAGES:
        raise RecipeError(f"{path}: m2m_100 takes the language from the file's ending, and {code!r} is none of its own")
    return code


def language_token(vocabulary: dict[str, int], language: str) -> int:
    return len(vocabulary) + LANGUAGES.index(language)


def total_size(vocabulary: dict[str, int]) -> int:
    return len(vocabulary) + len(LANGUAGES) + UNUSED


def write_m2m_files(folder: Path, model: Path, *, languages: Sequence[str]) -> None:
    """A SentencePiece model as the files of M2M100Tokenizer."""
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    others = [pieces.id_to_piece(index) for index in range(len(pieces)) if pieces.id_to_piece(index) not in FIRST]
    vocabulary = {piece: index for index, piece in enumerate((*FIRST, *others))}
    settings = {
        "tokenizer_class": "M2M100Tokenizer", "src_lang": languages[0], "tgt_lang": languages[1],
        "additional_special_tokens": [f"__{language}__" for language in LANGUAGES], "model_max_length": 256,
    }  # fmt: skip
    shutil.copyfile(model, folder / PIECES)
    for name, content in (("vocab.json", vocabulary), ("tokenizer_config.json", settings)):
        (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
