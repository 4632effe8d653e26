"""Documents, reports and lookups on the command line."""

import json
from pathlib import Path

import pytest
from command_line import Run

from knnmt import Store

ONE_OF_BOTH = "--force --resume: one starts again, the other continues; give only one of them"
PO = 'msgid ""\nmsgstr "Language: en\\n"\n\nmsgid "%s"\nmsgstr ""\n'


def test_a_document_with_a_store(run: Run, store: Store, tmp_path: Path) -> None:
    known = store.segment(0)
    (tmp_path / "in.txt").write_text(f"{known.source}\nHallo Welt.\n", encoding="utf-8")
    result = run(
        "translate", tmp_path / "in.txt", "-o", tmp_path / "out.txt", "--store", store.path, "--k", 4, "--beam", 1,
        "--report", tmp_path / "report.json",
    )  # fmt: skip
    assert (result.code, result.out) == (0, "")
    assert f"{tmp_path / 'out.txt'}: 2 units, 1 from the memory" in result.err
    first, second = (tmp_path / "out.txt").read_text(encoding="utf-8").splitlines()
    assert first == known.target
    assert second
    totals = json.loads((tmp_path / "report.json").read_text())["totals"]
    assert (totals["units"], totals["exact_matches"], totals["machine"]) == (2, 1, 1)
    assert 0 <= totals["memory_share"] <= 1


def test_one_unit_is_one_unit(run: Run, store: Store, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(f"{store.segment(0).source}\n", encoding="utf-8")
    result = run("translate", tmp_path / "in.txt", "-o", tmp_path / "out.txt", "--store", store.path)
    assert f"{tmp_path / 'out.txt'}: 1 unit, 1 from the memory, 0 to look at" in result.err


def test_several_documents_into_a_folder(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n")
    (tmp_path / "b.po").write_text(PO)
    (tmp_path / "out").mkdir()
    result = run("translate", tmp_path / "a.txt", tmp_path / "b.po", "-o", tmp_path / "out", "--model", "builtin:de-en")
    assert (result.code, sorted(file.name for file in (tmp_path / "out").iterdir())) == (0, ["a.txt", "b.po"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["IN"], "-o is missing: where does IN go? (its lines to standard output: … < IN)"),
        (["IN", "-o", "IN"], "-o IN: it is the document itself; write the translation elsewhere"),
        (["IN", "-o", "OUT.po"], "-o OUT.po: must end in .txt, as IN does"),
        (["IN", "-o", "OUT.txt", "--json"], "--json: only for standard input; --report out.json tells of documents"),
        (["IN", "-o", "OUT.txt", "--report", "r.doc"], "--report r.doc: must end in .html or .json"),
        (["IN", "-o", "OUT.txt", "--exact-matches", "no"], "--exact-matches no: must be one of use, suggest, ignore"),
        (["IN", "-o", "OUT.txt", "--force", "--resume"], ONE_OF_BOTH),
        (["IN", "-o", "OUT.txt"], "--store or --model is missing"),
        (["--resume"], "--resume: only for documents: knnmt translate FILE -o FILE"),
        (["-o", "OUT.txt"], "-o: only for documents: knnmt translate FILE -o FILE"),
        (["none.txt", "-o", "OUT.txt"], "none.txt: no such file or directory"),
    ],
)  # fmt: skip
def test_wrong_calls_are_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("Hallo\n")
    result = run("translate", *(argument.replace("IN", "in.txt").replace("OUT", "out") for argument in arguments))
    assert (result.code, result.out) == (2, "")
    assert result.err == f"knnmt: {message.replace('IN', 'in.txt').replace('OUT', 'out')}\n"
    assert not Path("out.txt").exists()


def test_a_broken_document_is_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.xlf").write_text("<xliff version='1.2'><file>")
    result = run("translate", tmp_path / "a.xlf", "-o", tmp_path / "b.xlf", "--model", "builtin:de-en")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert result.err.startswith(f"knnmt: {tmp_path / 'a.xlf'}: ")
    assert [file.name for file in tmp_path.iterdir()] == ["a.xlf"]


def test_lookup(run: Run, store: Store) -> None:
    known = store.segment(5)
    found = json.loads(run("lookup", store.path, known.source, "--json").out)
    assert (found[0]["percent"], found[0]["match"], found[0]["side"]) == (100.0, "whole", "source")
    assert (found[0]["target"], found[0]["segment"]) == (known.target, 5)
    shown = run("lookup", store.path, known.target.split()[-1].strip("."), "--limit", 1)
    assert (shown.code, len(shown.out.splitlines())) == (0, 3)
    assert "nothing like 'xyzzy qwertz'" in run("lookup", store.path, "xyzzy qwertz").out
    assert run("lookup", store.path, " ").err == "knnmt: the text to look up is empty\n"
    assert run("lookup", store.path, "a", "--least", 0).code == 2
