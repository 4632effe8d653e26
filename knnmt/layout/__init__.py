"""The files of a datastore: manifest and records, parts and their columns, formats of earlier versions.

This package reads and writes single parts and manifests. `store` uses it to change whole datastores.
"""
