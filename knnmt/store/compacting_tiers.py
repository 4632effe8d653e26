"""Joins large units of a store while others read and change it: `knnmt compact --tiers`.

The work is done in its own folder without the store's lock. The lock is held only while the result replaces its inputs.
The work may be stopped at any point: the next call uses what was finished, and the store is always whole. The content
and the version of the store stay the same.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pyroaring import BitMap

from knnmt.files import lists_name, rename_durably, trained_name, write_json
from knnmt.layout.joining import join_into
from knnmt.layout.manifest import PARTS, read_manifest
from knnmt.layout.parts import PART_RECORD, new_folder, next_part, read_part_record
from knnmt.layout.records import IndexRecord, PartRecord, as_json
from knnmt.store.datastore import INDEX, Store
from knnmt.store.index_files import indexed, inputs_of, less, manifest_fields, unused_name
from knnmt.store.tiers import FACTOR, IndexUnit, Run, due, units_of
from knnmt.store.versions import SHORTLY, changing, locked, recommit

FOLDER = "joining"
LOCK = ".joining.lock"
PART = "part"
UNIT = "unit.json"
PATIENCE = 60.0  # seconds that the result waits for a writer


@dataclass(frozen=True, slots=True)
class Joint:
    """A unit that replaces several, and the segments that were left out of it, numbered in those units."""

    folder: Path
    unit: IndexUnit
    replaces: tuple[str, ...]  # the names of parts
    removed: BitMap
    dropped: int  # entries


def compact_tiers(path: str | Path) -> int:
    """Join what is due, step by step; returns the number of steps."""
    path, steps = Path(path), 0
    with joining(path):
        while run := next_run(units := units_of((store := Store.open(path)).manifest)):
            steps += place(path, prepare(store, units, run))
    return steps


@contextmanager
def joining(path: Path) -> Iterator[None]:
    """Keep other joiners out. When all went well, nothing temporary is left."""
    read_manifest(path)  # no lock file in a folder that is no store
    with locked(path, LOCK, patience=SHORTLY):
        yield
        shutil.rmtree(path / FOLDER, ignore_errors=True)


def next_run(units: Sequence[IndexUnit]) -> Run | None:
    """Units that should be one, or one unit in many parts, as earlier versions built them."""
    many = (number for number, unit in enumerate(units) if len(unit.parts) > FACTOR)
    return due(units) or next((Run(number, number + 1) for number in many), None)


def prepare(store: Store, units: Sequence[IndexUnit], run: Run) -> Joint:
    """Write the joint unit, or take it (or its part) from an earlier call."""
    inputs, keep_index = inputs_of(store, units, run), run.end - run.first == 1
    if keep_index:  # it knows entries by their numbers: none may leave
        inputs = replace(inputs, removed=BitMap())
    folder = folder_for(store.path, inputs.parts, inputs.removed)
    part = joint_part(folder, lambda new, final: join_into(new, final, inputs))
    unit = IndexUnit(units[run.first].index, (part,)) if keep_index else joint_index(store, folder, part)
    dropped = sum(one.entries for one in inputs.parts) - part.entries
    return Joint(folder, unit, tuple(one.name for one in inputs.parts), inputs.removed, dropped)


def folder_for(path: Path, parts: Sequence[PartRecord], removed: BitMap) -> Path:
    """A folder whose name depends on what is joined in it; other unfinished work is deleted."""
    content = json.dumps([as_json(part) for part in parts]).encode() + removed.serialize()
    folder = path / FOLDER / hashlib.sha256(content).hexdigest()[:16]
    if folder.parent.is_dir():
        for other in folder.parent.iterdir():
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def joint_part(folder: Path, join: Callable[[Path, Path], PartRecord]) -> PartRecord:
    final, noted = folder / PART, folder / PART_RECORD
    if noted.is_file() and final.is_dir():
        return read_part_record(folder)
    noted.unlink(missing_ok=True)
    shutil.rmtree(final, ignore_errors=True)
    part = join(new_folder(final), final)
    write_json(noted, as_json(part))
    return part


def joint_index(store: Store, folder: Path, part: PartRecord) -> IndexUnit:
    """The part with its index, as noted down when both are on disk."""
    noted = folder / UNIT
    if noted.is_file():
        index = IndexRecord.from_json(json.loads(noted.read_text()))
        if all((folder / name).is_file() for name in index.files()):
            return IndexUnit(index, (part,))
    unit = indexed(store, [part], folder)
    write_json(noted, as_json(unit.index))
    return unit


def place(path: Path, joint: Joint) -> bool:
    """Replace the inputs by the joint unit; False if the store has changed too much in the meantime."""
    with changing(path, patience=PATIENCE) as store:
        units = units_of(store.manifest)
        run = where_it_goes(store, units, joint)
        if run is not None:
            unit = moved(path, joint, store.manifest.version, keep_index=run.end - run.first == 1)
            removed = less(store.manifest.removed, joint.dropped)
            recommit(store, **manifest_fields([*units[: run.first], unit, *units[run.end :]], removed))
    shutil.rmtree(joint.folder, ignore_errors=True)
    return run is not None


def where_it_goes(store: Store, units: Sequence[IndexUnit], joint: Joint) -> Run | None:
    """The units with exactly the parts that were joined, if everything left out has been removed from them."""
    names = [tuple(part.name for part in unit.parts) for unit in units]
    for first in range(len(units)):
        for end in range(first + 1, len(units) + 1):
            if sum(names[first:end], ()) == joint.replaces:
                gone = inputs_of(store, units, Run(first, end)).removed
                return Run(first, end) if joint.removed.issubset(gone) else None
            if len(sum(names[first:end], ())) >= len(joint.replaces):
                break
    return None


def moved(path: Path, joint: Joint, version: int, *, keep_index: bool) -> IndexUnit:
    """Give the files of a joint unit names of the store."""
    index, number = joint.unit.index, f"{next_part(path):06d}"
    part = replace(joint.unit.parts[0], name=number)
    (joint.folder / PART / PART_RECORD).unlink(missing_ok=True)  # it is for builds, and names the part as it was
    rename_durably(joint.folder / PART, path / PARTS / number)
    if index.file and not keep_index:
        name = unused_name(path, version)
        for kind in (str, trained_name, lists_name):
            if (joint.folder / kind(INDEX)).exists():
                rename_durably(joint.folder / kind(INDEX), path / kind(name))
        index = replace(index, name=name)
    return IndexUnit(index, (part,))
