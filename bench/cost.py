"""What retrieval costs: translating with it and without it, the same output each time, whatever the memory holds."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bench.memories import SearchedOnly
from bench.ratios import compared, speeds
from bench.systems import by_knnmt
from bench.translating import Plan, in_order_of_length, read_text, share_threads
from knnmt import Translator
from knnmt.mixing.neighbours import Neighbours
from knnmt.retrieval.searchers import IndexedEntries
from knnmt.store.datastore import Store
from knnmt.translate.settings import TranslateSettings
from knnmt.translate.translator import model_of_store

HARDLY = 1e-9  # the weight of neighbours that are found, mixed in, and change nothing


class Memory(SearchedOnly):
    """A store's entries and copies of them, each with its original's token, searched as those of a store are."""

    def __init__(self, searcher: IndexedEntries, tokens: NDArray[np.int32]) -> None:
        super().__init__(searcher.entries)
        self.searcher = searcher
        self.values = np.resize(tokens, self.entries).astype(np.int64)

    def search(self, queries: NDArray[np.float32], k: int) -> Neighbours:
        distances, entries = self.searcher.search(queries, k)
        none = entries < 0
        tokens = np.where(none, 0, self.values[np.where(none, 0, entries)])
        return Neighbours(np.where(none, np.inf, distances), entries, tokens)


def cost_of_retrieval(store: Store, plan: Plan, k: int) -> Callable[[IndexedEntries], dict[str, Any]]:
    """A function that says how much of its speed the model that made the store keeps, given what is searched."""
    share_threads(plan.threads or torch.get_num_threads())
    model = model_of_store(store, plan.model)
    text = in_order_of_length(read_text(plan), model).sources
    batch, beam = plan.batches[0], plan.beams[0]
    batches = [text[first : first + batch] for first in range(0, len(text), batch)]

    def work(translator: Translator) -> int:
        return sum(one.tokens for some in batches for one in by_knnmt(translator, some, beam))

    def measure(searcher: IndexedEntries) -> dict[str, Any]:
        memory = Memory(searcher, store.values)
        translators = {
            "without": Translator(model, None, TranslateSettings(weight=0.0)),
            "with": Translator(model, memory, TranslateSettings(k=k, weight=HARDLY)),
        }
        measured = speeds({name: partial(work, one) for name, one in translators.items()}, plan.repeats)
        found = compared(measured["with"], measured["without"])
        return {"keeps": found["ratio"], "keeps_lowest": found["lowest"], "keeps_highest": found["highest"]}

    return measure
