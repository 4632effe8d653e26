"""API keys and what they allow: roles, rates, stores and filters.

A key is shown once, when it is made. The file holds its SHA-256 alone; keys have 256 random bits, so that a slow hash
would add nothing.
"""

import hashlib
import hmac
import json
import math
import secrets
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from knnmt.errors import SettingsError
from knnmt.files import write_json
from knnmt.service.failures import BadRequest, Forbidden, TooFast
from knnmt.store.filters import Condition

ROLES = ("translate", "correct", "admin")  # each may do what those before it may
PREFIX = "knnmt-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The rights of one caller. `stores` None: all; `filters` apply to everything that the caller reads or writes."""

    name: str
    role: str = "translate"
    rate: int | None = None  # requests a minute
    stores: tuple[str, ...] | None = None
    filters: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise SettingsError(f"--role {self.role}: must be one of {', '.join(ROLES)}")
        if self.rate is not None and self.rate < 1:
            raise SettingsError(f"--rate {self.rate}: must be at least 1 request a minute")
        for text in self.filters:
            Condition.parse(text)

    def need(self, role: str) -> None:
        """Raise where the caller's role is below this one."""
        if ROLES.index(self.role) < ROLES.index(role):
            raise Forbidden(f"this needs the role {role!r}, and the key has {self.role!r}")

    def sees(self, store: str) -> bool:
        return self.stores is None or store in self.stores


@dataclass(frozen=True, slots=True)
class KeyRecord:
    sha256: str
    access: Access


class KeyFile:
    """The keys of a file, read again when it changes, so that a key can be taken away while the server runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int] | None = None
        self._records: list[KeyRecord] = []
        self.records()

    def records(self) -> list[KeyRecord]:
        try:
            status = self.path.stat()
        except OSError as error:
            raise SettingsError(f"--api-keys {self.path}: {(error.strerror or str(error)).lower()}") from error
        if (status.st_mtime_ns, status.st_size) != self._seen:
            self._records = read_api_keys(self.path)
            self._seen = (status.st_mtime_ns, status.st_size)
        return self._records

    def access_of(self, key: str) -> Access | None:
        """The access of a key. All hashes are compared in constant time, so that timing reveals nothing."""
        digest, found = digest_of(key), None
        for record in self.records():
            if hmac.compare_digest(record.sha256, digest):
                found = record.access
        return found


def digest_of(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def read_api_keys(path: Path) -> list[KeyRecord]:
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))["keys"]
        return [KeyRecord(one["sha256"], access_from(one)) for one in listed]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingsError(f"--api-keys {path}: not a file of keys ({error}); `knnmt keys` makes one") from error


def access_from(record: dict[str, Any]) -> Access:
    stores = record.get("stores")
    return Access(
        name=str(record["name"]),
        role=record.get("role", "translate"),
        rate=record.get("rate"),
        stores=None if stores is None else tuple(stores),
        filters=tuple(record.get("filters", ())),
    )


def add_api_key(path: Path, access: Access) -> str:
    """Put a new key into the file; returns the key, which is in no file."""
    records = read_api_keys(path) if path.exists() else []
    if any(record.access.name == access.name for record in records):
        raise SettingsError(f"--name {access.name}: {path} has a key of that name; remove it first")
    key = PREFIX + secrets.token_urlsafe(32)
    write_api_keys(path, [*records, KeyRecord(digest_of(key), access)])
    return key


def remove_api_key(path: Path, name: str) -> None:
    records = read_api_keys(path)
    kept = [record for record in records if record.access.name != name]
    if len(kept) == len(records):
        known = ", ".join(record.access.name for record in records) or "none"
        raise SettingsError(f"--name {name}: {path} has no key of that name; it has {known}")
    write_api_keys(path, kept)


def write_api_keys(path: Path, records: list[KeyRecord]) -> None:
    write_json(path, {"keys": [{**asdict(record.access), "sha256": record.sha256} for record in records]})
    path.chmod(0o600)


class Rates:
    """A bucket of requests a caller, refilled at the caller's rate."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}  # by caller: requests left, and when that was
        self._lock = threading.Lock()

    def take(self, access: Access) -> None:
        if access.rate is None:
            return
        with self._lock:
            now = time.monotonic()
            left, then = self._left.get(access.name, (float(access.rate), now))
            left = min(float(access.rate), left + (now - then) * access.rate / 60)
            if left < 1:
                raise TooFast(math.ceil((1 - left) * 60 / access.rate))
            self._left[access.name] = (left - 1, now)


@dataclass(slots=True)
class Gate:
    """Turns a key into what its owner may do. Without a file of keys everyone on this machine is `anyone`.

    Whoever comes from elsewhere without a key, through a proxy or with `--public`, may translate, and is told from
    others by the address.
    """

    keys: KeyFile | None
    anyone: Access
    rates: Rates = field(default_factory=Rates)

    def admit(self, key: str | None, *, counted: bool = True, elsewhere: str | None = None) -> Access:
        if self.keys is None:
            return self.anyone if elsewhere is None else Access(name=f"{self.anyone.name} at {elsewhere}")
        if not key:
            raise BadRequest("Please contact the server operator to get an API key")
        access = self.keys.access_of(key)
        if access is None:
            raise Forbidden("Invalid API key")
        if counted:
            self.rates.take(access)
        return access
