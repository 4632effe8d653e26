"""A build that is killed, at any point, goes on to the same store as one that was left alone."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Run

from knnmt import BuildSettings, Store, StoreError, Translator, build_store
from knnmt.models.translation_model import TranslationModel
from knnmt.store.building import plan_of
from knnmt.store.verification import problems_of
from knnmt.text.corpus import Corpus

SETTINGS = {"part_entries": 200, "batch_tokens": 256}


def content(store: Store) -> list[str]:
    return [record.sha256 for record in store.files().values()]


@pytest.fixture(scope="module")
def undisturbed(embedded: TranslationModel, memory_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Store:
    path = tmp_path_factory.mktemp("undisturbed") / "store"
    return build_store(path, embedded, [Corpus(memory_file)], BuildSettings(**SETTINGS))


class PulledPlugError(Exception):
    pass


@pytest.mark.parametrize("calls_before", [0, 1, 5, 12])
def test_stopped_anywhere_between_batches(
    embedded: TranslationModel,
    memory_file: Path,
    undisturbed: Store,
    tmp_path: Path,
    calls_before: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import knnmt.store.building as building

    whole, calls = building.teacher_forced_keys, iter(range(calls_before))

    def fail_later(*arguments: object) -> object:
        if next(calls, None) is None:
            raise PulledPlugError
        return whole(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(building, "teacher_forced_keys", fail_later)
    with pytest.raises(PulledPlugError):
        build_store(tmp_path / "store", embedded, [Corpus(memory_file)], BuildSettings(**SETTINGS))
    monkeypatch.undo()
    with pytest.raises(StoreError, match="--resume"):
        Store.open(tmp_path / "store")
    resumed = build_store(tmp_path / "store", embedded, [Corpus(memory_file)], BuildSettings(**SETTINGS, resume=True))
    assert content(resumed) == content(undisturbed)
    assert list(problems_of(resumed)) == []


SCRIPT = """
import sys
from pathlib import Path
from knnmt import BuildSettings, Corpus, build_store, load_model
settings = BuildSettings(part_entries=200, batch_tokens=256, resume=True)
build_store(sys.argv[1], load_model("builtin:de-en"), [Corpus(Path(sys.argv[2]))], settings)
"""


def test_killed_with_sigkill(embedded: TranslationModel, memory_file: Path, undisturbed: Store, tmp_path: Path) -> None:
    """A real process, killed as soon as its second part is there."""
    path = tmp_path / "store"
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(path), str(memory_file)])
    while not (path / "parts/000001").exists() and process.poll() is None:
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (path / "manifest.json").exists()
    settings = BuildSettings(part_entries=200, batch_tokens=256, resume=True)
    resumed = build_store(path, embedded, [Corpus(memory_file)], settings)
    assert content(resumed) == content(undisturbed)
    text = ["Prüfen Sie den Akku."]
    assert Translator.from_store(path, k=4).translate(text) == Translator.from_store(undisturbed.path, k=4).translate(
        text
    )


def stopped_build(path: Path, model: TranslationModel, corpus: Corpus) -> None:
    """A build as it stands when it was killed before its manifest."""
    build_store(path, model, [corpus], BuildSettings(**SETTINGS, limit=5))
    (path / "manifest.json").unlink()
    plan = plan_of(model, [corpus], BuildSettings(**SETTINGS, limit=5))
    (path / "building.json").write_text(json.dumps(plan))


@pytest.mark.parametrize(
    ("changed", "name"),
    [({"limit": 3}, "limit"), ({"part_entries": 100}, "part_entries"), ({"batch_tokens": 9}, "batch")],
)
def test_resume_refuses_other_settings(
    embedded: TranslationModel, memory_file: Path, tmp_path: Path, changed: dict[str, int], name: str
) -> None:
    stopped_build(tmp_path / "store", embedded, Corpus(memory_file))
    settings = BuildSettings(**(SETTINGS | {"limit": 5} | changed), resume=True)
    with pytest.raises(StoreError, match=name):
        build_store(tmp_path / "store", embedded, [Corpus(memory_file)], settings)


def test_resume_refuses_other_text_of_the_same_size(
    embedded: TranslationModel, memory_file: Path, tmp_path: Path
) -> None:
    file = tmp_path / "memory.tsv"
    text = memory_file.read_text(encoding="utf-8")
    file.write_text(text, encoding="utf-8")
    stopped_build(tmp_path / "store", embedded, Corpus(file))
    file.write_text(text[:-2] + "!\n", encoding="utf-8")
    with pytest.raises(StoreError, match="corpora changed"):
        build_store(tmp_path / "store", embedded, [Corpus(file)], BuildSettings(**SETTINGS, limit=5, resume=True))


def test_resume_refuses_another_prefix(embedded: TranslationModel, memory_file: Path, tmp_path: Path) -> None:
    stopped_build(tmp_path / "store", embedded, Corpus(memory_file))
    other = replace(embedded, source_prefix="translate: ")
    with pytest.raises(StoreError, match="source_prefix changed"):
        build_store(tmp_path / "store", other, [Corpus(memory_file)], BuildSettings(**SETTINGS, limit=5, resume=True))


@pytest.mark.parametrize("content", ["", "{", "[]"])
def test_a_damaged_plan_is_one_clear_error(
    embedded: TranslationModel, memory_file: Path, tmp_path: Path, content: str
) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store/building.json").write_text(content)
    with pytest.raises(StoreError, match=r"building\.json: damaged"):
        build_store(tmp_path / "store", embedded, [Corpus(memory_file)], BuildSettings(resume=True))


def test_killed_while_the_plan_was_written(embedded: TranslationModel, memory_file: Path, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store/.building.json.partial").write_text("{")
    built = build_store(tmp_path / "store", embedded, [Corpus(memory_file)], BuildSettings(limit=3, resume=True))
    assert built.manifest.segments == 3


def test_killed_between_manifest_and_the_last_step(
    embedded: TranslationModel, memory_file: Path, undisturbed: Store, tmp_path: Path
) -> None:
    import shutil

    path = Path(shutil.copytree(undisturbed.path, tmp_path / "store"))
    plan = plan_of(embedded, [Corpus(memory_file)], BuildSettings(**SETTINGS))
    (path / "building.json").write_text(json.dumps(plan))
    resumed = build_store(path, embedded, [Corpus(memory_file)], BuildSettings(**SETTINGS, resume=True))
    assert content(resumed) == content(undisturbed)
    assert not (path / "building.json").exists()


NO_ROOM = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)), resource.RLIM_INFINITY))
from knnmt.cli.main import main
main()
"""


@pytest.mark.parametrize("largest_file", [30_000, 1_000_000])
def test_no_room_for_a_file(run: Run, memory_file: Path, tmp_path: Path, largest_file: int) -> None:
    """Too small for the keys, and too small for the index: one line, and the build can go on when there is room."""
    call = ["build", str(tmp_path / "store"), "--model", "builtin:de-en", "--corpus", str(memory_file)]
    call += ["--mixing", "paper"]
    command = [sys.executable, "-c", NO_ROOM, str(largest_file), *call]
    stopped = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (stopped.returncode, stopped.stderr.count("\n")) == (2, 1), stopped.stderr
    assert stopped.stderr.startswith("knnmt: ")
    assert run(*call, "--resume").code == 0
    assert list(problems_of(Store.open(tmp_path / "store"))) == []
