"""Cuts a range of entries out of an index as an index of its own. It keeps the clusters and codes.

Its distances are those of the whole index, bit for bit.
"""

from pathlib import Path
from typing import Any, cast

from knnmt.errors import StoreError
from knnmt.files import REMEDY, trained_name
from knnmt.search.coarse import inner_index
from knnmt.search.exact import ExactSearch
from knnmt.search.index import open_index, read_trained
from knnmt.search.internals import ivf_of, keys_inside, set_nprobe
from knnmt.search.library import faiss

engine = cast(Any, faiss)


class Cut:
    """A range of an index's entries, from `first` up to, and without, `end`; they keep their numbers.

    `exact` looks at every key, where the index holds keys as they are; numbers then count from `first`.
    """

    def __init__(self, file: Path, index: Any, first: int, end: int, exact: ExactSearch | None = None) -> None:
        self.file, self.index, self.first, self.end, self.exact = file, index, first, end, exact
        self.nprobe = set_nprobe(index, None)

    @classmethod
    def of(cls, file: Path, nprobe: int | None, first: int, end: int) -> "Cut | None":
        """None for an index that consists neither of lists nor of keys."""
        index = open_index(file, nprobe)
        keys = keys_inside(index)
        if keys is not None:
            return cls(file, index, first, end, ExactSearch(keys[first:end]))
        if not isinstance(inner_index(index), faiss.IndexIVF):
            return None
        keep(index, first, end, file)
        return cls(file, index, first, end)


def keep(index: Any, first: int, end: int, file: Path) -> None:
    """Leave only a range of the entries in an index's lists.

    Of lists that are memory-mapped, only what is kept comes into memory. Fast-scan lists are there as a whole before.
    """
    ivf = ivf_of(index)
    if isinstance(ivf, faiss.IndexIVFFastScan):
        index.remove_ids(engine.IDSelectorNot(engine.IDSelectorRange(first, end)))
    else:
        lists = engine.ArrayInvertedLists(ivf.nlist, ivf.code_size)
        lists.this.disown()
        kept = ivf.invlists.copy_subset_to(lists, engine.InvertedLists.SUBSET_TYPE_ID_RANGE, first, end)
        ivf.replace_invlists(lists, True)
        ivf.ntotal = index.ntotal = kept
    if index.ntotal != end - first:
        raise StoreError(f"{file}: damaged (entries {first:,} to {end:,} are not all in it); {REMEDY}")


def trained_part(file: Path, nprobe: int | None) -> Any:
    """The trained part of an index, to find clusters with. Its lists may be empty or on disk."""
    beside = file.with_name(trained_name(file.name))
    if not beside.exists():
        return open_index(file, nprobe)
    index = read_trained(beside)
    ivf_of(index).nprobe = min(nprobe or 1, ivf_of(index).nlist)
    return index
