"""FAISS, loaded after PyTorch: it then uses PyTorch's threads.

Loaded first, it starts threads of its own, and the two pools wait for each other's cores: a step with retrieval took
half as long again.
"""

# isort: off
import torch  # noqa: F401 - before FAISS
import faiss as faiss
