"""Opens what `--store` names: a folder, or `house=./house:0.7`, a folder with a name and a weight."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from knnmt.errors import SettingsError
from knnmt.store.datastore import Store

StorePaths = str | Path | Sequence[str | Path]


@dataclass(frozen=True, slots=True)
class Memory:
    """A datastore in use: its name, and the factor on the mass of its neighbours."""

    store: Store
    name: str
    weight: float = 1.0


def open_memories(given: StorePaths) -> list[Memory]:
    """Open one store or several."""
    return [open_memory(one) for one in ([given] if isinstance(given, str | Path) else given)]


def open_memory(given: str | Path) -> Memory:
    """Open a store. A path that exists is taken as it is, whatever characters it has."""
    if isinstance(given, Path) or Path(given).exists():
        return Memory(Store.open(given), str(given))
    matched = re.fullmatch(r"(?:([\w.-]+)=)?(.+?)(?::([^:/\\]*))?", given, re.DOTALL)
    if not matched:
        raise SettingsError(f"--store {given}: must be a folder, or NAME=FOLDER:WEIGHT")
    name, folder, weight = matched.groups()
    return Memory(Store.open(folder), name or folder, weight_of(weight, given))


def weight_of(text: str | None, given: str) -> float:
    if text is None:
        return 1.0
    try:
        weight = float(text)
    except ValueError as error:
        raise SettingsError(f"--store {given}: {text!r} is not a weight; write NAME=FOLDER:0.7") from error
    if not 0 < weight < float("inf"):
        raise SettingsError(f"--store {given}: a store's weight must be above 0")
    return weight
