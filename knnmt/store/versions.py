"""Changes a store safely: one writer at a time, each change one new manifest, earlier manifests kept.

A change first writes its files under new names, then the manifest that names them. So a reader, or the next writer
after one that was killed, finds the store as it was before the change or after it.
"""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from knnmt.errors import SettingsError, StoreError
from knnmt.files import replace_durably
from knnmt.layout.manifest import FORMAT, MANIFEST, PARTS, Manifest, as_text, manifest_in, read_manifest
from knnmt.layout.parts import now
from knnmt.release import __version__
from knnmt.store.datastore import Store

VERSIONS = "versions"
LOCK = ".lock"
PATIENCE = 10.0  # seconds that a writer waits for another: most changes, and joining in the background, are short
SHORTLY = 1.0  # seconds that one waits whose work is long for another whose work is long
VERSIONS_KEPT = 10
# Names that a store gives. What is called otherwise is somebody else's: it is neither read nor removed.
VERSION_NAME = re.compile(r"\d{6,}\.json")
PART_NAME = re.compile(r"\d{6,}|\.\d{6,}\.partial")
FILE_NAME = re.compile(
    r"index(-\d{6,}(-\d+)?)?(\.trained)?\.(faiss|lists)|removed-\d+\.(npy|roaring)"
    r"|mixing-\d+\.safetensors|coverage-\d+\.roaring"
    r"|\.(index|removed|manifest|mixing|coverage).*\.partial(\.blocks)?"
)


@contextmanager
def locked(path: Path, name: str = LOCK, *, patience: float | None = None) -> Iterator[None]:
    """Keep other writers out. The system releases the lock when the process ends in any way, even if it is killed."""
    try:
        lock = FileLock(path / name, timeout=PATIENCE if patience is None else patience)
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
def changing(path: Path, *, patience: float | None = None) -> Iterator[Store]:
    """The store for a change that ends with `commit`. What a killed change left behind is deleted first."""
    read_manifest(path)  # no lock file in a folder that is no store
    with locked(path, patience=patience):
        store = Store.open(path)
        try:
            yield store
        except BaseException:
            clear(path)
            raise


def recommit(store: Store, **fields: Any) -> Store:
    """Replace files by others with the same content for a reader; the version stays the same."""
    write_version(store.path, replace(store.manifest, **fields, knnmt=__version__, format=FORMAT))
    clear(store.path)
    return Store.open(store.path)


def commit(store: Store, change: str, **fields: Any) -> Store:
    """Make the changed manifest the store's next version."""
    current = read_manifest(store.path)
    if current.version != store.manifest.version:
        raise StoreError(f"{store.path}: changed by someone else in the meantime; run the same command again")
    manifest = replace(
        store.manifest,
        **fields,
        version=current.version + 1,
        change=change,
        changed=now(),
        knnmt=__version__,
        format=FORMAT,
    )
    write_version(store.path, manifest)
    clear(store.path)
    return Store(store.path, manifest)


def write_version(path: Path, manifest: Manifest) -> None:
    """Write a manifest with two renames. The second one decides; before it, the previous version is the store."""
    (path / VERSIONS).mkdir(exist_ok=True)
    replace_durably([version_file(path, manifest.version), path / MANIFEST], as_text(manifest).encode())


def version_file(path: Path, version: int) -> Path:
    return path / VERSIONS / f"{version:06d}.json"


def versions_of(store: Store) -> list[Manifest]:
    """The versions that are kept, oldest first; the last is the store as it is."""
    numbers = range(store.manifest.oldest, store.manifest.version)
    kept = [manifest_in(file) for file in version_files(store.path) if int(file.stem) in numbers]
    return [*kept, store.manifest]


def version_files(path: Path) -> list[Path]:
    """The files of versions, oldest first; other files in the folder are ignored."""
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
    """Delete versions that are too old, unfinished ones, and files that no version names."""
    current = read_manifest(path)
    for file in version_files(path):
        if not max(current.oldest, current.version - VERSIONS_KEPT + 1) <= int(file.stem) <= current.version:
            file.unlink()
    needed = names_in(current).union(*(names_of(file) for file in version_files(path)))
    for part in (path / PARTS).iterdir():
        if part.name not in needed and PART_NAME.fullmatch(part.name) and part.is_dir():
            shutil.rmtree(part)
    for file in path.iterdir():
        if file.name not in needed and FILE_NAME.fullmatch(file.name) and file.is_file():
            file.unlink()


def names_in(manifest: Manifest) -> frozenset[str]:
    """The parts and files that a manifest needs."""
    files = [name for index in manifest.indexes for name in index.files()]
    files += manifest.mixing.files if manifest.mixing else []
    removed = [manifest.removed.name] if manifest.removed and manifest.removed.name else []
    return frozenset([*(part.name for part in manifest.parts), *files, *removed])


def names_of(file: Path) -> frozenset[str]:
    """The same for an earlier version. Its file is replaced and never changed, so it is read once."""
    status = file.stat()
    return names_read(file, status.st_ino, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=4 * VERSIONS_KEPT)
def names_read(file: Path, *_: int) -> frozenset[str]:
    return names_in(manifest_in(file))
