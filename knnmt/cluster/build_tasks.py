"""What a worker does for a build: it makes a part from a slice, or finds the clusters of a part's keys.

A result is written under a name of this attempt and then renamed. So a worker that was believed dead does no harm if it
is still running beside its replacement.
"""

import shutil
import socket
import uuid
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np

from knnmt.cluster.slices import read_slice
from knnmt.errors import ClusterError, ModelError
from knnmt.files import flush_to_disk
from knnmt.layout.manifest import PARTS
from knnmt.layout.part_files import map_file
from knnmt.layout.records import ModelRecord
from knnmt.models.translation_model import TranslationModel, load_model
from knnmt.search.centroids import Centroids
from knnmt.search.distances import blocks
from knnmt.store.building import make_part

Report = Callable[[int, int], None]  # segments and tokens done so far


def make_part_of_slice(file: Path, final: Path, model: ModelRecord, batch_tokens: int, report: Report) -> None:
    """Make the part of a slice and put it at `final`, unless another attempt was faster."""
    check_shared(file)
    one, done = read_slice(file), [0, 0]
    attempt = final.with_name(f".{final.name}.{uuid.uuid4().hex}")

    def advance(segments: int, tokens: int) -> None:
        done[0], done[1] = done[0] + segments, done[1] + tokens
        report(*done)

    try:
        make_part(attempt, loaded(*plainly(model)), one, batch_tokens, advance)
        put(attempt / PARTS / f"{one.number:06d}", final)
    finally:
        shutil.rmtree(attempt, ignore_errors=True)


def assign_part(centroids: Path, keys: Path, final: Path) -> None:
    """Write the cluster of each key of a part to the file `final`."""
    check_shared(centroids)
    among = centroids_in(str(centroids), centroids.stat().st_mtime_ns)
    owners = [among.owners(block) for block in blocks([map_file(keys)])]
    attempt = final.with_name(f".{uuid.uuid4().hex}.npy")
    np.save(attempt, np.concatenate([np.empty(0, np.int64), *owners]))
    flush_to_disk(attempt)
    attempt.replace(final)


def put(made: Path, final: Path) -> None:
    """Rename a folder into place. If there is one already, it has the same content."""
    try:
        made.rename(final)
    except OSError:
        if not final.is_dir():
            raise
    flush_to_disk(final.parent)


def check_shared(file: Path) -> None:
    if not file.is_file():
        raise ClusterError(f"{file}: not seen on {socket.gethostname()}; every machine must share the store's folder")


def plainly(model: ModelRecord) -> tuple[str, str, str, str | None, str | None, str]:
    return model.name, model.fingerprint, model.key_site, model.source_lang, model.target_lang, model.source_prefix


@lru_cache(1)
def loaded(
    name: str, fingerprint: str, key_site: str, source_lang: str | None, target_lang: str | None, prefix: str
) -> TranslationModel:
    """The model of a build, loaded once in each worker."""
    languages = {"source_lang": source_lang, "target_lang": target_lang}
    model = load_model(name, **languages, source_prefix=prefix, key_site=key_site)
    if model.fingerprint != fingerprint:
        raise ModelError(f"--model {name}: another model on {socket.gethostname()} than where the build was started")
    return model


@lru_cache(1)
def centroids_in(file: str, _: int) -> Centroids:
    return Centroids(np.load(file))
