"""Prints an explanation to a terminal of any width: one block for each word, or for each token."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from knnmt.mixing.reasons import because
from knnmt.models.words import SPACE, label
from knnmt.translate.explanation import ExplainedToken, ExplainedWord, Explanation, MemorySentence, Neighbour, Span

BAR = 10
INDENT = 8
NARROWEST = 16  # of a sentence with its place beside it; with less room the place has a line of its own
SLIGHT = 0.05  # sentences with less support are left out
CHOSEN = "bold green"
WORDS = "Each word, how much of it comes from the memory, and from which sentences:"
TOKENS = (
    "Each token with its probabilities; its neighbours with their weight, source, place and squared distance d, "
    "and the target up to the neighbour's own token; and the kNN distribution that they make together:"
)


def show_explanation(explanation: Explanation, console: Console, *, neighbours: int = 2) -> None:
    """Each word with the memory's share of it and the sentences that gave it."""
    show_head(explanation, console)
    console.print(Text(WORDS), end="\n\n")
    longest = max((cell_len(word.text) for word in explanation.words), default=0)
    column = min(longest, max(1, console.width - BAR - 8))
    stores = explanation.store_names
    for word in explanation.words:
        console.print(word_line(word, column, console.width))
        for sentence in worth_showing(word)[:neighbours]:
            place = place_of(sentence, stores)
            target = marked_text(sentence.target, sentence.marks, console.width - INDENT)
            for line in pair_lines(f"{sentence.support:4.0%}", sentence.source, target, place, console.width):
                console.print(line, no_wrap=True, crop=True)


def worth_showing(word: ExplainedWord) -> list[MemorySentence]:
    return [sentence for sentence in word.sentences if sentence.support >= SLIGHT]


def show_tokens(explanation: Explanation, console: Console, *, neighbours: int = 2) -> None:
    """Each step as the paper shows it: the token, its neighbours, and their distribution."""
    show_head(explanation, console)
    console.print(Text(TOKENS))
    longest = max((cell_len(token_name(token)) for token in explanation.tokens), default=0)
    stores = explanation.store_names
    for token in explanation.tokens:
        console.print(token_line(token, longest))
        for neighbour in token.neighbours[:neighbours]:
            place = f"{place_of(neighbour, stores)}  d {neighbour.distance:5.1f}"
            target = prefix_and_token(neighbour, token, console.width - INDENT)
            for line in pair_lines(f"{neighbour.weight:.2f}", neighbour.source, target, place, console.width):
                console.print(line, no_wrap=True, crop=True)
        console.print(distribution_line(token), no_wrap=True, overflow="ellipsis", crop=True)


def show_head(explanation: Explanation, console: Console) -> None:
    """The sentence, its translation, and the settings that it depends on."""
    console.print(Text(explanation.source, style="italic"))
    console.print(Text(explanation.translation, style="bold"))
    console.print(Text(f"({explanation.setting})", style="dim"))
    if explanation.known:
        console.print(Text(explanation.known, style="dim"))
    console.print()


def word_line(word: ExplainedWord, column: int, width: int) -> Text:
    """`battery   █████████░  95 %  weight 0.81: the neighbours are near (+0.31)`."""
    filled = round(word.memory_share * BAR)
    name = cropped(word.text, column)
    line = Text(name + " " * (column - cell_len(name)), style="bold")
    line.append("  " + "█" * filled, style="not bold green")
    line.append("░" * (BAR - filled), style="not bold dim")
    line.append(f" {word.memory_share:4.0%}", style="not bold")
    if word.reasons:
        line.append(f"  weight {word.weight:.2f}: {because(word.reasons) or 'as usual'}", style="not bold dim")
    line.truncate(width, overflow="ellipsis")
    return line


def token_name(found: ExplainedToken | Neighbour) -> str:
    return label(found.token, found.text)


def token_line(token: ExplainedToken, column: int) -> Text:
    """`␣charge  model 0.00  kNN 0.66  mixed 0.33`."""
    name = token_name(token)
    line = Text("\n" + name + " " * (column - cell_len(name)), style="bold")
    probabilities = (
        ("model", token.model_probability),
        ("kNN", token.neighbour_probability),
        ("mixed", token.probability),
    )
    for name, probability in probabilities:
        line.append(f"  {name} ", style="not bold dim").append(f"{probability:.2f}", style="not bold")
    if token.reasons or not token.searched:
        line.append(f"\n  {mixed_how(token)}", style="not bold dim")
    return line


def mixed_how(token: ExplainedToken) -> str:
    """`weight 0.81, temperature 31: the neighbours are near (+0.31)`."""
    if not token.searched:
        return "weight 0: the memory was not asked"
    return f"weight {token.weight:.2f}, temperature {token.temperature:.3g}: {because(token.reasons) or 'as usual'}"


def distribution_line(token: ExplainedToken, most: int = 4) -> Text:
    """`kNN  ␣charge 0.66  ␣pull 0.20`: the distribution of the neighbours."""
    masses: dict[str, float] = defaultdict(float)
    names: dict[str, str] = {}
    for neighbour in token.neighbours:
        masses[neighbour.token] += neighbour.weight
        names.setdefault(neighbour.token, token_name(neighbour))
    line = Text().append("   kNN", style="dim")
    for name in sorted(masses, key=lambda name: -masses[name])[:most]:
        line.append("  ").append(names[name], style=CHOSEN if name == token.token else "bold")
        line.append(f" {masses[name]:.2f}")
    return line


def pair_lines(mass: str, source: str, target: Text, place: str, width: int) -> Iterator[Text]:
    """The source with its number and place, and the target below it."""
    room = width - INDENT - cell_len(place) - 2
    shown = cropped(source, room if room >= NARROWEST else width - INDENT)
    first = Text(f"{mass:>6}  ", style="cyan").append(shown, style="default not bold")
    if room >= NARROWEST:
        first.append(" " * (room - cell_len(shown) + 2)).append(place, style="dim default")
    yield first
    yield Text("     → ").append(" ").append_text(target)
    if room < NARROWEST:
        yield Text(" " * INDENT).append(cropped(place, width - INDENT), style="dim")


def place_of(found: MemorySentence | Neighbour, stores: Mapping[str, str]) -> str:
    """`memory:94`; with several stores, the name of the store comes first."""
    return f"{stores[found.store]}{found.corpus}:{found.segment}"


def marked_text(text: str, marks: Sequence[Span], width: int) -> Text:
    """A sentence with its marked words between «», cut to the width around the first of them."""
    line, done = Text(), 0
    for start, end in marks:
        line.append(text[done:start]).append("«", style="dim")
        line.append(text[start:end], style=CHOSEN).append("»", style="dim")
        done = end
    return cut_around(line.append(text[done:]), marks[0][0] if marks else 0, width)


def prefix_and_token(neighbour: Neighbour, token: ExplainedToken, width: int) -> Text:
    """The target up to the neighbour's token, which is marked by «». If there is no room, its beginning is cut."""
    name = token_name(neighbour).removeprefix(SPACE) or SPACE
    gap = " " if neighbour.text[:1].isspace() or not neighbour.text else ""
    room = max(1, width - cell_len(name) - len(gap) - 2)
    prefix = neighbour.prefix.rstrip()
    line = Text(prefix if cell_len(prefix) <= room else "…" + ending(prefix, room - 1))
    style = CHOSEN if neighbour.token == token.token else "bold"
    return line.append(gap).append("«", style="dim").append(name, style=style).append("»", style="dim")


def cut_around(line: Text, middle: int, width: int) -> Text:
    """A line cut on both sides to the width, with the marked middle a third from the left."""
    if line.cell_len <= width:
        return line
    start = middle - len(ending(line.plain[:middle], width // 3))
    if cell_len(line.plain[start:]) < width:
        start = len(line.plain) - len(ending(line.plain, width - 1))
    shown = Text("…").append_text(line[start:]) if start else line
    shown.truncate(width, overflow="ellipsis")
    return shown


def cropped(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, max(1, width) - 1).rstrip() + "…"


def ending(text: str, width: int) -> str:
    """As much of the text's end as fits into the width."""
    while cell_len(text) > max(0, width):
        text = text[1:]
    return text
