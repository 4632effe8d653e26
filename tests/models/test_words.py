"""Which characters each token wrote, and which tokens make a word."""

from collections.abc import Sequence
from typing import Any, cast

import pytest
from tiny_models import ARCHITECTURES, ENGLISH, tiny_model

from knnmt.models.words import (
    characters_written,
    label,
    widened,
    word_spans,
    words_of,
    written_by_decoding,
    written_by_pieces,
)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_words_of_every_kind_of_tokenizer(name: str) -> None:
    model = tiny_model(name)
    for text, ids in zip(ENGLISH, model.encode_targets(ENGLISH), strict=True):
        ends = characters_written(model, ids, text)
        words = words_of(text, ends)
        assert [text[start:end] for start, end in word_spans(text, words, ends)] == text.split()
        assert [position for word in words for position in word] == list(range(len(ids) - 1))
        labels = [label(model.token_text(token), text[ends[at] : ends[at + 1]]) for at, token in enumerate(ids[:-1])]
        assert not any(mark in "".join(labels) for mark in ("▁", "Ġ", "</w>"))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_pieces_say_what_decoding_says(name: str) -> None:
    model, made = tiny_model(name), 0
    for text in [*ENGLISH, "lone  spaces , 7 %s", " <unk> "]:
        for tokens in (*model.encode_targets([text]), *model.encode_sources([text])):
            by_pieces = written_by_pieces(model, tokens, text)
            made += by_pieces is not None
            assert by_pieces in (None, written_by_decoding(model, tokens, text))
    assert made or name in ("bart", "fsmt"), "the vocabularies of SentencePiece make up the text"


class Pieces:
    """A model whose tokens are pieces of UTF-8."""

    def decode(self, tokens: Sequence[bytes]) -> str:
        return b"".join(tokens).decode("utf-8", errors="replace").strip()


def pieces_of(*pieces: str | bytes) -> list[Any]:
    return [piece.encode() if isinstance(piece, str) else piece for piece in pieces]


def single_bytes(text: str) -> list[bytes]:
    return [bytes([each]) for each in text.encode()]


# Tokens, and the words that they make.
GROUPED = [
    ("plain", pieces_of("an", " e", "-b", "ike", " is"), ["an", "e-bike", "is"]),
    ("lone spaces", pieces_of("an", " ", " ", "e"), ["an", "e"]),
    ("two words in one token", pieces_of("of the", " bike"), ["of the", "bike"]),
    ("bytes of a character", single_bytes("für es"), ["für", "es"]),
    ("Chinese", pieces_of("电池", "组", "。"), ["电池", "组", "。"]),
    ("Chinese in bytes", [*single_bytes("电"), "池".encode()], ["电", "池"]),
    ("Chinese and Latin", pieces_of("U", "SB", "接口", " A"), ["USB", "接口", "A"]),
    ("nothing at the end", pieces_of("an", " e", " ", ""), ["an", "e"]),
    ("nothing", pieces_of(""), []),
]


@pytest.mark.parametrize(("tokens", "words"), [row[1:] for row in GROUPED], ids=[row[0] for row in GROUPED])
def test_grouping(tokens: list[Any], words: list[str]) -> None:
    model: Any = Pieces()
    text = model.decode(tokens)
    ends = written_by_decoding(model, tokens, text)
    groups = words_of(text, ends)
    assert [text[start:end] for start, end in word_spans(text, groups, ends)] == words


def test_characters_written_in_bytes_are_found() -> None:
    model: Any = Pieces()
    assert written_by_decoding(model, cast(Any, single_bytes("für")), "für") == [0, 1, 1, 2, 3]


def test_text_that_normalisation_changed_is_still_matched() -> None:
    model: Any = Pieces()
    ends = written_by_decoding(model, cast(Any, single_bytes("5 mm bolt")), "5 ㎜ bolt")
    assert ends == [0, 1, 1, 2, 3, 3, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("text", "span", "wide"),
    [
        ("a battery, flat", (4, 6), "battery"),
        ("the pack", (3, 3), "pack"),
        ("flat.", (4, 5), "."),
        ("电池组", (1, 2), "池"),
    ],
)
def test_a_part_of_a_word_is_widened_to_all_of_it(text: str, span: tuple[int, int], wide: str) -> None:
    start, end = widened(text, *span)
    assert text[start:end] == wide


@pytest.mark.parametrize(
    ("token", "text", "seen"),
    [("▁bolt", " bolt", "␣bolt"), ("ts", "ts", "ts"), ("▁", "", "␣"), ("</s>", "", "</s>"), ("Ã¼", "ü", "ü")],
)
def test_labels(token: str, text: str, seen: str) -> None:
    assert label(token, text) == seen
