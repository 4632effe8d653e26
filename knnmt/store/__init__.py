"""The datastore on disk: manifest, parts, versions; build, add, remove, merge, compact, verify, filters.

Neighbours open a store with `datastore.Store` and change it through the module named after the change.
"""
