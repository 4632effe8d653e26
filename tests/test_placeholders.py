"""What a translation must repeat, and what the embedded model's tokenizer does to it."""

import pytest

from knnmt.model import TranslationModel
from knnmt.placeholders import missing, placeholders


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
    ("text", "decoded"),
    [
        ("Datei %1$s fehlt", "Datei %1s fehlt"),
        ("Seite {0} fehlt", "Seite 0 fehlt"),
        ('Taste <x id="1"/> fehlt', 'Taste x id"1"/ fehlt'),
        ("Müller &amp; Sohn", "Müller amp; Sohn"),
        ("Datei %(name)s fehlt", "Datei %(name)s fehlt"),
        ("Datei %s fehlt", "Datei %s fehlt"),
    ],
)
def test_what_the_embedded_model_can_carry(embedded: TranslationModel, text: str, decoded: str) -> None:
    """Its vocabulary lacks $ { } < > & = #: they become the unknown token, and `missing` tells what was lost."""
    for ids in (embedded.encode_sources([text])[0], embedded.encode_targets([text])[0]):
        assert embedded.decode(ids) == decoded
    assert bool(missing(text, decoded)) == (text != decoded)
