"""A real Ray cluster of three nodes on this machine."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from ray_nodes import NODE, add_node

from knnmt.cluster.connection import LOOPBACK, NOT_NICE, QUIET, connected

os.environ.update({**LOOPBACK, **NOT_NICE, **QUIET})  # before Ray is imported
collect_ignore_glob = [] if find_spec("ray") else ["test_*.py"]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Three nodes with a processor each, and this process connected to them."""
    nodes = head()
    try:
        for _ in range(2):
            add_node(nodes)
        with connected(nodes.address):
            yield nodes
    finally:
        nodes.shutdown()


def head() -> Any:
    """A cluster of one node. Ray gives it 30 seconds to start; on a busy machine it may need a second attempt."""
    from ray.cluster_utils import Cluster

    arguments = {**NODE, "include_dashboard": False}
    try:
        return Cluster(initialize_head=True, head_node_args=arguments)
    except Exception:
        return Cluster(initialize_head=True, head_node_args=arguments)
