"""From a sentence to its translation: retrieve, mix, search the beam, explain.

`translator.Translator` is what users meet; `settings.TranslateSettings` is what may be asked of it.

A `retriever.Retriever` takes decoder states and gives neighbours:

| retriever | searches |
|---|---|
| `local_retriever.LocalRetriever` | datastores on this machine |
| `knnmt.cluster.retriever.ShardedRetriever` | datastores spread over the machines of a Ray cluster |
| `knnmt.measure.subsets.SubsetRetriever` | a part of one datastore, for sweeps |
"""
