"""What a translation must repeat, and what the embedded model's tokenizer does to it."""

from pathlib import Path

import pytest

from knnmt.models.translation_model import TranslationModel
from knnmt.store.building import build_store
from knnmt.text.corpus import Corpus
from knnmt.text.placeholders import missing, placeholders
from knnmt.translate.translator import Translator


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("kein Platzhalter", []),
        ("Datei %1$s fehlt in %2$s", ["%1$s", "%2$s"]),
        ("%s%d", ["%s", "%d"]),
        ("%5.2f und %-3d, %ld, %*d, %@", ["%5.2f", "%-3d", "%ld", "%*d", "%@"]),
        ("%(name)s hat %(count)d", ["%(name)s", "%(count)d"]),
        ("%1 von %2.", ["%1", "%2"]),
        ("%1%2", ["%1", "%2"]),
        ("100%% von %s", ["%%", "%s"]),
        ("100 % sicher, 100%ig, 5 % des", []),
        ("{0} von {name}, {}, {0:.2f}, {user.name}, {items[0]}", None),
        ("{count, number}", ["{count, number}"]),
        ("{ kein Platzhalter }", []),
        ("${var} und {{name}}", ["${var}", "{{name}}"]),
        ('<x id="1"/> <g id="2">fett</g> <br> </p>', ['<x id="1"/>', '<g id="2">', "</g>", "<br>", "</p>"]),
        ("a < b > c, 1<2", []),
        ("%n Datei(en), %Ln, %name", ["%n", "%Ln"]),
        ("%<name>s und %-<size>5d", ["%<name>s", "%-<size>5d"]),
        ("Klicken Sie <0>hier</0> <1/>, 2<3>1", ["<0>", "</0>", "<1/>", "<3>"]),
        ("$HOME und $NAME$, US$ 5, 5$", ["$HOME", "$NAME$"]),
        ("Müller &amp; Sohn &#228; &#xE4; R&D; A&B", ["&amp;", "&#228;", "&#xE4;", "&D;"]),
    ],
)
def test_placeholders(text: str, expected: list[str] | None) -> None:
    if expected is None:
        expected = ["{0}", "{name}", "{}", "{0:.2f}", "{user.name}", "{items[0]}"]
    assert placeholders(text) == expected


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("%s und %d", "%d and %s", []),
        ("%s und %s", "%s", ["%s"]),
        ("{0} {1} {0}", "{1}", ["{0}", "{0}"]),
        ('<x id="1"/>', '<x id="2"/>', ['<x id="1"/>']),
        ("ohne", "without %s", []),
    ],
)
def test_missing(source: str, translation: str, expected: list[str]) -> None:
    assert missing(source, translation) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Datei %1$s fehlt",
        "Seite {0} fehlt",
        'Taste <x id="1"/> fehlt',
        "Müller &amp; Sohn",
        "Datei %(name)s fehlt",
        "Datei %s fehlt",
        "漢字 \U0001f600 #5 a=b C:\\x | y",
    ],
)
def test_nothing_is_unknown_to_the_embedded_model(embedded: TranslationModel, text: str) -> None:
    for ids in (embedded.encode_sources([text])[0], embedded.encode_targets([text])[0]):
        assert embedded.decode(ids) == text


def test_a_placeholder_travels_from_the_memory_into_the_translation(tmp_path: Path, embedded: TranslationModel) -> None:
    (tmp_path / "a.tsv").write_text(
        "Die Datei %s fehlt.\tThe file %s is missing.\nDie Seite {0} fehlt.\tThe page {0} is missing.\n",
        encoding="utf-8",
    )
    build_store(tmp_path / "store", embedded, [Corpus(tmp_path / "a.tsv")])
    sources = ["Die Datei %s fehlt.", "Die Seite {0} fehlt."]
    translated = Translator.from_store([tmp_path / "store"]).translate(sources)
    assert translated[0] == "The file %s is missing."
    assert [missing(*pair) for pair in zip(sources, translated, strict=True)] == [[], []]
