"""Documents against their plain sentences: what tags, sentences and matches cost beside translating."""

import random
import tempfile
from functools import partial
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from bench.ratios import compared, speeds
from bench.translating import Plan, share_threads
from knnmt import Translator
from knnmt.cli.demo import read_demo

UNITS = 2_000


def unit_costs(plan: Plan, repeats: int, count: int = UNITS) -> dict[str, Any]:
    """Time of an XLIFF with tags as a multiple of the time of its plain sentences; the bar is 1.15."""
    if plan.threads:
        share_threads(plan.threads)
    translator = Translator.from_model(plan.model or "builtin:de-en", beam=plan.beams[0])
    sentences = sentences_of(plan, count)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.xlf", Path(folder) / "out.xlf"
        model = translator.translation_model
        write_xliff(source, sentences, (model.source_lang or "de", model.target_lang or "en"))

        def document() -> int:
            return translator.translate_document(source, target, force=True).units

        measured = speeds({"plain": partial(plainly, translator, sentences), "document": document}, repeats)
    found = compared(measured["document"], measured["plain"])
    result = {"units": count, "times_plain": round(1 / found["ratio"], 3), "bar": 1.15}
    print(f"a document of {count:,} units takes {result['times_plain']} times the time of its plain sentences")
    return result


def plainly(translator: Translator, sentences: list[str]) -> int:
    for first in range(0, len(sentences), 512):  # as lines from standard input
        translator.translations(sentences[first : first + 512])
    return len(sentences)


def sentences_of(plan: Plan, count: int) -> list[str]:
    """Distinct sentences: those of a file, or the demo's in new combinations of words."""
    if plan.source is not None:
        lines = plan.source.read_text(encoding="utf-8").splitlines()
        return [line for line in dict.fromkeys(lines) if len(line.split()) > 2][:count]
    known = [pair.source for pair in read_demo("memory")]
    chance = random.Random(1)
    made = dict.fromkeys(known)
    while len(made) < count:
        left, right = chance.choice(known).split(), chance.choice(known).split()
        made[" ".join([*left[: len(left) // 2], *right[len(right) // 2 :]])] = None
    return list(made)[:count]


def write_xliff(file: Path, sentences: list[str], languages: tuple[str, str]) -> None:
    """Each sentence with a pair of tags around one word and, in every second, a single tag."""
    chance = random.Random(2)
    sources = [f"<source>{tagged(sentence, chance)}</source>" for sentence in sentences]
    rows = [f'<trans-unit id="{number}">{source}</trans-unit>' for number, source in enumerate(sources)]
    head = f'<file original="a" datatype="html" source-language="{languages[0]}" target-language="{languages[1]}">'
    body = f'<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">{head}<body>'
    file.write_text("\n".join([body, *rows, "</body></file></xliff>\n"]), encoding="utf-8")


def tagged(sentence: str, chance: random.Random) -> str:
    words = [escape(word) for word in sentence.split()]
    at = chance.randrange(len(words))
    words[at] = f'<g id="1">{words[at]}</g>'
    if chance.random() < 0.5:
        words.append('<x id="2"/>')
    return " ".join(words)
