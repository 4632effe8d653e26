"""Changing a store safely: one writer at a time, each change one new manifest, earlier ones kept.

A change first writes its files under names that nobody uses, then the manifest that names them. So a reader, or whoever
comes after a writer that was killed, finds the store as it was before the change or as it is after it.
"""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from knnmt.errors import SettingsError, StoreError
from knnmt.files import write_json
from knnmt.release import __version__
from knnmt.store.datastore import Store
from knnmt.store.manifest import MANIFEST, PARTS, Manifest, files_of, manifest_in, read_manifest
from knnmt.store.parts import now

VERSIONS = "versions"
LOCK = ".lock"
VERSIONS_KEPT = 10
# Names that a store gives. What is called otherwise is somebody else's: it is neither read nor removed.
VERSION_NAME = re.compile(r"\d{6,}\.json")
PART_NAME = re.compile(r"\d{6,}|\.\d{6,}\.partial")
FILE_NAME = re.compile(
    r"index(-\d{6,}(-\d+)?)?(\.trained)?\.faiss|removed-\d+\.npy|\.(index|removed|manifest).*\.partial"
)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other writers out. The system frees the lock of a process that ends in any way, a kill included."""
    try:
        lock = FileLock(path / LOCK, timeout=0)
        lock.acquire()
    except Timeout as error:
        raise StoreError(f"{path}: being changed by another process; try again when it is done") from error
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({(error.strerror or str(error)).lower()})") from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def changing(path: Path) -> Iterator[Store]:
    """The store as it is, for a change that ends with `commit`; what a killed change left behind is cleared away."""
    read_manifest(path)  # no lock file in a folder that is no store
    with locked(path):
        store = Store.open(path)
        clear(path)
        try:
            yield store
        except BaseException:
            clear(path)
            raise


def commit(store: Store, change: str, **fields: Any) -> Store:
    """Make the changed manifest the store's next version."""
    current = read_manifest(store.path)
    if current.version != store.manifest.version:
        raise StoreError(f"{store.path}: changed by someone else in the meantime; run the same command again")
    manifest = replace(
        store.manifest, **fields, version=current.version + 1, change=change, changed=now(), knnmt=__version__
    )
    write_version(store.path, manifest)
    clear(store.path)
    return Store.open(store.path)


def write_version(path: Path, manifest: Manifest) -> None:
    """The second of the two files decides: until it is there, the version before is the store."""
    (path / VERSIONS).mkdir(exist_ok=True)
    write_json(version_file(path, manifest.version), manifest.to_json())
    write_json(path / MANIFEST, manifest.to_json())


def version_file(path: Path, version: int) -> Path:
    return path / VERSIONS / f"{version:06d}.json"


def versions_of(store: Store) -> list[Manifest]:
    """The versions that are kept, oldest first; the last is the store as it is."""
    numbers = range(store.manifest.oldest, store.manifest.version)
    kept = [manifest_in(file) for file in version_files(store.path) if int(file.stem) in numbers]
    return [*kept, store.manifest]


def version_files(path: Path) -> list[Path]:
    """The files of versions, oldest first; what else may lie in the folder is not ours."""
    return sorted(file for file in (path / VERSIONS).glob("*.json") if VERSION_NAME.fullmatch(file.name))


def roll_back(path: str | Path, version: int) -> Store:
    """Make an earlier version the newest one."""
    with changing(Path(path)) as store:
        earlier = {manifest.version: manifest for manifest in versions_of(store)[:-1]}
        if version not in earlier:
            known = ", ".join(map(str, earlier)) or "there is none"
            raise SettingsError(f"{path}: has no earlier version {version} to go back to; kept: {known}")
        numbers = store.manifest
        manifest = replace(earlier[version], version=numbers.version, oldest=numbers.oldest)
        back = replace(store, manifest=manifest)
        return commit(back, f"rolled back to version {version}")


def clear(path: Path) -> None:
    """Remove versions too old to keep, versions that never came to be, and files that no version names."""
    current = read_manifest(path)
    for file in version_files(path):
        if not max(current.oldest, current.version - VERSIONS_KEPT + 1) <= int(file.stem) <= current.version:
            file.unlink()
    kept = [current, *map(manifest_in, version_files(path))]
    needed = {file for manifest in kept for file in files_of(path, manifest)}
    folders = {file.parent for file in needed}
    for part in (path / PARTS).iterdir():
        if part not in folders and PART_NAME.fullmatch(part.name) and part.is_dir():
            shutil.rmtree(part)
    for file in path.iterdir():
        if file not in needed and FILE_NAME.fullmatch(file.name) and file.is_file():
            file.unlink()
