"""Keeps at most a given number of entries of each target token, spread evenly over the text.

A few tokens, such as the full stop and the end of the sentence, make up much of a datastore, and the model needs little
help with them. Of a token that occurs `total` times, every `total / cap`-th occurrence is kept. The choice depends only
on the text. So a build that was stopped continues with the same choice, and every corpus keeps its share. Two numbers
per token are held in memory.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from knnmt.layout.manifest import Manifest
from knnmt.layout.parts import EncodedSegment


@dataclass(slots=True)
class Downsampling:
    """How often each token occurs, in the whole text and so far."""

    cap: int
    totals: Counter[int] = field(default_factory=Counter)
    seen: Counter[int] = field(default_factory=Counter)

    def count(self, targets: Iterable[Sequence[int]], done: int) -> None:
        """Read the tokens of the whole text once; the first `done` segments are in the store already."""
        for number, target in enumerate(targets):
            self.totals.update(target)
            if number < done:
                self.seen.update(target)

    def thin(self, segments: Iterable[EncodedSegment]) -> list[EncodedSegment]:
        """The next segments of the text, each with the positions that become entries."""
        return [replace(segment, kept=self.kept_of(segment.target)) for segment in segments]

    def kept_of(self, target: Sequence[int]) -> tuple[int, ...]:
        return tuple(position for position, token in enumerate(target) if self.keeps_next(token))

    def keeps_next(self, token: int) -> bool:
        """Whether to keep the next occurrence of a token: exactly `cap` of them are kept, or all if there are fewer."""
        number = self.seen[token]
        self.seen[token] += 1
        return number * self.cap % self.totals[token] < self.cap

    def to_json(self) -> dict[str, Any]:
        """The manifest's `downsampling`."""
        dropped = sum(max(0, total - self.cap) for total in self.totals.values())
        return {"cap": self.cap, "dropped": dropped}


def merged_record(ours: Manifest, theirs: Manifest) -> dict[str, Any] | None:
    """The `downsampling` of two stores as one: each had its cap, and together they may have twice as many entries."""
    return record_of([*capped_texts(ours), *capped_texts(theirs)])


def capped_texts(manifest: Manifest) -> list[dict[str, Any]]:
    """The texts that have their own cap."""
    record = manifest.downsampling
    if record is None or "merged" in record:
        return list(record["merged"]) if record else []
    return [{"corpora": [corpus["name"] for corpus in manifest.corpora], **record}]


def record_for(record: dict[str, Any] | None, corpora: set[str]) -> dict[str, Any] | None:
    """The `downsampling` record of a store that has only these corpora left. Names of others must not stay."""
    if record is None or "merged" not in record:
        return record
    left = [text | {"corpora": [name for name in text["corpora"] if name in corpora]} for text in record["merged"]]
    return record_of([text for text in left if text["corpora"]])


def record_of(texts: list[dict[str, Any]]) -> dict[str, Any] | None:
    dropped = sum(text["dropped"] for text in texts)
    return {"cap": None, "dropped": dropped, "merged": texts} if texts else None
