"""What a build leaves on disk, against what the model says segment by segment."""

import json
import re
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from knnmt import BuildSettings, Corpus, CorpusError, Store, StoreError, build_store
from knnmt.cli.demo import demo_corpus, read_demo
from knnmt.engine.keys import teacher_forced_keys
from knnmt.layout.records import FileRecord
from knnmt.models.translation_model import TranslationModel
from knnmt.store.verification import problems_of


def test_counts(store: Store) -> None:
    parts = store.manifest.parts
    assert len(parts) > 2
    assert store.manifest.segments == 80
    assert sum(part.entries for part in parts) == store.entries == len(store.values)
    assert all(part.entries >= 400 for part in parts[:-1])


def test_entries_are_in_the_order_of_the_corpus(store: Store, embedded: TranslationModel) -> None:
    targets = embedded.encode_targets([segment.target for segment in read_demo("memory")[:80]])
    everything = np.arange(store.entries)
    assert store.values.tolist() == [token for target in targets for token in target]
    assert store.segment_numbers(everything).tolist() == [
        number for number, target in enumerate(targets) for _ in target
    ]
    assert store.gather("positions", everything).tolist() == [at for target in targets for at in range(len(target))]


@torch.inference_mode()
def test_keys_are_those_of_each_segment_alone(store: Store, embedded: TranslationModel) -> None:
    first = 0
    for segment in read_demo("memory")[:30]:
        source, target = embedded.encode_sources([segment.source])[0], embedded.encode_targets([segment.target])[0]
        inputs = embedded.teacher_forcing([source], [target])
        expected = teacher_forced_keys(embedded.network, embedded.key_site, inputs)[0].numpy()
        stored = store.gather("keys", np.arange(first, first + len(target)))
        np.testing.assert_allclose(stored, expected, rtol=2e-3, atol=4e-3)
        first += len(target)


@pytest.mark.parametrize("large", [0, 1 << 40])
def test_gather_in_any_order(store: Store, large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the mapping, and row by row from the file; the same entry more than once."""
    monkeypatch.setattr("knnmt.layout.part_files.LARGE", large)
    monkeypatch.setattr("knnmt.layout.part_files.LARGE_KEYS", large)
    entries = np.random.default_rng(1).integers(0, store.entries, 2 * store.entries)
    rows = np.concatenate([np.asarray(column) for column in store.columns("keys")])
    np.testing.assert_array_equal(store.gather("keys", entries), rows[entries])


@pytest.mark.parametrize("number", [0, 1, 37, 79])
def test_segments_are_found_by_number(store: Store, number: int) -> None:
    expected = read_demo("memory")[number]
    found = store.segment(number)
    assert (found.segment, found.source, found.target, found.corpus, found.number) == (
        number,
        expected.source,
        expected.target,
        "memory",
        expected.number,
    )


def test_a_sound_store_verifies(store: Store) -> None:
    assert list(problems_of(store)) == []


@pytest.fixture
def copy(store: Store, tmp_path: Path) -> Path:
    return Path(shutil.copytree(store.path, tmp_path / "copy"))


def flip_last_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    "file", ["parts/000000/keys.npy", "parts/000001/values.npy", "parts/000001/segments.parquet", "index.faiss"]
)
def test_verify_sees_one_changed_byte(copy: Path, file: str) -> None:
    flip_last_byte(copy / file)
    with_no_heads(copy)
    assert any(file in problem for problem in problems_of(Store.open(copy)))


def with_no_heads(copy: Path) -> None:
    """As stores of earlier versions are: opening compares sizes alone."""
    manifest = (copy / "manifest.json").read_text()
    (copy / "manifest.json").write_text(re.sub(r'"head": \d+', '"head": null', manifest))


@pytest.mark.parametrize("file", ["parts/000001/values.npy", "parts/000001/segments.parquet", "index.faiss"])
def test_opening_sees_a_changed_beginning(copy: Path, file: str) -> None:
    content = (copy / file).read_bytes()
    (copy / file).write_bytes(b"x" + content[1:])
    with pytest.raises(StoreError, match=f"{file}: damaged"):
        Store.open(copy)


def record_index(copy: Path) -> None:
    """Whoever put another index there changed the manifest, too."""
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["indexes"][0]["file"] = asdict(FileRecord.of(copy / "index.faiss"))
    (copy / "manifest.json").write_text(json.dumps(manifest))


def test_verify_sees_an_index_of_other_keys(copy: Path, other_store: Store) -> None:
    shutil.copy(other_store.path / "index.faiss", copy / "index.faiss")
    record_index(copy)
    assert any("entries instead of" in problem for problem in problems_of(Store.open(copy)))


def test_verify_sees_an_index_whose_entries_are_in_another_order(copy: Path, store: Store) -> None:
    import faiss

    index = faiss.IndexFlatL2(256)
    order = np.random.default_rng(0).permutation(store.entries)
    index.add(store.gather("keys", order).astype(np.float32))
    faiss.write_index(index, str(copy / "index.faiss"))
    record_index(copy)
    assert any("belongs to other parts" in problem for problem in problems_of(Store.open(copy)))


@pytest.mark.parametrize("file", ["parts/000000/keys.npy", "parts/000001/segments.parquet", "index.faiss"])
def test_opening_sees_a_truncated_file(copy: Path, file: str) -> None:
    content = (copy / file).read_bytes()
    (copy / file).write_bytes(content[:-10])
    with pytest.raises(StoreError, match=f"{file}: has .* bytes instead of"):
        Store.open(copy)


def test_opening_sees_a_missing_file(copy: Path) -> None:
    (copy / "parts/000001/positions.npy").unlink()
    with pytest.raises(StoreError, match=r"positions\.npy: missing"):
        Store.open(copy)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 1}', '{"format": 1, "model": 3}'])
def test_a_damaged_manifest_is_an_error(copy: Path, content: str) -> None:
    (copy / "manifest.json").write_text(content)
    with pytest.raises(StoreError, match="damaged"):
        Store.open(copy)


def test_a_manifest_of_a_newer_format_asks_for_an_upgrade(copy: Path) -> None:
    manifest = json.loads((copy / "manifest.json").read_text()) | {"format": 99}
    (copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(StoreError, match="please upgrade"):
        Store.open(copy)


def test_long_and_empty_pairs_are_counted(embedded: TranslationModel, tmp_path: Path) -> None:
    file = tmp_path / "mixed.tsv"
    file.write_text(f"Guten Tag.\tGood day.\n\tnothing\n{'Wort ' * 600}\tlong\nHallo.\tHello.\n", encoding="utf-8")
    built = build_store(tmp_path / "store", embedded, [Corpus(file)])
    assert built.manifest.segments == 2
    assert built.manifest.skipped == {"with an empty side": 1, "longer than the model's 512 tokens": 1}


def test_several_corpora_keep_their_names(embedded: TranslationModel, memory_file: Path, tmp_path: Path) -> None:
    second = tmp_path / "second.tsv"
    second.write_text("Guten Tag.\tGood day.\n", encoding="utf-8")
    built = build_store(
        tmp_path / "store", embedded, [Corpus(memory_file), Corpus(second)], BuildSettings(part_entries=10_000)
    )
    assert [built.segment(number).corpus for number in (0, 79, 80)] == ["memory", "memory", "second"]


def test_the_limit_counts_pairs(embedded: TranslationModel, tmp_path: Path) -> None:
    built = build_store(tmp_path / "store", embedded, [demo_corpus("memory")], BuildSettings(limit=7))
    assert built.manifest.segments == 7


def test_a_call_that_makes_nothing_leaves_nothing(embedded: TranslationModel, tmp_path: Path) -> None:
    file = tmp_path / "long.tsv"
    file.write_text(f"{'Wort ' * 600}\tlong\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="no pair is short enough"):
        build_store(tmp_path / "store", embedded, [Corpus(file)])
    file.write_text("Hallo.\tHello.\n", encoding="utf-8")
    assert build_store(tmp_path / "store", embedded, [Corpus(file)]).manifest.segments == 1
