"""Builds an index of noisy keys in pieces: a build that takes an hour can be stopped, and the next call goes on.

The true nearest of some queries are found beside it, and not counted.
"""

import json
import os
import re
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bench.noisy import NoisyKeys
from knnmt.files import trained_name
from knnmt.layout.part_files import map_file
from knnmt.search.exact import nearest, norms_of
from knnmt.search.factories import UNCODED_ENTRIES, automatic_factory, make_index
from knnmt.search.index import read_trained, train, write_index
from knnmt.search.internals import found_among, plain_clusters
from knnmt.search.mapped_lists import Block, ListWriter

QUERIES = 160  # 32 sentences with 5 beams: a step
ASKED = 64  # queries whose true nearest are looked for
K = 16
JUDGED = 4096  # keys whose cluster is also looked for among all
MAPPED = 1 << 20  # bytes of memory for codes: so little that those are chosen that can be mapped
SAMPLED_AT_ONCE = 131_072

Keys = NDArray[np.float32]
Row = dict[str, Any]


class Clock:
    """Seconds of processor time by name: the machine may be busy with other work."""

    def __init__(self, used: dict[str, float]) -> None:
        self.used = used

    def __call__(self, name: str) -> "Clock":
        self.name = name
        return self

    def __enter__(self) -> None:
        self.began = time.process_time()

    def __exit__(self, *_: object) -> None:
        self.used[self.name] = self.used.get(self.name, 0.0) + time.process_time() - self.began


@dataclass
class Progress:
    """How far a build has come; in a file beside the index."""

    used: dict[str, float] = field(default_factory=dict)
    blocks: list[tuple[int, int]] = field(default_factory=list)
    peak: int = 0
    pieces: int = 0

    @property
    def entries(self) -> int:
        return sum(entries for _, entries in self.blocks)


class ResumedWriter(ListWriter):
    """Goes on with the blocks of an earlier one."""

    def __init__(self, index: Any, file: Path, progress: Progress, *, memory: int) -> None:
        before = file.with_name(f"{file.stem}.before.blocks")
        temporary = file.with_name(f"{file.stem}.lists.blocks")
        if temporary.exists():
            temporary.rename(before)
        super().__init__(index, file, memory=memory)
        assert self.temporary == temporary
        if before.exists():
            self.opened.close()
            before.rename(temporary)
            self.opened = temporary.open("r+b")
        self.blocks, self.entries = [Block(*block) for block in progress.blocks], progress.entries
        if self.blocks:
            self.sizes = np.load(file.with_suffix(".sizes.npy"))
        self.opened.seek(0, os.SEEK_END)

    def save(self, progress: Progress) -> None:
        self.opened.flush()
        np.save(self.final.with_suffix(".sizes.npy"), self.sizes)
        progress.blocks = [(block.begin, block.entries) for block in self.blocks]


class Truth:
    """The nearest of some queries so far."""

    def __init__(self, queries: Keys, file: Path) -> None:
        self.queries, self.file = torch.from_numpy(queries), file
        self.best, self.entries = torch.empty(len(queries), 0), torch.empty(len(queries), 0, dtype=torch.long)
        if file.exists():
            kept = np.load(file)
            self.best, self.entries = torch.from_numpy(kept["best"]), torch.from_numpy(kept["entries"])

    def look(self, block: Keys, first: int) -> None:
        keys = torch.from_numpy(block)
        near, entries = nearest(self.queries, [(keys, norms_of(keys))], K)
        self.best, order = torch.cat([self.best, near], dim=1).topk(K, largest=False)
        self.entries = torch.cat([self.entries, entries + first], dim=1).gather(1, order)

    def save(self) -> None:
        np.savez(self.file, best=self.best.numpy(), entries=self.entries.numpy())


def keys_in(folder: Path) -> NoisyKeys:
    """They stay on disk: what a process takes into memory is counted."""
    file = spread_file(folder)
    return NoisyKeys(map_file(folder / "originals.npy"), np.load(file) if file.exists() else None)


def spread_file(folder: Path) -> Path:
    return folder / "spread.npy"


def queries_of(keys: NoisyKeys, batch: int) -> Keys:
    """Copies that no store has."""
    return keys.copies((np.arange(QUERIES) + batch * QUERIES) * 7919 + (1 << 40))


def index_name(entries: int) -> str:
    return f"index-{entries}.faiss"


def truth_file(folder: Path, entries: int) -> Path:
    return folder / f"truth-{entries}.npz"


def sample_file(folder: Path, entries: int) -> Path:
    return folder / f"sample-{entries}.npy"


def read_progress(file: Path) -> Progress:
    return Progress(**json.loads(file.read_text())) if file.exists() else Progress()


def build(folder: Path, entries: int, memory: int, seconds: float) -> Row | None:
    """Write an index in one pass over the keys; None if the time was over before."""
    began, file = time.monotonic(), folder / index_name(entries)
    state = file.with_suffix(".json")
    progress, keys = read_progress(state), keys_in(folder)
    clock = Clock(progress.used)
    index = trained(folder, entries, memory, keys, clock)
    writer = ResumedWriter(index, file, progress, memory=memory // 4)
    truth = Truth(queries_of(keys, 0)[:ASKED], truth_file(folder, entries))
    among = found_among(plain_clusters(index))
    for block in keys.blocks(entries, writer.entries):
        if time.monotonic() - began > seconds:
            break
        truth.look(block, writer.entries)
        with clock("assign"):
            owners = among.owners(block)
        with clock("write"):
            writer.add(block, owners)
    done = writer.entries == entries
    if done:
        with clock("write"):
            writer.finish()
            write_index(index, file)
    else:
        writer.save(progress)
    truth.save()
    progress.peak, progress.pieces = max(progress.peak, highest_memory()), progress.pieces + 1
    state.write_text(json.dumps(asdict(progress)))
    if not done:
        return None
    return told(progress, index, entries, keys, file.stat().st_size + writer.final.stat().st_size)


def trained(folder: Path, entries: int, memory: int, keys: NoisyKeys, clock: Clock) -> Any:
    """The index without entries, from its file if an earlier call trained it."""
    file = folder / trained_name(index_name(entries))
    if file.exists():
        return read_trained(file)
    factory = automatic_factory(max(entries, UNCODED_ENTRIES + 1), keys.originals.shape[1], MAPPED)
    index, random = make_index(factory, keys.originals.shape[1]), np.random.default_rng(0)
    sample = sample_of(keys, entries, index.nlist, folder, random)
    with clock("train"):
        train(index, [sample], random, factory, memory)
    write_index(index, file)
    sample_file(folder, entries).unlink()
    state = Progress(clock.used, peak=highest_memory())
    (folder / index_name(entries)).with_suffix(".json").write_text(json.dumps(asdict(state)))
    return index


def sample_of(keys: NoisyKeys, entries: int, clusters: int, folder: Path, random: np.random.Generator) -> Any:
    """Keys to train on, on disk as those of a store are."""
    numbers = np.unique(random.integers(0, entries, min(entries, 40 * max(1024, clusters))))
    shape = (len(numbers), keys.originals.shape[1])
    sample = np.lib.format.open_memmap(sample_file(folder, entries), "w+", np.float16, shape)
    for first in range(0, len(numbers), SAMPLED_AT_ONCE):
        sample[first : first + SAMPLED_AT_ONCE] = keys.copies(numbers[first : first + SAMPLED_AT_ONCE])
    return sample


def told(progress: Progress, index: Any, entries: int, keys: NoisyKeys, size: int) -> Row:
    """The row of a build; among it what share of keys is with the nearest of all centroids."""
    among = found_among(plain_clusters(index))
    some = keys.copies(np.arange(JUDGED) * 24_379 % entries)
    same = (among.owners(some) == among.compared(some, 1)[1][:, 0]).mean()
    used = {name: round(seconds, 1) for name, seconds in progress.used.items()}
    return {
        "factory": automatic_factory(max(entries, UNCODED_ENTRIES + 1), index.d, MAPPED), "clusters": int(index.nlist),
        "gigabytes": round(size / 1e9, 3), "train_seconds": used["train"], "assign_seconds": used["assign"],
        "assign_microseconds_a_key": round(progress.used["assign"] / entries * 1e6, 2),
        "same_cluster": round(float(same), 4), "write_seconds": used["write"],
        "write_microseconds_a_key": round(progress.used["write"] / entries * 1e6, 2), "pieces": progress.pieces,
        "build_peak_gigabytes": round(progress.peak / 1e9, 2),
    }  # fmt: skip


def highest_memory() -> int:
    """Bytes of this process, what it had mapped among them."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0
