"""What is inside a FAISS index: clusters, centroids, rotations, keys."""

import hashlib
from typing import Any

import numpy as np

from knnmt.search.centroids import Centroids
from knnmt.search.distances import Keys
from knnmt.search.library import faiss

GRAPH_CANDIDATES = 96  # centroids kept while a graph of them is searched: with fewer, BLEU falls


def has_lists(index: Any) -> bool:
    """Whether its entries are in a memory-mapped file of their own."""
    return isinstance(index, faiss.IndexIVFRaBitQ) and plain_clusters(index) is not None


def quantiser_of(index: Any) -> str | None:
    """A hash of what an index with clusters has learned: centroids, codes, rotation."""
    ivf = ivf_of(index)
    if ivf is None:
        return None
    digest = hashlib.sha256(type(ivf).__name__.encode())
    digest.update(centroids_of(faiss.downcast_index(ivf.quantizer)).data if plain_clusters(ivf) is not None else b"")
    learned = [getattr(getattr(ivf, part, None), name, None) for part, name in (("pq", "centroids"), ("sq", "trained"))]
    for vector in [*learned, *rotations_of(index)]:
        if vector is not None:
            digest.update(np.ascontiguousarray(faiss.vector_to_array(vector)).data)
    return digest.hexdigest()[:16]


def rotations_of(index: Any) -> list[Any]:
    if not isinstance(index, faiss.IndexPreTransform):
        return []
    chain: Any = index.chain
    transforms = [faiss.downcast_VectorTransform(chain.at(place)) for place in range(chain.size())]
    return [getattr(transform, name, None) for transform in transforms for name in ("A", "b")]


def plain_clusters(index: Any) -> Any:
    """The centroids' own index, a list or a graph, where keys go to the nearest of them as they are; else None."""
    if not isinstance(index, faiss.IndexIVF):
        return None
    quantizer: Any = faiss.downcast_index(index.quantizer)
    plain = isinstance(quantizer, faiss.IndexFlat | faiss.IndexHNSWFlat) and quantizer.metric_type == faiss.METRIC_L2
    return quantizer if plain else None


def found_among(quantizer: Any) -> Centroids:
    """What finds the nearest of the centroids that an index holds."""
    return Centroids(centroids_of(quantizer), list_of(quantizer))


def centroids_of(quantizer: Any) -> Keys:
    held = list_of(quantizer)
    centroids: Keys = faiss.rev_swig_ptr(held.get_xb(), held.ntotal * held.d)
    return centroids.reshape(-1, held.d)


def list_of(quantizer: Any) -> Any:
    """The list of centroids, which may have a graph over it."""
    return faiss.downcast_index(quantizer.storage) if isinstance(quantizer, faiss.IndexHNSW) else quantizer


def ivf_of(index: Any) -> Any:
    """The inverted-file index inside, or None."""
    found: Any = faiss.try_extract_index_ivf(index)
    return None if found is None else faiss.downcast_index(found)


def set_nprobe(index: Any, nprobe: int | None) -> int | None:
    """How many clusters a search visits; None for an index without clusters."""
    ivf = ivf_of(index)
    if ivf is None:
        return None
    if nprobe is not None:
        ivf.nprobe = min(nprobe, ivf.nlist)
    return int(ivf.nprobe)


def set_graph_candidates(index: Any) -> None:
    """How far a search looks around in a graph of centroids, whatever the index's file says."""
    ivf = ivf_of(index)
    quantizer: Any = None if ivf is None else faiss.downcast_index(ivf.quantizer)
    if isinstance(quantizer, faiss.IndexHNSW):
        quantizer.hnsw.efSearch = GRAPH_CANDIDATES


def keys_inside(index: Any) -> Keys | None:
    """The memory-mapped keys of an index that stores keys unquantised."""
    if not isinstance(index, faiss.IndexFlat) or index.metric_type != faiss.METRIC_L2:
        return None
    keys: Keys = faiss.rev_swig_ptr(index.get_xb(), index.ntotal * index.d)
    return keys.reshape(index.ntotal, index.d)
