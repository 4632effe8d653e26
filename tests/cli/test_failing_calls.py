"""How calls fail: one line that says why, the exit code, and nothing changed on disk."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import transformers
from command_line import Run
from tiny_models import tiny_folder

from knnmt import Store
from knnmt.cli.main import main

EVALUATE = "evaluate --source FOLDER/three.de --target FOLDER/three.de"


# Wrong calls: name, arguments (FOLDER holds the files below), and what the one line must say.
WRONG = [
    ("missing corpus", "build FOLDER/new --model MARIAN --corpus FOLDER/absent.tsv", "absent.tsv: no such file"),
    ("missing source", "build FOLDER/new --model MARIAN --source FOLDER/no.de --target FOLDER/two.en", "no.de"),
    ("empty corpus", "build FOLDER/new --model MARIAN --corpus FOLDER/empty.tsv", "empty.tsv: no sentence pairs"),
    ("only blank lines", "build FOLDER/new --model MARIAN --corpus FOLDER/blank.tsv", "blank.tsv: no sentence pairs"),
    ("uneven files", "build FOLDER/new --model MARIAN --source FOLDER/three.de --target FOLDER/two.en", "two.en: ends"),
    ("broken TMX", "build FOLDER/new --model MARIAN --corpus FOLDER/broken.tmx", "broken.tmx: "),
    ("not parallel text", "build FOLDER/new --model MARIAN --corpus FOLDER/text.doc", "text.doc: not one of"),
    ("bad encoding", "build FOLDER/new --model MARIAN --corpus FOLDER/latin.tsv", "latin.tsv: line 1 is not UTF-8"),
    ("no corpus at all", "build FOLDER/new --model MARIAN", "--corpus, or --source and --target"),
    ("source without target", "build FOLDER/new --model MARIAN --source FOLDER/two.en", "--target 0 times"),
    ("no such model", "build FOLDER/new --model FOLDER/nomodel/at/all --corpus FOLDER/good.tsv", "nomodel"),
    ("no such embedded model", "build FOLDER/new --model builtin:xx-yy --corpus FOLDER/good.tsv", "builtin:xx-yy"),
    ("unknown kind of model", "build FOLDER/new --model FOLDER/blenderbot --corpus FOLDER/good.tsv", "--key-site"),
    ("impossible index", "build FOLDER/new --model MARIAN --corpus FOLDER/good.tsv --index IVF9x", "--index IVF9x"),
    ("limit", "build FOLDER/new --model MARIAN --corpus FOLDER/good.tsv --limit 0", "--limit 0"),
    ("over a store", "build STORE --model MARIAN --corpus FOLDER/good.tsv", "already a datastore"),
    ("over other files", "build FOLDER --model MARIAN --corpus FOLDER/good.tsv", "not empty"),
    ("over a file", "build FOLDER/good.tsv --model MARIAN --corpus FOLDER/good.tsv", "a file, not a folder"),
    ("nothing to resume but a store", "build STORE --model MARIAN --corpus FOLDER/good.tsv --resume", "already a data"),
    ("no permission", "build /proc/knnmt-store --model MARIAN --corpus FOLDER/good.tsv", "/proc/knnmt-store"),
    ("not a store", "translate --store FOLDER", "not a datastore"),
    ("no such store", "info FOLDER/nothing", "nothing: not a datastore"),
    ("store of another model", "translate --store STORE --model T5", "made with another model"),
    ("stores of two models", "translate --store STORE --store OTHER", "made with another model"),
    ("truncated store", "translate --store FOLDER/truncated", "keys.npy: has"),
    ("unfinished store", "translate --store FOLDER/unfinished", "--resume"),
    ("k larger than the store", "translate --store STORE --k 999999", "--k 999999: larger than the datastore"),
    ("k too small", "translate --store STORE --k 0", "--k 0"),
    ("weight", "translate --store STORE --weight 1.2", "--weight 1.2: must be between 0 and 1"),
    ("temperature", "translate --store STORE --temperature 0", "--temperature 0"),
    ("beam", "translate --store STORE --beam 0", "--beam 0"),
    ("beam alone", "translate --model MARIAN --beam 0", "--beam 0"),
    ("a language beside a store", "translate --store STORE --target-lang fr", "--target-lang fr: a store knows"),
    ("a weight without a store", "translate --model MARIAN --weight 0.5", "--weight 0.5: only with --store"),
    ("a server of nothing", "serve", "--store or --model is missing"),
    ("a server of no store", "serve --store FOLDER/nothing", "nothing: not a datastore"),
    ("an echo of one language", "serve --model MARIAN --echo xx", "--echo xx: must be a pair of languages"),
    ("a deadline that has passed", "serve --model MARIAN --deadline 0", "--deadline 0"),
    ("neither store nor model", "translate", "--store or --model is missing"),
    ("uneven test", "evaluate --model MARIAN --source FOLDER/three.de --target FOLDER/two.en", "lines must be aligned"),
    ("no test", "evaluate --model MARIAN --source FOLDER/gone --target FOLDER/two.en", "gone: no such file"),
    ("uneven earlier lines", f"{EVALUATE} --store STORE --against FOLDER/two.en", "two.en has 2 lines but"),
    ("no earlier lines", f"{EVALUATE} --store STORE --against FOLDER/gone", "gone: no such file"),
    ("earlier lines of a table", f"{EVALUATE} --store STORE --against FOLDER/good.tsv", "good.tsv"),
    ("earlier lines alone", f"{EVALUATE} --model MARIAN --against FOLDER/three.de", "only with --store"),
    ("saving into a file", f"{EVALUATE} --model MARIAN --save FOLDER/three.de", "three.de: file exists"),
    ("saving where nothing can be", f"{EVALUATE} --model MARIAN --save FOLDER/three.de/x", "not a directory"),
    ("empty test", "evaluate --model MARIAN --source FOLDER/empty.txt --target FOLDER/empty.txt", "empty.txt: empty"),
    ("explain nothing", "explain --store STORE ' '", "empty"),
    ("explain without a store", "explain Hallo", "--store is missing"),
    ("a file instead of standard input", "translate text.de --store STORE", "-o is missing: where does text.de go?"),
    ("not a number", "translate --store STORE --k many", "--k"),
    ("unknown option", "translate --shop STORE", "--shop"),
    ("unknown command", "tranlsate", "tranlsate"),
    ("missing argument", "info", "STORE"),
    ("add nothing", "add STORE", "--corpus, or --source and --target"),
    ("add a missing file", "add STORE --corpus FOLDER/absent.tsv", "absent.tsv: no such file"),
    ("add an empty file", "add STORE --corpus FOLDER/empty.tsv", "empty.tsv: no sentence pairs"),
    ("add uneven files", "add STORE --source FOLDER/three.de --target FOLDER/two.en", "two.en: ends"),
    ("add to no store", "add FOLDER --corpus FOLDER/good.tsv", "not a datastore"),
    ("add with another model", "add STORE --corpus FOLDER/good.tsv --model T5", "made with another model"),
    ("add with one column", "add STORE --corpus FOLDER/good.tsv --columns de", "--columns de: must be two names"),
    ("add with unknown columns", "add STORE --corpus FOLDER/good.tsv --columns a,b", "good.tsv"),
    ("remove nothing", "remove STORE", "what is to be removed"),
    ("remove no such segment", "remove STORE --segment 99999", "--segment 99999"),
    ("remove no such corpus", "remove STORE --corpus nobody", "--corpus nobody"),
    ("remove no such source", "remove STORE --source-text nothing", "--source-text 'nothing'"),
    ("remove by a bad condition", "remove STORE --where x", "--where x: must be"),
    ("merge with itself", "merge STORE STORE", "with itself"),
    ("merge with another model", "merge STORE OTHER", "made with another model"),
    ("merge with nothing", "merge STORE FOLDER/nothing", "not a datastore"),
    ("compact to an impossible index", "compact STORE --index IVF9x", "--index IVF9x"),
    ("an index with numbers of its own", "compact STORE --index IDMap,Flat", "--index IDMap,Flat"),
    ("compact to nothing", "compact STORE --cap 0", "--cap 0"),
    ("compact no store", "compact FOLDER", "not a datastore"),
    ("no such version", "rollback STORE 7", "no earlier version 7"),
    ("versions of no store", "versions FOLDER", "not a datastore"),
    ("export to another form", "export STORE --output FOLDER/memory.doc", "memory.doc: not one of"),
    ("export to nowhere", "export STORE --output FOLDER/no/memory.tsv", "memory.tsv"),
    ("export of nothing", "export STORE --output FOLDER/x.tsv --where corpus=x", "--where corpus=x: no segment of"),
    ("a filter for nothing", "translate --store STORE --where corpus=x", "--where corpus=x: nothing in"),
    ("a filter without a store", "translate --model MARIAN --where corpus=x", "--where corpus=x: only with --store"),
    ("a store's weight", "translate --store house=STORE:heavy", "'heavy' is not a weight"),
    ("a store without weight", "translate --store STORE:0", "must be above 0"),
]


@pytest.fixture(scope="module")
def folder(tiny_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every kind of bad file."""
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "good.tsv").write_text("Guten Tag.\tGood day.\n")
    for name in ("empty.tsv", "empty.txt"):
        (folder / name).write_text("")
    (folder / "blank.tsv").write_text("\n\n")
    (folder / "three.de").write_text("eins\nzwei\ndrei\n")
    (folder / "two.en").write_text("one\ntwo\n")
    (folder / "text.doc").write_text("x\ty\n")
    (folder / "latin.tsv").write_bytes("Grüße\tgreetings\n".encode("latin-1"))
    (folder / "broken.tmx").write_text('<?xml version="1.0"?><tmx version="1.4"><header srclang="de"/><body><tu>')
    shutil.copytree(tiny_store, folder / "truncated")
    keys = folder / "truncated/parts/000000/keys.npy"
    keys.write_bytes(keys.read_bytes()[:-100])
    shutil.copytree(tiny_store, folder / "unfinished")
    (folder / "unfinished/manifest.json").rename(folder / "unfinished/building.json")
    make_unknown_model(folder / "blenderbot")
    return folder


def make_unknown_model(folder: Path) -> None:
    """A loadable model of a kind without a known place for its keys, with a tokenizer of another."""
    shutil.copytree(tiny_folder("bart"), folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    vocabulary = len(transformers.AutoTokenizer.from_pretrained(folder))
    config = transformers.BlenderbotConfig(
        vocab_size=vocabulary, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=1,
        decoder_attention_heads=1, encoder_ffn_dim=8, decoder_ffn_dim=8, max_position_embeddings=32,
    )  # fmt: skip
    transformers.BlenderbotForConditionalGeneration(config).save_pretrained(folder)


def everything_in(*folders: Path) -> dict[Path, tuple[int, int]]:
    files = [file for folder in folders for file in folder.rglob("*")]
    kept = [file for file in files if file.is_file() and file.name != ".lock"]
    return {file: (file.stat().st_mtime_ns, file.stat().st_size) for file in kept}


@pytest.mark.parametrize(("call", "says"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_wrong_calls(
    run: Run, folder: Path, tiny_store: Path, store: Store, marian: Path, call: str, says: str
) -> None:
    import shlex

    places = {
        "FOLDER": folder,
        "STORE": tiny_store,
        "OTHER": store.path,
        "MARIAN": marian,
        "T5": tiny_folder("pegasus"),
    }
    arguments = shlex.split(call)
    for name, place in places.items():
        arguments = [argument.replace(name, str(place)) for argument in arguments]
    before = everything_in(folder, tiny_store)
    result = run(*arguments, stdin=b"Hallo.\n")
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("knnmt: ")
    assert result.err.count("\n") == 1
    assert says in result.err
    assert everything_in(folder, tiny_store) == before
    assert not (folder / "new").exists() or not any((folder / "new").iterdir())


def test_an_index_that_proves_too_large_can_be_changed(
    run: Run, marian: Path, memory_file: Path, tmp_path: Path
) -> None:
    """How many entries there are is known only at the end; the work until then is not lost."""
    call = ("build", tmp_path / "store", "--model", marian, "--corpus", memory_file)
    result = run(*call, "--index", "IVF9999,Flat")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "--index IVF9999,Flat: 9,999 clusters cannot be trained on 2,880 entries" in result.err
    assert run(*call, "--index", "IVF16,Flat", "--resume").code == 0
    assert run("verify", tmp_path / "store").code == 0


def heed_interrupts() -> None:
    """A shell that runs the tests in the background has told them, and so their children, to ignore interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(("ending", "code", "says"), [(b"", 130, "stopped"), (b"\xff\n", 2, "line 2 is not UTF-8")])
def test_a_pipe_that_stays_open(tiny_store: Path, ending: bytes, code: int, says: str) -> None:
    """One line is answered; then an interrupt, or a bad line, ends it cleanly."""
    command = [sys.executable, "-m", "knnmt", "translate", "--store", str(tiny_store), "--k", "4"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, preexec_fn=heed_interrupts) as process:
        process.stdin.write(b"Hallo.\n")
        process.stdin.flush()
        process.stdout.readline()
        if ending:
            process.stdin.write(ending)
            process.stdin.flush()
        else:
            process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=120)
    assert (process.returncode, error.decode().count("Traceback")) == (code, 0)
    assert says in error.decode()


def test_bad_input_text(run: Run, tiny_store: Path) -> None:
    result = run("translate", "--store", tiny_store, "--k", 4, stdin=b"gut\n\xff\xfe\n")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "standard input: line 2 is not UTF-8" in result.err


@pytest.mark.parametrize("kind", ["full disk", "read only"])
def test_a_failing_disk_is_one_line(
    run: Run, marian: Path, memory_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The build stops, says why, and goes on with --resume when there is room again."""
    import errno

    import knnmt.layout.parts as parts

    numbers = {"full disk": errno.ENOSPC, "read only": errno.EROFS}

    def fail(*_: object) -> None:
        import os

        raise OSError(numbers[kind], os.strerror(numbers[kind]), str(tmp_path / "store/parts"))

    monkeypatch.setattr(parts, "rename_durably", fail)
    arguments = ("build", tmp_path / "store", "--model", marian, "--corpus", memory_file)
    result = run(*arguments)
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "store/parts" in result.err
    monkeypatch.undo()
    monkeypatch.setattr(sys, "argv", ["knnmt", *map(str, arguments), "--resume"])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 0
    assert Store.open(tmp_path / "store").manifest.segments == 64


def test_ctrl_c_is_one_line(run: Run, tiny_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from knnmt import Translator

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Translator, "translations", interrupt)
    result = run("translate", "--store", tiny_store, "--k", 4, stdin=b"Hallo.\n")
    assert (result.code, result.err) == (130, "knnmt: stopped\n")


def test_a_fault_of_ours_is_not_hidden(run: Run, tiny_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from knnmt import Translator

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Translator, "translations", fail)
    with pytest.raises(ZeroDivisionError):  # Python ends with code 1 and a traceback
        run("translate", "--store", tiny_store, "--k", 4, stdin=b"Hallo.\n")
