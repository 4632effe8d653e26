"""The tokenizer's files of a Marian folder: made anew from text, or taken from a given folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import sentencepiece

from text import RecipeError

MODEL_FILES = ("source.spm", "target.spm", "vocab.json")
FILES = (*MODEL_FILES, "tokenizer_config.json")
EOS, UNK, PAD = "</s>", "<unk>", "<pad>"


def copy_vocabulary(start: Path, folder: Path) -> None:
    missing = [name for name in FILES if not (start / name).is_file()]
    if missing:
        raise RecipeError(f"--start {start}: not a Marian folder, it lacks {', '.join(missing)}")
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copyfile(start / name, folder / name)


def train_vocabulary(lines: Iterable[str], folder: Path, *, size: int, languages: Sequence[str], seed: int) -> None:
    """Train one SentencePiece model for both languages and write it as Marian's files.

    The ids are SentencePiece's own, and Marian's padding takes the last.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sentencepiece.set_random_generator_seed(seed)
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_prefix=str(folder / "joint"), vocab_size=size - 1,
            minloglevel=2, character_coverage=0.9999, eos_id=0, unk_id=1, bos_id=-1, pad_id=-1, num_threads=1,
            input_sentence_size=1_000_000, shuffle_input_sentence=True,
        )  # fmt: skip
    except RuntimeError as error:
        raise RecipeError(f"--vocabulary {size}: not to be had from this text: {error}") from error
    write_marian_files(folder, folder / "joint.model", languages=languages)
    (folder / "joint.model").unlink()
    (folder / "joint.vocab").unlink()


def write_marian_files(folder: Path, model: Path, *, languages: Sequence[str]) -> None:
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
    """One side's text to Marian ids, many lines at a time: what MarianTokenizer does, much faster."""

    pieces: sentencepiece.SentencePieceProcessor
    table: npt.NDArray[np.uint16]  # SentencePiece's id -> Marian's id
    eos: int

    def __call__(self, lines: Sequence[str]) -> list[npt.NDArray[np.uint16]]:
        encoded = self.pieces.encode(list(lines), out_type=int, num_threads=2)
        return [np.append(self.table[ids], np.uint16(self.eos)) if ids else self.nothing() for ids in encoded]

    def nothing(self) -> npt.NDArray[np.uint16]:
        return np.array([self.eos], dtype=np.uint16)


def load_vocabulary(folder: Path) -> dict[str, int]:
    content = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def load_encoder(folder: Path, side: str) -> Encoder:
    """`side` is "source" or "target"."""
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
    vocabulary = load_vocabulary(folder)
    marian = [vocabulary.get(pieces.id_to_piece(index), vocabulary[UNK]) for index in range(len(pieces))]
    return Encoder(pieces, np.array(marian, dtype=np.uint16), vocabulary[EOS])
