"""The output file of each document."""

from collections.abc import Sequence
from pathlib import Path

from knnmt.documents.kinds import is_same_kind
from knnmt.errors import SettingsError
from knnmt.files import check_writable
from knnmt.text.inputs import ending_of


def journal_of(target: Path) -> Path:
    """Where the progress of a document's translation is kept."""
    return target.with_name(f".{target.name}.journal")


def with_destinations(files: Sequence[Path], place: Path) -> list[tuple[Path, Path]]:
    """Each document with its target: the place itself, or of the same name in it where it is a folder."""
    if len(files) == 1 and not place.is_dir():
        return [(files[0], place)]
    if not place.is_dir():
        raise SettingsError(f"-o {place}: several documents need a folder that exists")
    return [(file, place / file.name) for file in files]


def check_destinations(jobs: Sequence[tuple[Path, Path]], *, force: bool = False, resume: bool = False) -> None:
    """Everything that can be wrong with where things go is known before any work."""
    targets: set[Path] = set()
    for source, target in jobs:
        check_target(source, target, over=force or resume)
        if target.resolve() in targets:
            raise SettingsError(f"-o {target}: two documents would be written there")
        targets.add(target.resolve())
    for source, target in jobs:
        if source.resolve() in targets:
            raise SettingsError(f"-o {target}: it is one of the documents that are translated; write it elsewhere")


def check_target(source: Path, target: Path, *, over: bool) -> None:
    check_writable(target, "-o")
    if source.exists() and target.exists() and source.samefile(target):
        raise SettingsError(f"-o {target}: it is the document itself; write the translation elsewhere")
    if not is_same_kind(source, target):
        raise SettingsError(f"-o {target}: must end in {ending_of(source) or 'nothing'}, as {source} does")
    if target.exists() and not over:
        raise SettingsError(f"-o {target}: there already; --force writes over it")
    if journal_of(target).exists() and not over:
        raise SettingsError(f"-o {target}: a run was stopped there; --resume goes on with it, --force starts over")
