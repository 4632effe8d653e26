"""Writing parts: what a full disk is answered."""

import errno
from pathlib import Path

import pytest

from knnmt.layout.parts import reserve_space


def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    file = tmp_path / "keys.npy"
    file.write_bytes(b"x")
    with pytest.raises(OSError, match=r"No space left on device: '.*keys\.npy'"):
        reserve_space(file)
