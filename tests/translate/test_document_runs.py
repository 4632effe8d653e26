"""Documents translated to files: whole or not at all, never over another file, and on after a kill."""

import gzip
import json
import os
import re
import resource
import signal
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from knnmt import DocumentError, SettingsError
from knnmt.models.translation_model import TranslationModel
from knnmt.translate import document_runs
from knnmt.translate.document_runs import DocumentTranslator
from knnmt.translate.document_settings import DocumentSettings
from knnmt.translate.settings import TranslateSettings
from knnmt.translate.translator import Translation, Translator
from knnmt.units.destinations import journal_of, with_destinations

XLIFF = """<?xml version="1.0"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file original="a" source-language="de"
 target-language="en" datatype="plaintext"><body>
<trans-unit id="1"><source>eins <g id="1">zwei</g> %s</source></trans-unit>
<trans-unit id="2"><source>drei <x id="1"/> vier</source></trans-unit>
</body></file></xliff>
"""


class Shouting(Translator):
    """Translates into capitals, as often as it is allowed to."""

    def __init__(self, model: TranslationModel, texts: int = 1_000_000) -> None:
        super().__init__(model, None, TranslateSettings())
        self.texts = texts
        self.seen: list[str] = []

    def translations(self, texts: Any, **_: Any) -> list[Translation]:
        self.texts -= len(texts)
        if self.texts < 0:
            raise KeyboardInterrupt
        self.seen += texts
        return [Translation(text, text.upper().replace("%S", "%s"), (1, 0), -0.5) for text in texts]


class Forgetful(Shouting):
    """Loses numbers, whatever stands for them."""

    def translations(self, texts: Any, **_: Any) -> list[Translation]:
        done = super().translations(texts)
        return [replace(one, text=" ".join(re.sub(r"\W*\d\W*", " ", one.text).split())) for one in done]


def stop(model: TranslationModel, source: Path, target: Path, texts: int) -> None:
    """Translate so many texts of a document, and be interrupted."""
    with pytest.raises(KeyboardInterrupt):
        Shouting(model, texts=texts).translate_document(source, target)
    assert not target.exists()


def go_on(model: TranslationModel, source: Path, target: Path, texts: int) -> None:
    """Go on with a run that was stopped, of which so many texts are left."""
    second = Shouting(model)
    second.translate_document(source, target, resume=True)
    assert len(second.seen) == texts
    assert target.read_text() == source.read_text().upper()
    assert not journal_of(target).exists()


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "in.txt"
    file.write_text("".join(f"Zeile {chr(97 + number)} hier\n" for number in range(10)))
    return file


def test_a_document_is_translated(embedded: TranslationModel, tmp_path: Path) -> None:
    source, target = tmp_path / "a.xlf", tmp_path / "b.xlf"
    source.write_text(XLIFF)
    report = Shouting(embedded).translate_document(source, str(target), report=tmp_path / "r.json")
    assert (report.units, report.machine, report.exact) == (2, 2, 0)
    written = target.read_text()
    assert "EINS" in written
    assert written.count("<x id=") == 2
    assert written.count("%s") == 2
    assert json.loads((tmp_path / "r.json").read_text())["totals"]["units"] == 2
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.xlf", "b.xlf", "r.json"]


@pytest.mark.parametrize(
    "broken",
    [b'{"target": ["cut o', b"\0" * 100 + b"\n"],  # a line without its end; zeros, as some file systems leave them
)
def test_a_stopped_run_goes_on(
    embedded: TranslationModel, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bytes
) -> None:
    monkeypatch.setattr(document_runs, "BLOCK", 3)
    target = tmp_path / "out.txt"
    stop(embedded, text, target, texts=7)
    with journal_of(target).open("ab") as file:
        file.write(broken)
    with pytest.raises(SettingsError, match="a run was stopped there; --resume goes on with it, --force starts over"):
        Shouting(embedded).translate_document(text, target)
    go_on(embedded, text, target, texts=4)
    third = Shouting(embedded)
    third.translate_document(text, target, resume=True)
    assert third.seen == []


def test_a_run_that_is_killed_goes_on(
    embedded: TranslationModel, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_runs, "BLOCK", 3)

    class Dying(Shouting):
        def translations(self, texts: Any, **_: Any) -> list[Translation]:
            if texts and len(self.seen) == 6:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().translations(texts)

    target = tmp_path / "out.txt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads: the child uses none
        child = os.fork()
    if not child:
        Dying(embedded).translate_document(text, target)
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert not target.exists()
    go_on(embedded, text, target, texts=4)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.txt", "out.txt"]


def test_a_report_covers_what_was_finished_before_a_kill(
    embedded: TranslationModel, text: Path, tmp_path: Path
) -> None:
    names = ["a.txt", "b.txt", "c.txt"]
    (tmp_path / "out").mkdir()
    for name in names:
        (tmp_path / name).write_text(f"Zeile von {name}\nNummer 7 ist hier\n")
    jobs = [(tmp_path / name, tmp_path / "out" / name) for name in names]

    def run(texts: int, report: str, *, resume: bool = False) -> Any:
        run = DocumentTranslator(
            Forgetful(embedded, texts), DocumentSettings(resume=resume), report=tmp_path / f"out/{report}"
        )
        run.translate(jobs)
        return json.loads((tmp_path / f"out/{report}").read_text())

    whole = run(100, "whole.json")
    assert [file["units"] for file in whole["files"]] == [2, 2, 2]
    assert whole["totals"]["doubtful"] == 3
    for _, target in jobs:
        target.unlink()
    with pytest.raises(KeyboardInterrupt):
        run(14, "r.json")
    assert [target.exists() for _, target in jobs] == [True, True, False]
    assert run(100, "r.json", resume=True) == whole
    files = sorted(file.name for file in (tmp_path / "out").iterdir())
    assert files == ["a.txt", "b.txt", "c.txt", "r.json", "whole.json"]
    assert run(0, "r.json", resume=True) == whole  # nothing was done, and the report stays
    new = run(0, "new.json", resume=True)
    assert ([file["units"] for file in new["files"]], new["totals"]["units"]) == ([None] * 3, 0)


def test_a_report_of_another_run_is_not_gone_on_with(embedded: TranslationModel, text: Path, tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("noch eine\n")
    jobs = [(text, tmp_path / "out.txt"), (tmp_path / "b.txt", tmp_path / "out2.txt")]
    with pytest.raises(KeyboardInterrupt):
        DocumentTranslator(Shouting(embedded, texts=10), report=tmp_path / "r.json").translate(jobs)
    settings = DocumentSettings(resume=True, paragraphs=True)
    with pytest.raises(SettingsError, match=r"\.r\.json\.journal is of another run \(settings\)"):
        DocumentTranslator(Shouting(embedded), settings, report=tmp_path / "r.json").translate(jobs)


def test_what_was_to_be_written_over_is_not_done(embedded: TranslationModel, text: Path, tmp_path: Path) -> None:
    jobs = [(text, tmp_path / "out.txt"), (text, tmp_path / "out2.txt")]
    for _, target in jobs:
        target.write_text("old")
    with pytest.raises(KeyboardInterrupt):
        DocumentTranslator(Shouting(embedded, texts=5), DocumentSettings(force=True)).translate(jobs)
    assert [target.read_text() for _, target in jobs] == ["old", "old"]
    DocumentTranslator(Shouting(embedded), DocumentSettings(resume=True)).translate(jobs)
    assert [target.read_text() for _, target in jobs] == [text.read_text().upper()] * 2


def test_a_file_that_cannot_grow_is_named(embedded: TranslationModel, tmp_path: Path) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("Zeile hier\n" * 2_000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"\.out\.txt\.journal"):
            Shouting(embedded).translate_document(source, target)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not target.exists()
    Shouting(embedded).translate_document(source, target, resume=True)
    assert target.read_text() == source.read_text().upper()


def test_all_are_read_before_any_is_translated(embedded: TranslationModel, text: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.xlf").write_text("<xliff version='1.2'>")
    translator = Shouting(embedded)
    with pytest.raises(DocumentError, match="broken XML"):
        DocumentTranslator(translator).translate(
            [(text, tmp_path / "out.txt"), (tmp_path / "broken.xlf", tmp_path / "out.xlf")]
        )
    assert translator.seen == []


def test_a_template_becomes_a_catalogue(embedded: TranslationModel, tmp_path: Path) -> None:
    (tmp_path / "a.pot").write_text('msgid ""\nmsgstr "Language: en\\n"\n\nmsgid "ja"\nmsgstr ""\n')
    Shouting(embedded).translate_document(tmp_path / "a.pot", tmp_path / "en.po")
    assert 'msgstr "JA"' in (tmp_path / "en.po").read_text()


def test_another_run_does_not_go_on(embedded: TranslationModel, text: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    stop(embedded, text, target, texts=0)
    with pytest.raises(SettingsError, match="is of another run \\(settings\\); --force starts over"):
        Shouting(embedded).translate_document(text, target, resume=True, paragraphs=True)
    Shouting(embedded).translate_document(text, target, force=True)
    assert target.exists()


def test_a_full_disk_loses_nothing(
    embedded: TranslationModel, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out.txt"
    target.write_text("precious")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(document_runs, "write", full)
        with pytest.raises(OSError, match="No space left"):
            Shouting(embedded).translate_document(text, target, force=True)
    assert target.read_text() == "precious"
    go_on(embedded, text, target, texts=0)


def test_gzipped_in_and_out(embedded: TranslationModel, tmp_path: Path) -> None:
    source, target = tmp_path / "a.txt.gz", tmp_path / "b.txt.gz"
    source.write_bytes(gzip.compress(b"eins zwei\n"))
    Shouting(embedded).translate_document(source, target)
    assert gzip.decompress(target.read_bytes()) == b"EINS ZWEI\n"


def test_where_things_may_not_go(embedded: TranslationModel, text: Path, tmp_path: Path) -> None:
    translator = Shouting(embedded)
    for target, message in [
        (text, "it is the document itself"),
        (tmp_path / "no/out.txt", "there is no folder"),
        (tmp_path, "a folder, not a file"),
        (tmp_path / "out.po", "must end in .txt"),
    ]:
        with pytest.raises(SettingsError, match=message):
            translator.translate_document(text, target)
    (tmp_path / "in.doc").write_text("x")
    with pytest.raises(DocumentError, match=r"in\.doc"):
        translator.translate_document(tmp_path / "in.doc", tmp_path / "out.doc")
    run = DocumentTranslator(translator)
    with pytest.raises(SettingsError, match="two documents would be written there"):
        run.translate([(text, tmp_path / "a.txt"), (text, tmp_path / "a.txt")])
    assert translator.seen == []


def test_a_folder_takes_several(tmp_path: Path) -> None:
    files = [Path("a/x.po"), Path("b/y.po")]
    assert with_destinations(files, tmp_path) == [(files[0], tmp_path / "x.po"), (files[1], tmp_path / "y.po")]
    assert with_destinations(files[:1], tmp_path / "z.po") == [(files[0], tmp_path / "z.po")]
    with pytest.raises(SettingsError, match="several documents need a folder"):
        with_destinations(files, tmp_path / "none")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"force": True, "resume": True}, "--force --resume"),
        ({"exact_matches": "maybe"}, "--exact-matches maybe"),
        ({"matches": -1}, "--matches -1"),
        ({"columns": "one"}, "--columns one"),
        ({"state": "odd"}, "--state odd"),
    ],
)
def test_settings_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        DocumentSettings(**options)
