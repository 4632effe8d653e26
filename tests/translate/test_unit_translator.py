"""Units translated: tags and placeholders once, what is known taken over, doubts said."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from contents import contents, marked, shown
from hypothesis import given, settings

from knnmt import SettingsError, Store
from knnmt.documents.content import Content, DocumentUnit, Limit, Tag, plain_text, tags_of
from knnmt.models.translation_model import TranslationModel
from knnmt.translate.settings import TranslateSettings
from knnmt.translate.translator import Translation, Translator
from knnmt.translate.unit_translator import UnitOptions, UnitTranslator
from knnmt.units.protected import balance


def units_of(*texts: str) -> list[DocumentUnit]:
    return [DocumentUnit(number, marked(text), f"unit {number}") for number, text in enumerate(texts, start=1)]


class Fake(Translator):
    """Translates by a table; what is not in it is translated to itself in capitals, without placeholders."""

    def __init__(self, model: TranslationModel, table: dict[str, str] | None = None, lost: str = "") -> None:
        super().__init__(model, None, TranslateSettings())
        self.table, self.lost, self.seen = table or {}, lost, list[str]()

    def translations(self, texts: Any, **_: Any) -> list[Translation]:
        self.seen += texts
        made = [self.table.get(text, "".join(sign for sign in text if sign not in self.lost)) for text in texts]
        return [Translation(text, out, (1, 0), -1.0) for text, out in zip(texts, made, strict=True)]


@pytest.fixture
def translator(embedded: TranslationModel) -> Translator:
    return Translator(embedded, None, TranslateSettings(beam=1))


def test_tags_return(translator: Translator) -> None:
    units = units_of("Das <b>Haus</b> ist <i>sehr <x/>groß</i>.", "<b>Guten Tag!</b>", "<x/>", "", " Ja<x/> ")
    results = UnitTranslator(translator).translate(units)
    for unit, result in zip(units, results, strict=True):
        assert Counter(tags_of(result.target)) == Counter(tags_of(unit.source))
    assert shown(results[1].target).startswith("<b>")
    assert shown(results[1].target).endswith("</b>")
    assert (shown(results[2].target), results[3].target, results[2].confidence) == ("<x/>", (), None)
    assert shown(results[4].target).endswith("<x/> ")
    assert 0 < (results[0].confidence or 0) < 1


def test_sentences_are_translated_one_by_one_and_joined_as_they_were(embedded: TranslationModel) -> None:
    fake = Fake(embedded, {"Das ist gut.": "That is good.", "Nein!": "No!"})
    results = UnitTranslator(fake).translate(units_of("  Das ist gut.\n\nNein!  Nein! "))
    assert shown(results[0].target) == "  That is good.\n\nNo!  No! "
    assert sorted(set(fake.seen)) == ["Das ist gut.", "Nein!"]


def test_lines_stay_where_they_matter(embedded: TranslationModel) -> None:
    text = "Aufruf: a [WAHL]\n  -h, --help   zeigt <b>Hilfe</b>\n  -V\tNummer"
    unit = DocumentUnit(1, marked(text), "here", has_lines=True)
    fake = Fake(embedded)
    result = UnitTranslator(fake).translate([unit])[0]
    assert (shown(result.target), result.flags) == (text, ("untranslated copy",))
    assert fake.seen == ["Aufruf: a [WAHL]", "-h, --help", "zeigt Hilfe", "-V", "Nummer"]
    assert shown(UnitTranslator(Fake(embedded)).translate([replace(unit, has_lines=False)])[0].target) != text


@pytest.mark.parametrize(
    ("limits", "is_over"),
    [
        ((), False),
        ((Limit(4),), False),
        ((Limit(3),), True),
        ((Limit(4, "utf-8"),), True),
        ((Limit(5, "utf-8"),), False),
    ],
)
def test_what_is_longer_than_the_document_allows_is_flagged(
    embedded: TranslationModel, limits: tuple[Limit, ...], is_over: bool
) -> None:
    unit = DocumentUnit(1, marked("<b>Ja</b> ja"), "here", limits=limits)
    result = UnitTranslator(Fake(embedded, {"Ja ja": "Öyes"})).translate([unit])[0]
    assert ("longer than allowed" in result.flags) == is_over


def test_wrapped_lines_are_one_sentence_and_wrapped_again(embedded: TranslationModel) -> None:
    source = "Das ist ein langer Satz, der bei vierzig\nZeichen umbrochen wurde, weil er lang ist."
    fake = Fake(embedded, {source.replace("\n", " "): "This is a long sentence that was wrapped at forty, being long."})
    result = UnitTranslator(fake).translate([DocumentUnit(1, (source,), "here", has_lines=True)])[0]
    assert shown(result.target) == "This is a long sentence that was wrapped\nat forty, being long."
    assert result.flags == ()


def test_a_lost_placeholder_is_decoded_again_with_masks(embedded: TranslationModel) -> None:
    fake = Fake(embedded, {"Datei %s fehlt": "File is missing", "Datei [0] fehlt": "File [0] is missing"})
    result = UnitTranslator(fake).translate(units_of("Datei %s fehlt"))[0]
    assert (shown(result.target), result.flags) == ("File %s is missing", ())
    assert fake.seen == ["Datei %s fehlt", "Datei [0] fehlt"]


def test_what_no_mask_saves_is_put_back_and_flagged(embedded: TranslationModel) -> None:
    fake = Fake(embedded, lost="%s[]{}X0123456789")
    result = UnitTranslator(fake).translate(units_of("Datei %s fehlt"))[0]
    assert shown(result.target) == "Datei %s fehlt"
    assert "placeholder restored" in result.flags


def test_pieces_that_meet_make_no_other_placeholder(embedded: TranslationModel) -> None:
    """Without a space between them, the second piece would become part of the first one's address."""

    class Halving(UnitTranslator):
        def pieces_of(self, work: Any) -> Any:
            last = len(work.flat.words)
            return (self.piece_of(work.flat, span, []) for span in ((0, last - 1), (last - 1, last)))

    fake = Fake(embedded, {"Siehe https://a.org/x»": "See https://a.org/x", "Datei": "file"})
    result = Halving(fake).translate(units_of("Siehe https://a.org/x»Datei"))[0]
    assert shown(result.target) == "See https://a.org/x file"


def test_accelerators_are_not_seen_and_return(embedded: TranslationModel) -> None:
    fake = Fake(embedded, {"Datei": "File", "Beenden": "Quit", "R&D": "R&D"})
    texts = ["&Datei", "Bee_nden", "<b>&Datei</b>", "R&D", "_Datei %s"]
    units = [replace(unit, accelerators="&_") for unit in units_of(*texts)]
    results = [shown(result.target) for result in UnitTranslator(fake).translate(units)]
    assert results == ["&File", "_Quit", "<b>&File</b>", "R&D", "_Datei %s"]
    assert {*fake.seen} == {"Datei", "Beenden", "R&D", "Datei %s"}
    assert shown(UnitTranslator(fake).translate(units_of("&Datei"))[0].target) == "&Datei"


def test_a_memory_knows_labels_with_and_without_accelerator(embedded: TranslationModel, store: Store) -> None:
    pairs = {"&Datei": "File (&1)", "Ansicht": "View", "Bild": "I&mage"}

    class Memory:
        def exact(self, text: str, **_: Any) -> Any:
            return replace(store.segment(0), source=text, target=pairs[text]) if text in pairs else None

    translator = UnitTranslator(Fake(embedded), UnitOptions(details=True))
    translator.lookup = Memory()  # type: ignore[assignment]  # has no near matches: for known units, none are looked up
    units = [replace(unit, accelerators="&_") for unit in units_of("&Datei", "A&nsicht", "_Ansicht", "&Bild")]
    results = translator.translate(units)
    assert [shown(result.target) for result in results] == ["File (&1)", "&View", "_View", "I&mage"]


def test_nothing_to_translate_is_left_alone(embedded: TranslationModel) -> None:
    fake = Fake(embedded)
    results = UnitTranslator(fake).translate(units_of("12.5", "%s: {0}", "…", "<x/> 3"))
    assert [shown(result.target) for result in results] == ["12.5", "%s: {0}", "…", "<x/> 3"]
    assert fake.seen == []


def test_too_long_a_sentence_is_split_and_not_cut(embedded: TranslationModel) -> None:
    fake = Fake(embedded)
    text = ", ".join(f"Wort{chr(97 + at % 26)} und mehr" for at in range(400))
    result = UnitTranslator(fake).translate(units_of(text))[0]
    assert shown(result.target) == text
    assert "source too long" in result.flags
    longest = max(len(source) for source in embedded.encode_sources(fake.seen))
    assert longest <= embedded.positions
    endless = "a" * 5000
    result = UnitTranslator(fake).translate(units_of(f"Hallo {endless}"))[0]
    assert endless in shown(result.target)
    assert "source too long" in result.flags


def test_an_unfinished_translation_is_tried_in_two(embedded: TranslationModel) -> None:
    class Endless(Fake):
        def translations(self, texts: Any, **_: Any) -> list[Translation]:
            return [
                Translation(text, text.upper() if len(text) < 20 else "…", (1, 0), -1.0, False, len(text) >= 20)
                for text in texts
            ]

    result = UnitTranslator(Endless(embedded)).translate(units_of("Eins zwei drei vier, fünf sechs sieben acht"))[0]
    assert shown(result.target) == "EINS ZWEI DREI VIER, FÜNF SECHS SIEBEN ACHT"
    assert "source too long" in result.flags


def test_what_the_memory_knows(store: Store) -> None:
    known = store.segment(3)
    translator = Translator.from_store(store.path, k=4, beam=1)
    words = known.source.split()
    unit = units_of(f" {words[0]} <b>{words[1]}</b> {' '.join(words[2:])}")[0]
    used = UnitTranslator(translator).translate([unit])[0]
    assert (used.origin, used.confidence) == ("exact", None)
    assert "".join(plain_text(used.target).split()) == "".join(known.target.split())
    assert len(tags_of(used.target)) == 2
    suggested = UnitTranslator(translator, UnitOptions(exact_matches="suggest")).translate([unit])[0]
    assert suggested.origin == "machine"
    assert [(match.target, match.percent) for match in suggested.matches] == [(known.target, 100.0)]
    ignored = UnitTranslator(translator, UnitOptions(exact_matches="ignore")).translate([unit])[0]
    assert (ignored.origin, ignored.matches) == ("machine", ())
    elsewhere = UnitTranslator(translator, UnitOptions(where=("corpus!=memory",))).translate([unit])[0]
    assert elsewhere.origin == "machine"
    near = UnitTranslator(translator, UnitOptions(matches=2)).translate(units_of(known.source[:-1]))[0]
    assert near.matches[0].source == known.source
    assert 90 < near.matches[0].percent < 100


def test_a_persons_translation_keeps_its_words(embedded: TranslationModel, store: Store) -> None:
    """What the memory has for a number may be a word; a placeholder must be there all the same."""

    class Knowing(UnitTranslator):
        def known(self, work: Any) -> Any:
            told = {"3 Dateien.": "Three files.", "Datei %s.": "The file."}
            return replace(store.segment(0), source=work.flat.text(), target=told[work.flat.text()])

    results = Knowing(Fake(embedded)).translate(units_of("3 Dateien.", "Datei %s."))
    assert (shown(results[0].target), results[0].flags) == ("Three files.", ("number differs",))
    assert "%s" in shown(results[1].target)
    assert results[1].flags == ("placeholder restored",)


def test_options_are_checked() -> None:
    with pytest.raises(SettingsError, match="--exact-matches perhaps: must be one of use, suggest, ignore"):
        UnitOptions(exact_matches="perhaps")  # type: ignore[arg-type]


@given(contents())
@settings(max_examples=30, deadline=None)
def test_tags_and_placeholders_always_survive(embedded: TranslationModel, content: Content) -> None:
    fake = Fake(embedded, lost="%s{}e.T[]X0")
    unit = DocumentUnit(1, content, "here")
    result = UnitTranslator(fake).translate([unit])[0]
    assert Counter(piece for piece in result.target if isinstance(piece, Tag)) == Counter(tags_of(content))
    source, target = (" ".join(plain_text(side).split()) for side in (content, result.target))
    if not tags_of(content):
        assert balance(source, target).holds
