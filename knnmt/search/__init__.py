"""Nearest neighbours among vectors: exact search, IVF indexes, quantisers, search among allowed entries.

The only room that knows FAISS. It sees arrays and files of indexes; what an entry means, it does not know.
"""
