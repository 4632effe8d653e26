"""How a datastore lies on disk: manifest and records, parts and their files, formats of earlier versions.

It reads and writes single parts and manifests, and knows nothing of stores that change; that is `store`.
"""
