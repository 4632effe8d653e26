"""What is doubtful, in a table."""

import pytest

from knnmt.units.doubts import WEIGHTS, doubts_of


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("The file is open.", "Die Datei ist offen.", []),
        ("Version 3.5 of 1,000", "Version 3,5 von 1.000", []),
        ("Version 3", "Version 4", ["number differs"]),
        ("two files are here", "2 Dateien sind da", ["number differs"]),
        ("A short text.", "Ein sehr langer Text, der gar kein Ende nehmen will und nie", ["much longer"]),
        ("A text that is quite long and says many things.", "Kurz.", ["much shorter"]),
        ("你好，世界，今天很好", "Hello world, today is fine", []),
        ("Hello there friend", "Hallo hallo hallo hallo", ["repeated phrase"]),
        ("no no no", "nein nein nein", []),
        ("ha ha ha ha", "ha ha ha ha", ["untranslated copy"]),
        ("go up to it, then go on", "geh hin zu geh hin zu geh hin zu", ["repeated phrase"]),
        ("Open the file", "Open the file", ["untranslated copy"]),
        ("Firefox", "Firefox", []),
        ("{n, plural, other {#}} here", "{n, plural, other {#}} da", ["text inside a placeholder"]),
        ("Yes", "", ["much shorter"]),
    ],
)  # fmt: skip
def test_doubts(source: str, target: str, expected: list[str]) -> None:
    assert doubts_of(source, target) == expected
    assert set(expected) <= set(WEIGHTS)
