"""The embedded model and small datastores made with it, once for all tests."""

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from command_line import Result, Run

if TYPE_CHECKING:  # the process that only hands out tests to others starts at once
    from knnmt import Store
    from knnmt.models.translation_model import TranslationModel

PAIRS = 80
# With several processes the slow rooms go first, so that none of them is still at work when the others are done.
SLOW_FIRST = ("cluster", "recipes", "bench", "tests", "serve", "store", "cli", "measure")

# Each run tries the same examples: a change cannot fail for what it did not touch. KNNMT_EXPLORE=1 tries others.
# How fast the machine is decides nothing, and fixtures may serve all examples of a test.
hypothesis.settings.register_profile(
    "steady",
    derandomize=not os.environ.get("KNNMT_EXPLORE"),
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
)
hypothesis.settings.load_profile("steady")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {room: number for number, room in enumerate(SLOW_FIRST)}
    items.sort(key=lambda item: rank.get(item.path.parent.name, len(rank)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """In several processes, the tests of a file stay in one: its fixtures are made once. So do all that need Ray."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0]
            return "tests/cluster" if file.startswith("tests/cluster/") else file

    config.option.loadscopereorder = False  # it would put files of many quick tests first
    return ByFile(config, log)


@pytest.fixture(scope="session", autouse=True)
def quiet_libraries() -> None:
    """As the command line asks for in a process of its own."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Calls the command line."""
    from knnmt.cli.main import main

    def call(*arguments: object, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "argv", ["knnmt", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return Result(int(ended.value.code or 0), out, err)

    return call


@pytest.fixture
def hash_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are made from hashes of the text instead of by a model."""
    from living import use_hash_keys

    use_hash_keys(monkeypatch)


@pytest.fixture(scope="session")
def embedded() -> "TranslationModel":
    from knnmt import load_model

    return load_model("builtin:de-en")


@pytest.fixture(scope="session")
def memory_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first pairs of the demo's memory as TSV."""
    from knnmt.cli.demo import read_demo

    file = tmp_path_factory.mktemp("corpus") / "memory.tsv"
    lines = [f"{segment.source}\t{segment.target}\n" for segment in read_demo("memory")[:PAIRS]]
    file.write_text("".join(lines), encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def store(embedded: "TranslationModel", tmp_path_factory: pytest.TempPathFactory) -> "Store":
    """A store of several parts."""
    from knnmt import BuildSettings, build_store
    from knnmt.cli.demo import demo_corpus

    path = tmp_path_factory.mktemp("stores") / "memory"
    return build_store(path, embedded, [demo_corpus("memory")], BuildSettings(limit=PAIRS, part_entries=400))


@pytest.fixture(scope="session")
def other_store(embedded: "TranslationModel", tmp_path_factory: pytest.TempPathFactory) -> "Store":
    """Another store of the same model, from other text."""
    from knnmt import Corpus, build_store
    from knnmt.cli.demo import read_demo

    file = tmp_path_factory.mktemp("corpus") / "other.tsv"
    pairs = read_demo("test")[:20]
    file.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in pairs), encoding="utf-8")
    return build_store(tmp_path_factory.mktemp("stores") / "other", embedded, [Corpus(file)])
