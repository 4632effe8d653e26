"""Finding what the memory contains: the nearest entries of a decoder state, and sentence pairs by their text.

A `retriever.Retriever` takes decoder states and returns neighbours:

| retriever | searches |
|---|---|
| `local_retriever.LocalRetriever` | datastores on this machine |
| `knnmt.cluster.sharded_retriever.ShardedRetriever` | datastores distributed over the machines of a Ray cluster |
| `knnmt.measure.subsets.SubsetRetriever` | a part of one datastore, for sweeps |

`memories` opens the stores that `--store` names. `lookup.Lookup` finds sentence pairs.
"""
