"""The memory of a process is watched until its last line."""

from itertools import islice
from pathlib import Path

import pytest

from bench import endless


def test_no_line_comes_twice() -> None:
    lines = list(islice(endless.texts(), 5_000))
    assert len({*lines}) == 5_000
    assert all(line.count("\n") == 1 for line in lines)


def test_samples_up_to_the_last_line() -> None:
    samples = endless.watched(["translate", "--model", "builtin:de-en", "--beam", "1"], 40)
    assert [done for done, _ in samples] == list(range(2, 41, 2))
    assert all(size > 50 for _, size in samples)


def test_a_process_that_fails_is_no_result(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="ended with 2"):
        endless.watched(["translate", "--store", str(tmp_path / "none")], 40)
