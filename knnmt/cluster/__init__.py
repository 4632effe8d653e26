"""Building and searching on many machines with Ray, for stores that are too large or too slow for one machine.

`connection.connected` joins a cluster. `workers.RayWorkers` runs the work of `build_store`.
`sharded_retriever.ShardedRetriever` searches stores whose entries are distributed over actors. All machines share the
folder of the store: tasks read and write files there, and only names, queries and neighbours go over the network. No
other package imports Ray.
"""
