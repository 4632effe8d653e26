"""A mixer that uses a head: learned, adaptive or robust."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from knnmt.engine.projection import Ranking
from knnmt.errors import StoreError
from knnmt.mixing.coverage import Coverage
from knnmt.mixing.evidence import LEAST, NEIGHBOURS, RANKED, SIGNALS, Evidence
from knnmt.mixing.heads import HEADS, NEVER, Head
from knnmt.mixing.mixer import Needs
from knnmt.mixing.mixture import Mixture
from knnmt.mixing.neighbours import Neighbours

FORMAT = "1"
NOTES = "knnmt"  # the field of the file that says what it is
LATER = ("limits",)  # what heads of earlier versions do not have


class HeadMixer:
    """A head, the coverage of the memory that it looks at, and the variance of that memory's keys."""

    def __init__(
        self,
        head: Head,
        coverage: Coverage,
        variance: float,
        *,
        ignored: frozenset[int] = frozenset(),
        entries: int,
        always: bool = False,
    ) -> None:
        self.head = head.eval().requires_grad_(False)
        self.coverage, self.variance, self.ignored = coverage, variance, ignored
        self.needs = Needs(min(NEIGHBOURS, entries), RANKED)
        self.signature = f"mixing:{head.kind}@{digest(head)}|k:{NEIGHBOURS}"
        self.always = always  # search at every step

    def signals(self, sources: Sequence[Sequence[int]]) -> torch.Tensor:
        """The shares of each sentence's n-grams that the memory has, and what makes a search worthwhile in it."""
        return self.with_limits(self.shares(sources))

    def with_limits(self, shares: torch.Tensor) -> torch.Tensor:
        worthwhile = torch.zeros(len(shares), 1) if self.always else self.head.worthwhile(shares)
        return torch.cat([shares, worthwhile], dim=1)

    def shares(self, sources: Sequence[Sequence[int]]) -> torch.Tensor:
        """The shares of each sentence's n-grams that the memory has, [sentences, SIGNALS]."""
        rows = [self.coverage.shares([token for token in source if token not in self.ignored]) for source in sources]
        return torch.tensor(rows, dtype=torch.float).reshape(len(sources), SIGNALS)

    def asks(self, ranking: Ranking, signals: torch.Tensor) -> torch.Tensor:
        """Where the gate expects the memory to make a difference."""
        signals = signals.to(ranking.logits.device)
        may_ask = signals[:, SIGNALS] < NEVER
        if not may_ask.any():
            return may_ask
        best = (ranking.logits[:, :RANKED] - ranking.total).clamp(LEAST, 0.0)
        return self.head.foreseen(best, signals[:, :SIGNALS]) >= signals[:, SIGNALS]

    def mixture(self, found: Neighbours, ranking: Ranking, logits: torch.Tensor, signals: torch.Tensor) -> Mixture:
        evidence = Evidence.of(padded(found), ranking, padded_logits(logits), signals[:, :SIGNALS], self.variance)
        judged = self.head(evidence)
        found_of_each = logits.shape[1]  # a small memory has fewer than the head expects
        tokens, weights = evidence.tokens[:, :found_of_each], judged.weights[:, :found_of_each]
        temperature = judged.temperature * self.variance
        groups = evidence.groups[:, :found_of_each]
        return Mixture(tokens, weights, judged.weight, temperature, lambda: self.head.reasons(evidence), groups)


def padded(found: Neighbours) -> Neighbours:
    """As many neighbours as a head expects; those that a small memory does not have are infinitely far."""
    missing = NEIGHBOURS - found.tokens.shape[1]
    if missing <= 0:
        return found
    none = Neighbours.none(len(found.tokens), missing)
    return found.beside(none)


def padded_logits(logits: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(logits, (0, max(0, NEIGHBOURS - logits.shape[1])), value=-torch.inf)


def digest(head: Head) -> str:
    """A hash of the weights, which identifies a head in every run."""
    hashed = hashlib.sha256(head.kind.encode())
    for name, tensor in sorted(head.state_dict().items()):
        hashed.update(name.encode() + tensor.detach().contiguous().numpy().tobytes())
    return hashed.hexdigest()[:8]


def head_bytes(head: Head, about: dict[str, Any]) -> bytes:
    """A file of its weights; `about` says how it was made."""
    tensors = {name: tensor.detach().contiguous() for name, tensor in head.state_dict().items()}
    notes = {"format": FORMAT, "kind": head.kind, "about": about}
    content: bytes = save(tensors, {NOTES: json.dumps(notes, sort_keys=True)})  # one field: several have no order
    return content


def read_head(file: Path) -> tuple[Head, dict[str, Any]]:
    """A head and how it was made."""
    try:
        with safe_open(file, "pt") as opened:
            metadata = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - no dictionary
        notes = json.loads(metadata.get(NOTES, "{}"))
        if notes.get("format") != FORMAT or notes.get("kind") not in HEADS:
            raise StoreError(f"{file}: mixing of another version of knnmt; run `knnmt fit` again")
        head = HEADS[notes["kind"]]()
        usual = {name: value for name, value in head.state_dict().items() if name in LATER}
        head.load_state_dict(usual | tensors)
        return head, dict(notes["about"])
    except (OSError, SafetensorError, RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{file}: damaged ({error}); restore it from a copy or run `knnmt fit`") from error
