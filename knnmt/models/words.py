"""From tokens to words: which characters each token produced, and which tokens make a word.

Vocabularies mark word starts or ends in different ways, or write bytes. Decoding longer and longer prefixes of the
tokens works for all of them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import accumulate, pairwise

from knnmt.models.translation_model import TranslationModel
from knnmt.text.writing_systems import is_spaceless

SPACE = "␣"
PIECE_SPACE = "▁"  # how SentencePiece writes a space


def characters_written(model: TranslationModel, tokens: Sequence[int], text: str) -> list[int]:
    """How many characters of `text` stand after each prefix of its tokens, the empty one too: [tokens + 1].

    Text that normalisation changed before it became tokens is matched with what they decode to.
    """
    return written_by_pieces(model, tokens, text) or written_by_decoding(model, tokens, text)


def written_by_pieces(model: TranslationModel, tokens: Sequence[int], text: str) -> list[int] | None:
    """The same without decoding, if the vocabulary's pieces make up the text; otherwise None."""
    texts = zip(tokens, model.token_texts(tokens), strict=True)
    pieces = ["" if token in model.special_tokens else text.replace(PIECE_SPACE, " ") for token, text in texts]
    whole = "".join(pieces)
    if whole.strip() != text:
        return None
    before = len(whole) - len(whole.lstrip())
    return [*without_spaces(text, accumulate(map(len, pieces), initial=-before))]


def without_spaces(text: str, ends: Iterable[int]) -> Iterator[int]:
    """Ends in a text before the white space at each of them: decoding, too, leaves out a space at the end."""
    for end in ends:
        at = max(0, end)
        while at and text[at - 1].isspace():
            at -= 1
        yield at


def written_by_decoding(model: TranslationModel, tokens: Sequence[int], text: str) -> list[int]:
    """The same for any vocabulary, by decoding every prefix of the tokens."""
    decoded = model.decode(tokens)
    place = places(decoded, text)
    ends = [common(model.decode(tokens[:length]), decoded) for length in range(len(tokens) + 1)]
    return list(accumulate((place(end) for end in ends), max))


def common(text: str, other: str) -> int:
    """The length of the common beginning of two texts."""
    if other.startswith(text):
        return len(text)
    return next(at for at, (left, right) in enumerate(zip(text, other + "\0", strict=False)) if left != right)


def places(decoded: str, text: str) -> Callable[[int], int]:
    """A function from an offset in `decoded` to the corresponding one in `text`."""
    if decoded == text:
        return lambda offset: offset
    blocks = SequenceMatcher(None, decoded, text, autojunk=False).get_matching_blocks()

    def place(offset: int) -> int:
        matched = 0
        for block in blocks:
            if offset < block.a:
                break
            matched = block.b + min(offset - block.a, block.size)
        return matched

    return place


def words_of(text: str, ends: Sequence[int]) -> list[list[int]]:
    """The tokens of each word, by their positions, from what `characters_written` gave.

    A token without text of its own, such as a lone space or the first byte of a character, goes with what follows it;
    where nothing follows, as after the end token, it belongs to no word.
    """
    words: list[list[int]] = []
    current = -1
    for position, end in enumerate(ends[:-1]):
        start = end + len(text[end:]) - len(text[end:].lstrip())
        if start == len(text):
            break
        if not words or (start > current and is_boundary(text, start)):
            words.append([])
            current = start
        words[-1].append(position)
    return words


def is_boundary(text: str, start: int) -> bool:
    """Whether a token that starts there starts a word."""
    return start == 0 or text[start - 1].isspace() or is_spaceless(text[start - 1]) or is_spaceless(text[start])


def word_spans(text: str, words: Sequence[Sequence[int]], ends: Sequence[int]) -> list[tuple[int, int]]:
    """First and last offset of each word; together they hold everything but the spaces between."""
    starts = [ends[word[0]] for word in words]
    spans = []
    for start, end in pairwise([*starts, len(text)]):
        inside = text[start:end]
        spans.append((end - len(inside.lstrip()), start + len(inside.rstrip())))
    return spans


def widened(text: str, start: int, end: int) -> tuple[int, int]:
    """Widens a part of a word to the whole word, without spaces and punctuation around it."""
    start += len(text[start:]) - len(text[start:].lstrip())
    end = max(start, end)
    while start > 0 and is_inside_word(text, start):
        start -= 1
    while end < len(text) and (is_inside_word(text, end) or start == end):
        end += 1
    return start, end


def is_inside_word(text: str, at: int) -> bool:
    """Whether the characters before and after an offset belong to the same word."""
    around = text[at - 1 : at + 1] if at else ""
    return len(around) == 2 and all(each.isalnum() and not is_spaceless(each) for each in around)


def label(token: str, text: str) -> str:
    """A token in a table: its text with a visible space, or its name in the vocabulary if it has no text."""
    if text.strip():
        return text.replace(" ", SPACE)
    return token.replace("▁", SPACE).replace("Ġ", SPACE)
