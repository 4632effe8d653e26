"""A real Ray cluster of three nodes on this machine."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from ray_nodes import NODE

from knnmt.cluster.connection import LOOPBACK, QUIET, connected

os.environ.update({**LOOPBACK, **QUIET})  # before Ray is imported
collect_ignore_glob = [] if find_spec("ray") else ["test_*.py"]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Three nodes with a processor each, and this process connected to them."""
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    try:
        for _ in range(2):
            nodes.add_node(**NODE)
        with connected(nodes.address):
            yield nodes
    finally:
        nodes.shutdown()
