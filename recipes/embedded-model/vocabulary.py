"""The tokenizer's files of a model's folder: made anew from text, or taken from a given Marian folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import sentencepiece

from languages import PIECES, language_token, write_m2m_files
from text import RecipeError

MODEL_FILES = ("source.spm", "target.spm", "vocab.json")
FILES = (*MODEL_FILES, "tokenizer_config.json")
EOS, UNK, PAD = "</s>", "<unk>", "<pad>"
# Signs of placeholders, tags, paths and options: always pieces of their own, so that they are copied one by one.
SIGNS = "${}<>&=#%@_/\\|[]~^*+`"
SENTENCES = 500_000  # that the pieces are learnt from


def copy_vocabulary(start: Path, folder: Path) -> None:
    missing = [name for name in FILES if not (start / name).is_file()]
    if missing:
        raise RecipeError(f"--start {start}: not a Marian folder, it lacks {', '.join(missing)}")
    copy_files(start, folder)


def copy_files(start: Path, folder: Path) -> None:
    """Whatever tokenizer files the folder has."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*FILES, PIECES):
        if (start / name).is_file():
            shutil.copyfile(start / name, folder / name)


def train_vocabulary(
    lines: Iterable[str], folder: Path, *, size: int, languages: Sequence[str], seed: int, architecture: str = "marian"
) -> None:
    """Train one SentencePiece model for all languages and write it as the architecture's files.

    Every text comes back letter for letter: nothing is normalised, and what has no piece is spelt in bytes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sentencepiece.set_random_generator_seed(seed)
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_prefix=str(folder / "joint"), vocab_size=size - 1,
            minloglevel=2, character_coverage=0.9999, eos_id=0, unk_id=1, bos_id=-1, pad_id=-1, num_threads=2,
            input_sentence_size=SENTENCES, shuffle_input_sentence=True, normalization_rule_name="identity",
            remove_extra_whitespaces=False, byte_fallback=True, split_digits=True, user_defined_symbols=list(SIGNS),
            required_chars="0123456789",
        )  # fmt: skip
    except RuntimeError as error:
        raise RecipeError(f"--vocabulary {size}: not to be had from this text: {error}") from error
    write = {"marian": write_marian_files, "m2m_100": write_m2m_files}[architecture]
    write(folder, folder / "joint.model", languages=languages)
    (folder / "joint.model").unlink()
    (folder / "joint.vocab").unlink()


def write_marian_files(folder: Path, model: Path, *, languages: Sequence[str]) -> None:
    """The ids are SentencePiece's own, and Marian's padding takes the last."""
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    vocabulary = {pieces.id_to_piece(index): index for index in range(len(pieces))} | {PAD: len(pieces)}
    for name in ("source.spm", "target.spm"):
        shutil.copyfile(model, folder / name)
    write_json(folder / "vocab.json", vocabulary)
    settings = {
        "tokenizer_class": "MarianTokenizer", "source_lang": languages[0], "target_lang": languages[1],
        "unk_token": UNK, "eos_token": EOS, "pad_token": PAD, "separate_vocabs": False, "model_max_length": 256,
    }  # fmt: skip
    write_json(folder / "tokenizer_config.json", settings)


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Encoder:
    """One side's text to the model's ids, many lines at a time: what its tokenizer does, much faster."""

    pieces: sentencepiece.SentencePieceProcessor
    table: npt.NDArray[np.uint16]  # SentencePiece's id -> the model's id
    eos: int
    opening: tuple[int, ...] = ()  # the language's token, where the model has one

    def __call__(self, lines: Sequence[str]) -> list[npt.NDArray[np.uint16]]:
        encoded = self.pieces.encode(list(lines), out_type=int, num_threads=2)
        return [self.framed(self.table[ids] if ids else []) for ids in encoded]

    def framed(self, ids: npt.ArrayLike) -> npt.NDArray[np.uint16]:
        return np.concatenate([self.opening, np.asarray(ids), [self.eos]]).astype(np.uint16)


def load_vocabulary(folder: Path) -> dict[str, int]:
    content = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def load_encoder(folder: Path, side: str, language: str | None = None) -> Encoder:
    """`side` is "source" or "target"; a model of many languages wants to know which it is."""
    file = PIECES if language else f"{side}.spm"
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / file))
    vocabulary = load_vocabulary(folder)
    table = [vocabulary.get(pieces.id_to_piece(index), vocabulary[UNK]) for index in range(len(pieces))]
    opening = (language_token(vocabulary, language),) if language else ()
    return Encoder(pieces, np.array(table, dtype=np.uint16), vocabulary[EOS], opening)


def tokenizer_files(folder: Path) -> list[Path]:
    """What the ids of a text depend on."""
    return [folder / name for name in (*MODEL_FILES, PIECES) if (folder / name).is_file()]
