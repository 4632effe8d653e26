"""The datastore as a whole: build, add, remove, merge, compact, verify; versions, tiers, filters.

Other packages open a store with `datastore.Store`. Each change has a module with its name.
"""
