"""What the benchmarks' own retrievers have in common: they are searched, never explained."""

from collections.abc import Sequence

from knnmt.retrieval.retriever import Located


class SearchedOnly:
    """All of a retriever but its search."""

    def __init__(self, entries: int) -> None:
        self.entries = entries
        self.fingerprint = ""
        self.signature = {"store": "bench", "index": "bench"}

    def locate(self, entries: Sequence[int]) -> list[Located]:
        raise NotImplementedError(f"{len(entries)} entries: a benchmark explains nothing")
