"""An explanation as one HTML file: select a word of the translation to see what the memory contributed to it."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from string import Template

from knnmt.cli.explanation_view import mixed_how, place_of
from knnmt.files import write_durably
from knnmt.mixing.reasons import because
from knnmt.models.words import label
from knnmt.translate.explanation import (
    ExplainedToken,
    ExplainedWord,
    Explanation,
    MemorySentence,
    Neighbour,
    Span,
    explain_word,
)

AT_ONCE = 5  # sentences and neighbours that are shown without asking for more,
SLIGHT = 0.01  # if they have at least this part
END = "end of sentence"
TOKENS = (
    "Each token’s probability under the model alone, under its nearest neighbours alone, and mixed. Below it, the "
    "neighbours with their weight: places in the memory that were like this one. What is marked followed there."
)

SKIPPING = (
    " Not so where the model gave its best token more than {:g} (certain): there it was not to be swayed, and the "
    "neighbours that are shown had no share."
)


def write_page(explanation: Explanation, path: Path) -> None:
    write_durably(path, lambda file: file.write(page(explanation).encode()))


def page(explanation: Explanation) -> str:
    """The whole file; it loads nothing else."""
    words = [*explanation.words, *ending_word(explanation)]
    certain = explanation.settings.get("certain", 1)
    template = resources.files("knnmt").joinpath("data", "explanation.html").read_text(encoding="utf-8")
    return Template(template).substitute(
        title=escape(f"knnmt: {explanation.source}"),
        source=escape(explanation.source),
        source_lang=named(explanation.source_lang),
        source_code=language(explanation.source_lang),
        target_lang=named(explanation.target_lang),
        target_code=language(explanation.target_lang),
        words=word_buttons(explanation.translation, words),
        first=most_remembered(words),
        panels="\n".join(panel(explanation, word, number) for number, word in enumerate(words)),
        settings=escape(f"{explanation.setting}. {explanation.known}" if explanation.known else explanation.setting),
        skipping=SKIPPING.format(certain) if certain < 1 else "",
    )


def ending_word(explanation: Explanation) -> list[ExplainedWord]:
    """The tokens after the last word, such as the end token, treated as one more word."""
    done = {position for word in explanation.words for position in word.tokens}
    rest = [position for position in range(len(explanation.tokens)) if position not in done]
    length = len(explanation.translation)
    tokens = [explanation.tokens[position] for position in rest]
    return [explain_word(explanation.translation, (length, length), rest, tokens)] if rest else []


def most_remembered(words: Sequence[ExplainedWord]) -> int:
    """The word that is selected when the page opens: the one with the largest share of the memory."""
    return max(range(len(words)), key=lambda number: words[number].memory_share * bool(words[number].text), default=0)


def named(code: str | None) -> str:
    return f" ({escape(code)})" if code else ""


def language(code: str | None) -> str:
    """An attribute for the browser's fonts and for screen readers."""
    return f' lang="{escape(code.split("_")[0])}"' if code else ""


def word_buttons(translation: str, words: Sequence[ExplainedWord]) -> str:
    """The translation with every word as a button; the text between words is kept."""
    parts, done = [], 0
    for number, word in enumerate(words):
        parts.append(escape(translation[done : word.start]) or " " * (not word.text))
        parts.append(word_button(word, number))
        done = word.start + len(word.text)
    return "".join(parts)


def word_button(word: ExplainedWord, number: int) -> str:
    name = f"{word.text or END}, {word.memory_share:.0%} from the memory"
    return (
        f'<button type="button" class="word{"" if word.text else " end"}" style="--share:{word.memory_share:.3f}" '
        f'aria-controls="word-{number}" aria-expanded="false" aria-label="{escape(name)}" title="{escape(name)}">'
        f"{escape(word.text or END)}</button>"
    )


def panel(explanation: Explanation, word: ExplainedWord, number: int) -> str:
    """Everything about one word."""
    stores = explanation.store_names
    tokens = [explanation.tokens[position] for position in word.tokens]
    sentences = [(sentence_item(sentence, stores), sentence.support) for sentence in word.sentences]
    behind = listed_html(sentences, "sentences") or '<p class="hint">No sentence of the memory spoke for it.</p>'
    return (
        f'<details class="panel" id="word-{number}"><summary><b dir="auto">{escape(word.text or END)}</b>'
        f"<span>{word.memory_share:.0%} from the memory, {1 - word.memory_share:.0%} from the model</span></summary>"
        f"{bar(word.memory_share)}{believed(word)}"
        f"<h2>Sentences of the memory behind it</h2>{behind}"
        f'<h2>Token by token</h2><p class="hint">{TOKENS}</p>'
        f"{''.join(token_section(token, stores) for token in tokens)}</details>"
    )


def believed(word: ExplainedWord) -> str:
    """The weight of the memory, and the reasons for it."""
    if not word.reasons:
        return ""
    why = because(word.reasons, most=4) or "nothing out of the usual"
    return f'<p class="hint">Weight of the memory here: {word.weight:.2f}. What moved it: {escape(why)}.</p>'


def sentence_item(sentence: MemorySentence, stores: Mapping[str, str]) -> str:
    target = with_marks(sentence.target, sentence.marks)
    mass = f"{sentence.support:.0%}{bar(sentence.support)}"
    return pair_item(mass, sentence.source, target, escape(place_of(sentence, stores)))


def token_section(token: ExplainedToken, stores: Mapping[str, str]) -> str:
    """A token, its probabilities, and its neighbours."""
    neighbours = [(neighbour_item(neighbour, token, stores), neighbour.weight) for neighbour in token.neighbours]
    return (
        f'<section class="token"><h3><code>{escape(label(token.token, token.text))}</code></h3>'
        f'<dl class="probabilities">{probability("model", token.model_probability)}'
        f"{probability('neighbours (kNN)', token.neighbour_probability)}{probability('mixed', token.probability)}</dl>"
        f"{mixed_how_hint(token)}"
        f"{listed_html(neighbours, 'neighbours')}</section>"
    )


def mixed_how_hint(token: ExplainedToken) -> str:
    return f'<p class="hint">{escape(mixed_how(token))}</p>' if token.reasons or not token.searched else ""


def probability(name: str, value: float) -> str:
    return f"<div><dt>{name}</dt><dd>{value:.3f}</dd>{bar(value)}</div>"


def neighbour_item(neighbour: Neighbour, token: ExplainedToken, stores: Mapping[str, str]) -> str:
    """A neighbour with its own token marked: in colour where it is the token that was generated."""
    start, end = neighbour.span
    kind = "" if neighbour.token == token.token else ' class="other"'
    name = neighbour.text.strip() or label(neighbour.token, neighbour.text)
    gap = neighbour.text[: len(neighbour.text) - len(neighbour.text.lstrip())] or " " * (not neighbour.text)
    target = (
        f"{escape(neighbour.target[:start] + gap)}<mark{kind}>{escape(name)}</mark>"
        f'<span class="rest">{escape(neighbour.target[end:])}</span>'
    )
    place = f"{escape(place_of(neighbour, stores))} · distance {neighbour.distance:.1f}"
    return pair_item(f"{neighbour.weight:.3f}{bar(neighbour.weight)}", neighbour.source, target, place)


def pair_item(mass: str, source: str, target: str, place: str) -> str:
    return (
        f'<li><div class="mass">{mass}</div><div><p class="from" dir="auto">{escape(source)}</p>'
        f'<p dir="auto">{target}</p><p class="place">{place}</p></div></li>'
    )


def listed_html(items: Sequence[tuple[str, float]], kind: str) -> str:
    """A list, heaviest first. The first items are shown, the others on request."""
    if not items:
        return ""
    shown = max(1, sum(mass >= SLIGHT for _, mass in items[:AT_ONCE]))
    first, rest = (
        f'<ol class="pairs">{"".join(item for item, _ in some)}</ol>' for some in (items[:shown], items[shown:])
    )
    more = f'<details class="more"><summary>{len(items) - shown} more {kind}</summary>{rest}</details>'
    return first + more * (shown < len(items))


def with_marks(text: str, marks: Iterable[Span]) -> str:
    parts, done = [], 0
    for start, end in marks:
        parts.append(f"{escape(text[done:start])}<mark>{escape(text[start:end])}</mark>")
        done = end
    return "".join([*parts, escape(text[done:])])


def bar(share: float) -> str:
    return f'<span class="bar" aria-hidden="true"><i style="--share:{share:.3f}"></i></span>'
