"""Ray: building and searching on many machines, for stores that one machine is too small or too slow for.

`connection.connected` joins a cluster. `workers.RayWorkers` is given to `build_store`.
`sharded_retriever.ShardedRetriever` searches stores whose entries are spread over actors. All machines share the folder
of the store: tasks read and write files there, and the network carries only names, queries and neighbours. Nothing
outside this room imports Ray.
"""
