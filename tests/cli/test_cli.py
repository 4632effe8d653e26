"""The command line's contracts: what it prints, and where."""

import json
import shutil
from pathlib import Path

import pytest
from command_line import Result, Run

from knnmt import Store
from knnmt.cli.demo import read_demo


def test_version_and_help(run: Run) -> None:
    from knnmt import __version__

    assert run("--version") == Result(0, f"knnmt {__version__}\n", "")
    assert "translate" in run("--help").out


def test_build_says_what_it_made(run: Run, memory_file: Path, marian: Path, tmp_path: Path) -> None:
    file = tmp_path / "some.tsv"
    file.write_text(memory_file.read_text() + "Nur links\t\n", encoding="utf-8")
    result = run("build", tmp_path / "store", "--model", marian, "--corpus", file)
    entries = Store.open(tmp_path / "store").entries
    assert (result.code, result.out) == (0, "")
    assert f"{entries:,} entries from 64 pairs" in result.err
    assert "left out: 1 pairs with an empty side, 16 pairs longer than the model's 64 tokens" in result.err


def test_build_from_aligned_files(run: Run, marian: Path, tmp_path: Path) -> None:
    (tmp_path / "a.de").write_text("Guten Tag.\nHallo.\n")
    (tmp_path / "a.en").write_text("Good day.\nHello.\n")
    result = run(
        "build", tmp_path / "store", "--model", marian, "--source", tmp_path / "a.de", "--target", tmp_path / "a.en",
        "--source-lang", "de", "--target-lang", "en", "--index", "Flat", "--limit", 1, "--name", "greetings",
    )  # fmt: skip
    store = Store.open(tmp_path / "store")
    assert result.code == 0
    assert (store.manifest.segments, store.segment(0).corpus) == (1, "greetings")


def test_translate_keeps_lines(run: Run, store: Store) -> None:
    text = "Prüfen Sie den Akku.\n\nLaden Sie den Akku auf."
    result = run("translate", "--store", store.path, "--k", 8, stdin=text.encode())
    lines = result.out.split("\n")
    assert (result.code, len(lines), lines[1], lines[3]) == (0, 4, "", "")
    assert lines[0]
    assert lines[2]


def test_translate_json_has_scores(run: Run, store: Store) -> None:
    result = run("translate", "--store", store.path, "--k", 8, "--json", stdin="Prüfen Sie den Akku.\n\n".encode())
    first, second = map(json.loads, result.out.splitlines())
    assert first["source"] == "Prüfen Sie den Akku."
    assert first["score"] < 0
    assert first["score_per_token"] == pytest.approx(first["score"] / first["tokens"], abs=1e-3)
    assert (second["translation"], second["tokens"]) == ("", 0)


def test_translate_with_the_model_alone(run: Run, store: Store) -> None:
    plain = run("translate", "--model", "builtin:de-en", stdin=b"Hallo Welt.\n")
    weightless = run("translate", "--store", store.path, "--weight", 0, stdin=b"Hallo Welt.\n")
    assert plain == weightless
    assert plain.code == 0


def test_evaluate_json_has_the_promised_form(run: Run, store: Store, tmp_path: Path) -> None:
    pairs = read_demo("test")[:6]
    (tmp_path / "test.de").write_text("".join(pair.source + "\n" for pair in pairs))
    (tmp_path / "test.en").write_text("".join(pair.target + "\n" for pair in pairs))
    files = ("--source", tmp_path / "test.de", "--target", tmp_path / "test.en", "--json")
    fixed = ("--k", 8, "--temperature", 10, "--weight", 0.5)
    record = json.loads(run("evaluate", "--store", store.path, *fixed, "--limit", 5, *files).out)
    assert set(record) == {"base", "knn", "sentences", "p_value", "signature"}
    assert set(record["base"]) == set(record["knn"]) == {"bleu", "chrf", "tokens_per_second"}
    assert record["sentences"] == 5
    assert 0 <= record["p_value"] <= 1
    assert record["knn"]["chrf"] > record["base"]["chrf"]
    assert "|k:8|T:10|weight:0.5|beam:5|index:Flat|v:" in record["signature"]["knnmt"]
    assert record["signature"]["bleu"].startswith("nrefs:1|case:mixed")
    alone = json.loads(run("evaluate", "--model", "builtin:de-en", "--limit", 5, *files).out)
    assert set(alone) == {"base", "sentences", "signature"}
    assert alone["base"]["bleu"] == record["base"]["bleu"]


def test_evaluate_decodes_the_base_model_once_for_many_stores(run: Run, store: Store, tmp_path: Path) -> None:
    pairs, files = read_demo("test")[:3], ("--source", tmp_path / "test.de", "--target", tmp_path / "test.en")
    (tmp_path / "test.de").write_text("".join(pair.source + "\n" for pair in pairs))
    (tmp_path / "test.en").write_text("".join(pair.target + "\n" for pair in pairs))
    call = ("evaluate", "--store", store.path, "--k", 4, "--beam", 1, *files)
    first = json.loads(run(*call, "--save", tmp_path / "new/lines", "--json").out)
    base = tmp_path / "new/lines/base.txt"
    assert len(base.read_text().splitlines()) == len(base.with_name("knn.txt").read_text().splitlines()) == 3
    second = json.loads(run(*call, "--against", base, "--json").out)
    assert second["base"] == first["base"] | {"tokens_per_second": None}
    assert second["signature"]["base"].startswith("file:base.txt@")
    shown = run(*call, "--against", base).out
    assert shown.splitlines()[1].split() == [
        "base",
        f"{first['base']['bleu']:.2f}",
        f"{first['base']['chrf']:.2f}",
        "–",
    ]
    assert "base: file:base.txt@" in shown


def test_explain_json_traces_every_neighbour(run: Run, store: Store) -> None:
    segment = read_demo("memory")[6]
    result = run("explain", "--store", store.path, "--k", 4, segment.source, "--json")
    record = json.loads(result.out)
    assert record["translation"] == segment.target
    neighbours = [neighbour for token in record["tokens"] for neighbour in token["neighbours"]]
    assert len(neighbours) == 4 * len(record["tokens"])
    assert {"source", "target", "corpus", "segment", "token", "distance", "weight"} <= set(neighbours[0])
    for token in record["tokens"]:
        nearest = token["neighbours"][0]
        assert (nearest["source"], nearest["segment"], nearest["token"]) == (segment.source, 6, token["token"])
        assert nearest["distance"] == pytest.approx(0, abs=0.5)
        assert sum(neighbour["weight"] for neighbour in token["neighbours"]) == pytest.approx(1, abs=1e-4)
        mixed = 0.5 * token["neighbour_probability"] + 0.5 * token["model_probability"]
        assert token["probability"] == pytest.approx(mixed, abs=1e-5)


def test_explain_for_people(run: Run, store: Store) -> None:
    result = run("explain", "--store", store.path, "--k", 4, read_demo("memory")[6].source)
    assert result.code == 0
    assert "from the memory" in result.out
    assert "memory:6" in result.out


def test_info(run: Run, store: Store) -> None:
    record = json.loads(run("info", store.path, "--json").out)
    assert {"entries", "segments", "dimension", "index", "recall", "model", "bytes"} <= set(record)
    assert (record["entries"], record["segments"], record["dimension"]) == (store.entries, 80, 256)
    assert record["recall"]["recall"] == 1.0
    assert f"{store.entries:,} of dimension 256" in run("info", store.path).out


def test_verify(run: Run, store: Store, tmp_path: Path) -> None:
    assert run("verify", store.path).code == 0
    copy = shutil.copytree(store.path, tmp_path / "copy")
    file = copy / "parts/000000/values.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"\x7f")
    result = run("verify", copy)
    assert result.code == 2
    assert "values.npy: damaged" in result.err


def test_no_arguments_show_the_help(run: Run) -> None:
    assert run() == run("--help")
    assert run().out.count("\n") > 10


@pytest.mark.parametrize("name", ["d[/b]", "[2024]", ":smile:"])
def test_names_are_printed_as_they_are(run: Run, tiny_store: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(tiny_store, tmp_path / name)
    result = run("verify", tmp_path / name)
    assert result.code == 0
    assert f"{name}:" in result.out.replace("\n", "")


def test_a_day_in_the_life_of_a_store(run: Run, tiny_store: Path, tmp_path: Path) -> None:
    store = shutil.copytree(tiny_store, tmp_path / "house")
    before = Store.open(store).live_segments
    (tmp_path / "new.tsv").write_text("source\ttarget\tclient\nGuten Abend.\tGood evening.\tACME\nHallo.\tHello.\tX\n")
    added = run("add", store, "--corpus", tmp_path / "new.tsv", "--name", "today")
    assert (added.code, "2 pairs added" in added.err) == (0, True)
    again = run("add", store, "--corpus", tmp_path / "new.tsv")
    assert "0 pairs added, 0 entries; 2 known already" in again.err
    assert run("export", store, "--output", tmp_path / "acme.tmx", "--where", "client=ACME", "--source-lang", "de",
               "--target-lang", "en").code == 0  # fmt: skip
    assert "Good evening." in (tmp_path / "acme.tmx").read_text()
    assert "Hello." not in (tmp_path / "acme.tmx").read_text()
    assert "1 pairs removed" in run("remove", store, "--where", "client=ACME").err
    assert [line.split(maxsplit=2)[2] for line in run("versions", store).out.splitlines()] == [
        "built", "added 2 segments", "removed 1 segment",
    ]  # fmt: skip
    assert "rolled back to version 2, as version 4" in run("rollback", store, "2").err
    assert Store.open(store).live_segments == before + 2
    assert "MB now" in run("compact", store).err
    assert [fact["change"] for fact in json.loads(run("versions", store, "--json").out)] == ["compacted"]
    assert run("verify", store).code == 0
    assert json.loads(run("info", store, "--json").out)["removed"] == {"entries": 0, "segments": 0}


def test_merge_takes_other_stores_in(run: Run, tiny_store: Path, marian: Path, tmp_path: Path) -> None:
    store = shutil.copytree(tiny_store, tmp_path / "house")
    (tmp_path / "new.tsv").write_text("Guten Abend.\tGood evening.\n")
    assert run("build", tmp_path / "other", "--model", marian, "--corpus", tmp_path / "new.tsv").code == 0
    before = Store.open(store).live_segments
    assert f"now {before + 1:,} pairs" in run("merge", store, tmp_path / "other").err


def test_an_export_of_nothing_leaves_what_was_there(run: Run, tiny_store: Path, tmp_path: Path) -> None:
    store, file = shutil.copytree(tiny_store, tmp_path / "house"), tmp_path / "memory.tsv"
    file.write_text("precious\n")
    assert run("export", store, "--output", file, "--where", "corpus=x", "--where", "a=b").err == (
        f"knnmt: --where corpus=x --where a=b: no segment of {store} meets it\n"
    )
    assert run("remove", store, "--corpus", "memory").code == 0
    result = run("export", store, "--output", file)
    assert (result.code, result.err) == (
        2,
        f"knnmt: {store}: every sentence pair has been removed; nothing is left to export\n",
    )
    assert "--where corpus=memory: no segment" in run("export", store, "--output", file, "--where", "corpus=memory").err
    assert file.read_text() == "precious\n"


def test_conflicts_are_shown(run: Run, tiny_store: Path, tmp_path: Path) -> None:
    store = shutil.copytree(tiny_store, tmp_path / "house")
    known = Store.open(store).segment(0)
    (tmp_path / "new.tsv").write_text(f"{known.source}\tSomething else.\n")
    result = run("add", store, "--corpus", tmp_path / "new.tsv")
    assert f"{known.source!r}: {known.target!r}, now also 'Something else.'" in result.err
    (tmp_path / "new.tsv").write_text(f"{known.source}\tYet another.\n")
    assert "2 replaced" in run("add", store, "--corpus", tmp_path / "new.tsv", "--replace").err


def test_placeholders_that_were_lost_are_named(run: Run, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from knnmt import Translation, Translator

    lost = [Translation("Laden Sie {0} Akkus.", "Charge the batteries.", (5, 0))]
    monkeypatch.setattr(Translator, "translations", lambda *_, **__: lost)
    result = run("translate", "--store", store.path, "--k", 8, "--json", stdin=b"Laden Sie {0} Akkus.\n")
    assert json.loads(result.out)["missing"] == ["{0}"]
