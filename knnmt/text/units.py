"""What every reader returns: a pair of texts with metadata."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache

Languages = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True)
class Unit:
    """One pair as it is in its file. A missing side is empty."""

    source: str
    target: str
    created: str = ""  # ISO 8601 in UTC; empty where the file does not say
    metadata: dict[str, str] = field(default_factory=dict)
    unfinished: str = ""  # why the file itself does not call this a translation; empty where it does


def joined_values(items: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Values by name. Several values of one name become lines."""
    lines: dict[str, list[str]] = {}  # joined once at the end: text that grows line by line takes quadratic time
    for name, value in items:
        lines.setdefault(name, []).append(value)
    return {name: "\n".join(values) for name, values in lines.items()}


def described(source: str, target: str, fields: dict[str, str], more: dict[str, str]) -> Unit:
    """A unit from named fields, and from further metadata whose names may repeat those of fields.

    `created` becomes the unit's time if it is one. `corpus` is left out: the name given to the file replaces it.
    """
    created = utc_time(fields.get("created", ""))
    metadata = {name: value for name, value in fields.items() if not (created and name == "created")} | more
    metadata.pop("corpus", None)
    return Unit(source, target, created, metadata)


@lru_cache(maxsize=1024)
def utc_time(text: str) -> str:
    """`20240501T120000Z` or `2024-05-01 14:00+02:00` as `2024-05-01T12:00:00Z`; empty where it is no time."""
    try:
        time = datetime.fromisoformat(text.strip())
        time = time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return ""
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")
