"""Loads FAISS after PyTorch, so that it uses PyTorch's threads.

If FAISS is loaded first, it starts its own threads, and the two pools wait for each other: a step with retrieval then
took 1.5 times as long.
"""

# isort: off
import torch  # noqa: F401 - before FAISS
import faiss as faiss
