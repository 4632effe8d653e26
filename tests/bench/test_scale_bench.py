"""The benchmark of scale: a build that was stopped gives what one gives that was not; its model is arithmetic."""

from pathlib import Path

import numpy as np
import pytest

from bench import filling
from bench.filling import build, index_name, truth_file
from bench.prediction import compared, predicted
from knnmt.files import lists_name

ENTRIES = 3000


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling, "automatic_factory", lambda *_: "IVF64,RaBitQ")
    monkeypatch.setattr("bench.noisy.BLOCK", 500)


def folder_with_keys(folder: Path) -> Path:
    folder.mkdir()
    np.save(folder / "originals.npy", np.random.default_rng(0).normal(size=(700, 32)).astype(np.float16))
    return folder


def test_a_build_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    once, pieces = folder_with_keys(tmp_path / "once"), folder_with_keys(tmp_path / "pieces")
    assert build(once, ENTRIES, 1 << 28, 1e9) is not None
    moments, calls = iter(range(1000)), 0
    monkeypatch.setattr(filling.time, "monotonic", lambda: next(moments))
    while (row := build(pieces, ENTRIES, 1 << 28, 2)) is None:
        calls += 1
    assert calls >= 2
    assert row["pieces"] == calls + 1
    for name in (index_name(ENTRIES), lists_name(index_name(ENTRIES))):
        assert (pieces / name).read_bytes() == (once / name).read_bytes()
    true = [np.load(truth_file(folder, ENTRIES))["entries"].tolist() for folder in (once, pieces)]
    assert true[0] == true[1]


def test_what_is_predicted() -> None:
    common = {"dimension": 256, "nprobe": 8, "write_microseconds_a_key": 3.0}
    smaller = common | {"entries": 10**6, "clusters": 4096, "finding_milliseconds": 1.0, "middle_nanoseconds": 0.0}
    smaller |= {"train_seconds": 4096 * (0.001 + 64 * 1e-5)}
    smaller |= {"warm_processor_milliseconds": 1.0 + 160 * 8 * 10**6 / 4096 * 1e-5}
    larger = common | {"entries": 10**7, "clusters": 16_384, "finding_milliseconds": 3.0, "middle_nanoseconds": 10.0}
    larger |= {"train_seconds": 16_384 * (0.001 + 128 * 1e-5)}
    larger |= {"assign_microseconds_a_key": 7.0, "warm_processor_milliseconds": 3.0 + 160 * 8 * 10**7 / 16_384 * 3e-5}
    found = predicted(smaller, larger, 10**8, 65_536, 8)
    assert found["gigabytes"] == pytest.approx(4.867, abs=0.001)  # 48 bytes an entry, 1,024 a cluster
    assert found["train_seconds"] == pytest.approx(65_536 * (0.001 + 256 * 1e-5))
    assert found["assign_microseconds_a_key"] == pytest.approx(7.0 + 384 * 0.01)
    assert found["warm_processor_milliseconds"] == pytest.approx(3.0 + 384 * 160e-5 + 160 * 8 * 10**8 / 65_536 * 2e-5)
    last = found | {"entries": 10**8, "clusters": 65_536, "nprobe": 8}
    assert {row["ratio"] for row in compared([smaller, larger, last])} == {1.0}
