"""Limits of a request: its size, and how long it may wait."""

from dataclasses import dataclass

from knnmt.errors import SettingsError

FLAGS = {
    "characters": "--limit-characters",
    "texts": "--limit-texts",
    "upload_bytes": "--limit-upload",
    "deadline": "--deadline",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Each is generous for a person and for a program that sends batches."""

    characters: int = 50_000  # of all texts of a request together
    texts: int = 1_000
    alternatives: int = 5
    body_bytes: int = 4 << 20
    upload_bytes: int = 64 << 20
    waiting_characters: int = 20_000_000  # of all requests; more wait outside the queue
    deadline: float = 60.0  # seconds from a request's arrival

    def __post_init__(self) -> None:
        for name, flag in FLAGS.items():
            if not getattr(self, name) > 0:
                raise SettingsError(f"{flag} {getattr(self, name)}: must be above 0")
