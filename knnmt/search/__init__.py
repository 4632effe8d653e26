"""Nearest neighbours among vectors: exact search, IVF indexes, quantisers, search among allowed entries.

The only room that imports FAISS. It sees arrays and index files, and does not know what an entry means.
"""
