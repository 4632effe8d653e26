"""A file is there whole or not at all."""

import hashlib
import json
from pathlib import Path
from typing import BinaryIO

import pytest

from knnmt.files import BLOCK, rename_durably, sha256_of, write_durably, write_json


@pytest.mark.parametrize("size", [0, 1, BLOCK, BLOCK + 1])
def test_checksum(tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * size)
    assert sha256_of(path) == hashlib.sha256(b"x" * size).hexdigest()


def test_a_written_file_replaces_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a long old content")
    write_durably(path, lambda file: file.write(b"new"))
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failed_write_leaves_everything_as_it_was(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(file: BinaryIO) -> None:
        file.write(b"half")
        raise error

    with pytest.raises(type(error)):
        write_durably(path, fail)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_not_seen_before_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def look(file: BinaryIO) -> None:
        file.write(b"x")
        assert not path.exists()

    write_durably(path, look)
    assert path.exists()


def test_json_can_be_read_by_people(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"name": "Öl", "k": 16})
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert text == '{\n  "name": "Öl",\n  "k": 16\n}\n'
    assert json.loads(text) == {"name": "Öl", "k": 16}


def test_folders_are_moved_into_place(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    (tmp_path / "temporary" / "file").touch()
    rename_durably(tmp_path / "temporary", tmp_path / "final")
    assert [path.name for path in tmp_path.iterdir()] == ["final"]
    assert (tmp_path / "final" / "file").exists()
