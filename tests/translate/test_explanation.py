"""Explanations: the neighbours are those of the search, words are whole, shares add up, and the views show them."""

import io
import json
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import Run
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.console import Console
from tiny_models import ENGLISH, GERMAN, tiny_model

from knnmt import Corpus, Explanation, Store, Translator, build_store
from knnmt.cli.demo import read_demo
from knnmt.cli.explanation_page import page, write_page
from knnmt.cli.explanation_view import show_explanation, show_tokens
from knnmt.mixing.neighbours import Neighbours
from knnmt.models.batching import pad
from knnmt.models.words import label
from knnmt.translate.beam import BeamSearch, rules_of
from knnmt.translate.decoding import RetrievalCounts, proposing
from knnmt.translate.explanation import ExplainedToken, Neighbour, Origins, explain_word, marks_of, share_of_memory
from knnmt.translate.mixer_choice import fixed_mixer, mixing_told
from knnmt.translate.settings import TranslateSettings

SOURCE = "Brandgefahr! Laden Sie keinen Akku, dessen Gehäuse Risse oder Dellen aufweist."
SCRIPT = '<script>alert("1 & 2")</script>'


@pytest.fixture(scope="module")
def translator(store: Store) -> Translator:
    return Translator.from_store(store.path, k=8)


@pytest.fixture(scope="module")
def explanation(translator: Translator) -> Explanation:
    return translator.explain(SOURCE)


@pytest.fixture(scope="module")
def hostile() -> Explanation:
    """Texts that are markup, a very long word, and two stores."""

    def neighbour(store: str, weight: float) -> Neighbour:
        return Neighbour("▁bolt", " bolt", weight, 9.5, SCRIPT, f"{SCRIPT} bolt]", SCRIPT, "a&b", 3, store)

    both = [neighbour("/tmp/x/<one>", 0.75), neighbour("/tmp/x/two", 0.25)]
    tokens = [
        ExplainedToken("▁" + SCRIPT, SCRIPT, 0.5, 0.0, 0.25, 0.0, []),
        ExplainedToken("▁bolt", " bolt", 0.1, 1.0, 0.55, 0.5 / 0.55, both),
        ExplainedToken("</s>", "", 0.9, 0.0, 0.45, 0.0, both),
    ]
    text = f"{SCRIPT} bolt"
    words = [
        explain_word(text, (0, len(SCRIPT)), [0], tokens[:1]),
        explain_word(text, (len(SCRIPT) + 1, len(text)), [1], tokens[1:2]),
    ]
    return Explanation(SCRIPT, text, '"de', "en", {"k": 2}, words, tokens)


class Recorder:
    """A retriever that keeps what it found."""

    def __init__(self, retriever: Any) -> None:
        self.retriever = retriever
        self.found: list[Neighbours] = []

    def search(self, queries: NDArray[np.float32], k: int) -> Neighbours:
        self.found.append(self.retriever.search(queries, k))
        return self.found[-1]


class RecordedSearch(BeamSearch):
    """A beam search that keeps the running hypotheses of every step."""

    def _allowed(self, logits: Any, most: int) -> tuple[Any, Any]:
        self.steps: list[list[list[int]]] = getattr(self, "steps", [])
        self.steps.append(self.sequences.reshape(-1, self.sequences.shape[-1]).tolist())
        return super()._allowed(logits, most)


@pytest.mark.parametrize("several", [False, True], ids=["one store", "two stores"])
def test_the_neighbours_are_those_that_beam_search_met(store: Store, other_store: Store, several: bool) -> None:
    translator = Translator.from_store([store.path, other_store.path] if several else store.path, k=8, beam=4)
    model, settings, recorder = translator.translation_model, translator.settings, Recorder(translator.retriever)
    rules = rules_of(model, settings.beam)
    assert rules is not None
    recorder.entries = recorder.retriever.entries
    propose = proposing(recorder, translator.mixer, torch.empty(1, 0), RetrievalCounts())  # type: ignore[arg-type]
    search = RecordedSearch(model, rules, propose)
    search.run(*pad(model.encode_sources([SOURCE]), model.padding))
    tokens = search.finished[0].best[0].tokens
    explained = translator.explain(SOURCE)
    assert explained.translation == model.decode(tokens)
    origins = Origins(model, recorder.retriever)
    for step, token in enumerate(explained.tokens):
        row = search.steps[step].index([*model.decoder_prefix, *tokens[:step]])
        found = recorder.found[step]
        assert [near.distance for near in token.neighbours] == pytest.approx(found.distances[row].tolist(), abs=0.01)
        located = recorder.retriever.locate(found.entries[row].tolist())
        met = [origins.neighbour(one, 0.0, 0.0) for one in located]
        sure = found.distances[row] < found.distances[row][-1] - 0.01  # of two at the rim, either may be the last
        traced = {place(near) for near in token.neighbours}
        assert {place(near) for near, certain in zip(met, sure, strict=True) if certain} <= traced


def test_where_the_model_was_certain_the_neighbours_had_no_say(store: Store) -> None:
    """They are shown, with the weights that they would have had."""
    translator = Translator.from_store(store.path, k=8, weight=0.4, certain=0.5)
    explained = translator.explain(SOURCE)
    assert explained.translation == translator.translate([SOURCE])[0]
    assert explained.setting.endswith("certain 0.5")
    alone = [token for token in explained.tokens if not token.memory_share]
    certain = [token for token in alone if token.neighbour_probability > 0.01]
    assert certain
    assert len(alone) < len(explained.tokens)
    assert "more than 0.5 (certain)" in page(explained)
    assert all(word.sentences for word in explained.words if word.memory_share)
    assert not any(word.sentences for word in explained.words if not word.memory_share)
    for token in certain:
        assert token.probability == pytest.approx(token.model_probability, abs=1e-5)
        assert sum(near.weight for near in token.neighbours) == pytest.approx(1, abs=1e-4)


def place(neighbour: Neighbour) -> tuple[str, int, str, str]:
    return neighbour.store, neighbour.segment, neighbour.prefix, neighbour.token


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_probabilities_and_shares(store: Store, weight: float) -> None:
    explained = Translator.from_store(store.path, k=8, weight=weight).explain(SOURCE)
    for token in explained.tokens:
        mixed = weight * token.neighbour_probability + (1 - weight) * token.model_probability
        assert token.probability == pytest.approx(mixed, abs=1e-5)
        assert token.memory_share * mixed == pytest.approx(weight * token.neighbour_probability, abs=1e-5)
        assert sum(near.weight for near in token.neighbours) == pytest.approx(1, abs=1e-4)
        own = sum(near.weight for near in token.neighbours if near.token == token.token)
        assert own == pytest.approx(token.neighbour_probability, abs=1e-5)


def test_supports_add_up_to_the_words_share(explanation: Explanation) -> None:
    for word in explanation.words:
        supports = [sentence.support for sentence in word.sentences]
        shares = [explanation.tokens[position].memory_share for position in word.tokens]
        assert supports == sorted(supports, reverse=True)
        assert sum(supports) == pytest.approx(word.memory_share, abs=1e-6)
        assert word.memory_share == pytest.approx(sum(shares) / len(shares))
        assert len({(sentence.store, sentence.segment) for sentence in word.sentences}) == len(word.sentences)


def test_words_join_to_the_translation(explanation: Explanation) -> None:
    assert [word.text for word in explanation.words] == explanation.translation.split()
    assert "".join(token.text for token in explanation.tokens) == explanation.translation
    positions = [position for word in explanation.words for position in word.tokens]
    assert positions == list(range(len(explanation.tokens) - 1))  # all but the end token
    for word in explanation.words:
        assert explanation.translation[word.start :].startswith(word.text)


def test_neighbours_stand_in_their_sentences(explanation: Explanation, store: Store) -> None:
    for token in explanation.tokens:
        for near in token.neighbours:
            segment = store.segment(near.segment)
            assert (near.source, near.target, near.corpus) == (segment.source, segment.target, "memory")
            assert near.target.startswith(near.prefix + near.text)
            assert near.store == str(store.path)


def test_a_sentence_of_the_memory_explains_itself(store: Store) -> None:
    segment = read_demo("memory")[6]
    for word in Translator.from_store(store.path, k=8, weight=1.0).explain(segment.source).words:
        best = word.sentences[0]
        assert (best.segment, best.source, best.target) == (6, segment.source, segment.target)
        assert word.text in "".join(best.target[start:end] for start, end in best.marks)


def test_each_of_two_stores_is_named(store: Store, other_store: Store) -> None:
    both = Translator.from_store([store.path, other_store.path], k=8, weight=1.0)
    for path, segment in ((store.path, read_demo("memory")[6]), (other_store.path, read_demo("test")[3])):
        words = both.explain(segment.source).words
        assert {(word.sentences[0].store, word.sentences[0].source) for word in words} == {(str(path), segment.source)}


@pytest.mark.parametrize(
    ("paths", "names"),
    [(["a/store"], [""]), (["a/it", "a/law"], ["it/", "law/"]), (["a/store", "b/store"], ["a/store/", "b/store/"])],
)
def test_stores_are_told_apart(hostile: Explanation, paths: list[str], names: list[str]) -> None:
    neighbours = [replace(hostile.tokens[1].neighbours[0], store=path) for path in paths]
    explained = replace(hostile, tokens=[replace(hostile.tokens[1], neighbours=neighbours)])
    assert explained.store_names == dict(zip(paths, names, strict=True))


def test_nothing_to_explain(translator: Translator) -> None:
    empty = translator.explain("  ")
    assert (empty.translation, empty.words, empty.tokens) == ("", [], [])
    assert "</html>" in page(empty)
    assert shown(empty, 80)


@pytest.mark.parametrize("name", ["bart", "fsmt", "nllb", "t5"])
def test_explanations_of_other_models(name: str, tmp_path: Path) -> None:
    """By the memory alone, a sentence of it comes out again, as far as these models go on."""
    (tmp_path / "pairs.tsv").write_text("".join(map("{}\t{}\n".format, GERMAN, ENGLISH)), encoding="utf-8")
    store = build_store(tmp_path / "store", tiny_model(name), [Corpus(tmp_path / "pairs.tsv")])
    translator = Translator.from_store(store.path, k=1, weight=1.0, beam=1)
    explained = translator.explain(GERMAN[1])
    words = [word.text for word in explained.words]
    assert len(words) > 3
    assert words == explained.translation.split()
    assert words[:-1] == ENGLISH[1].split()[: len(words) - 1]
    assert {word.sentences[0].source for word in explained.words} == {GERMAN[1]}
    assert not explained.cut
    assert translator.explain("Haus " * 600).cut


def test_faint_places_are_not_marked() -> None:
    def at(prefix: str, text: str, weight: float) -> tuple[Neighbour, float]:
        return Neighbour("t", text, weight, 1.0, "s", "the bolt and the nut", prefix, "c", 0, "x"), weight

    parts = [at("", "the", 0.02), at("the bolt and", " the", 0.6), at("the bolt and the", " n", 0.1)]
    assert marks_of(parts) == [(13, 16), (17, 20)]


@pytest.mark.parametrize(
    ("by_model", "by_neighbours", "weight", "share"),
    [
        (0.5, 0.5, 0.5, 0.5),
        (0.0, 0.2, 0.5, 1.0),
        (0.3, 0.0, 1.0, 0.0),
        (0.9, 0.1, 0.25, 0.025 / 0.7),
        (0.0, 0.0, 1.0, 0),
    ],
)
def test_shares(by_model: float, by_neighbours: float, weight: float, share: float) -> None:
    assert share_of_memory(by_model, by_neighbours, weight) == pytest.approx(share)


def shown(explanation: Explanation, width: int, show: Callable[..., None] = show_explanation, **options: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    show(explanation, console, **options)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("show", [show_explanation, show_tokens])
@pytest.mark.parametrize("width", [24, 40, 80, 200])
def test_terminal_views_keep_to_the_width(
    explanation: Explanation, hostile: Explanation, width: int, show: Callable[..., None]
) -> None:
    for each in (explanation, hostile):
        for neighbours in (0, 1, 8):
            lines = shown(each, width, show, neighbours=neighbours).splitlines()
            assert max(cell_len(line) for line in lines) <= width


def test_the_view_of_words(hostile: Explanation) -> None:
    assert shown(hostile, 80, neighbours=1).splitlines()[-4:] == [
        '<script>alert("1 & 2")</script>  ░░░░░░░░░░   0%',
        "bolt                             █████████░  91%",
        '   68%  <script>alert("1 & 2")</script>                              <one>/a&b:3',
        '     →  <script>alert("1 & 2")</script> «bolt»]',
    ]


def test_the_view_of_tokens_has_the_papers_form(store: Store) -> None:
    """Weight 1, beam 1, k 8: each step with its neighbours' source, target prefix, token and probability."""
    explained = Translator.from_store(store.path, k=8, weight=1.0, beam=1).explain(read_demo("memory")[6].source)
    text = shown(explained, 100, show_tokens, neighbours=8)
    steps = text.split("\n\n")[2:]
    assert len(steps) == len(explained.tokens)
    for step, token in zip(steps, explained.tokens, strict=True):
        head, *rows, distribution = step.strip().splitlines()
        assert head.split("  model ")[0].strip() == label(token.token, token.text)
        assert f"mixed {token.probability:.2f}" in head
        assert len(rows) == 16
        assert rows[0].startswith(f"  {token.neighbours[0].weight:.2f}  {token.neighbours[0].source[:20]}")
        assert rows[1].endswith("»")
        assert f"{label(token.token, token.neighbours[0].text)} {token.neighbour_probability:.2f}" in distribution


class Balance(HTMLParser):
    """Every element that is opened is closed, in order."""

    VOID = frozenset({"meta", "br", "hr", "link", "img", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.text += data


def test_the_page_is_whole_and_needs_nothing_else(explanation: Explanation) -> None:
    text = page(explanation)
    elements = Balance(text).seen
    assert not any(mark in text for mark in ("http:", "https:", "url(", "@import", "//cdn"))
    assert not any({"src", "href", "onclick"} & set(attributes) for _, attributes in elements)
    identities = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(identities) == len(set(identities))
    buttons = [attributes for tag, attributes in elements if tag == "button"]
    assert [button["aria-controls"] for button in buttons] == identities
    assert len(buttons) == len(explanation.words) + 1  # the end of the sentence


def test_the_page_shows_everything(explanation: Explanation) -> None:
    seen = Balance(page(explanation)).text
    assert explanation.source in seen
    assert f"{explanation.translation} end of sentence" in seen
    for token in explanation.tokens:
        for near in token.neighbours:
            assert near.source in seen
            assert near.target in seen.replace("</s>", "").replace(" \n", "").replace(
                "␣ ", ""
            )  # a mark of a token without text
            assert f"{near.corpus}:{near.segment} · distance {near.distance:.1f}" in seen


def test_the_page_escapes_what_it_shows(hostile: Explanation) -> None:
    text = page(hostile)
    parsed = Balance(text)
    assert sum(tag == "script" for tag, _ in parsed.seen) == 1  # its own
    assert "alert(&quot;1 &amp; 2&quot;)" in text
    assert "<one>/a&b:3" in parsed.text
    assert parsed.text.count(SCRIPT) > 4


def test_the_page_is_written_whole_or_not_at_all(explanation: Explanation, tmp_path: Path) -> None:
    write_page(explanation, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page(explanation)
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_the_command(run: Run, store: Store, tmp_path: Path) -> None:
    file = tmp_path / "why.html"
    result = run("explain", "--store", store.path, "--k", 8, "--html", file, "--json", SOURCE)
    record = json.loads(result.out)
    assert result.code == 0
    assert result.err == f"{file}: written; open it in a browser\n"
    assert "".join(token["text"] for token in record["tokens"]) == record["translation"]
    fields = {"text", "start", "tokens", "memory_share", "sentences", "weight", "reasons"}
    assert fields == set(record["words"][0])
    assert "mixed" in run("explain", "--store", store.path, "--k", 8, "--tokens", "--neighbours", 1, SOURCE).out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--neighbours", -1), "--neighbours -1"),
        (("--html", "/nowhere/at/all.html"), "there is no folder /nowhere/at"),
        (("--html", "."), "a folder"),
    ],
)
def test_wrong_calls(run: Run, store: Store, arguments: tuple[str, object], says: str) -> None:
    result = run("explain", "--store", store.path, "--k", 8, *arguments, "Prüfen Sie den Akku.")
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert says in result.err


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (TranslateSettings(k=4, temperature=30.0, weight=0.55), "k 4, temperature 30, weight 0.55, beam 5"),
        (TranslateSettings(certain=0.9), "k 64, temperature 10, weight 0.5, beam 5, certain 0.9"),
        (TranslateSettings(exact=True), "k 64, temperature 10, weight 0.5, beam 5, exact"),
    ],
)
def test_settings_are_told_without_the_usual(settings: TranslateSettings, said: str) -> None:
    assert Explanation("", "", None, None, mixing_told(fixed_mixer(settings, 99), settings), [], []).setting == said
