"""Nearest neighbours among vectors: exact search, IVF indexes, quantisers, search among allowed entries.

The only room that imports FAISS. It sees arrays and index files, and does not know what an entry means.

| to | ask |
|---|---|
| choose a kind of index | `factories.automatic_factory` |
| train, fill, extend, open and judge an index | `index` |
| look at every key | `exact.ExactSearch` |
| search an index cluster by cluster | `coarse.probing` |
| search among allowed entries | `filtered.search_allowed` |
| order equal distances by entry | `nearest` |
"""
