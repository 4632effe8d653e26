"""A store with another kind of index: its parts are linked to, and nothing of it is changed."""

import shutil
from dataclasses import replace
from pathlib import Path

from knnmt.files import write_json
from knnmt.layout.manifest import MANIFEST, PARTS
from knnmt.store.datastore import Store
from knnmt.store.index_files import make_store_index


def reindexed(store: Store, factory: str, path: Path) -> Path:
    """Make it at `path`, with one index over all entries."""
    path.mkdir(parents=True)
    (path / PARTS).symlink_to((store.path / PARTS).resolve(), target_is_directory=True)
    if store.manifest.removed and store.manifest.removed.name:
        shutil.copy(store.path / store.manifest.removed.name, path)
    index = make_store_index(path, store.manifest.parts, factory=factory, show_progress=True)
    write_json(path / MANIFEST, replace(store.manifest, indexes=[index]).to_json())
    return path
