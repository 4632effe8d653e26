"""What a node of the tests' Ray cluster has, and the processes that work there."""

import logging
import os
import random
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

NODE = {"num_cpus": 1, "object_store_memory": 100 << 20, "node_ip_address": "127.0.0.1"}
A_NODE = 1 / 3  # of kills

log = logging.getLogger(__name__)


def workers_of(cluster: Any, title: str) -> list[int]:
    """Processes of this cluster, and no other, whose task or actor begins with this name."""
    nodes = cluster.list_all_nodes()
    raylets = [str(one.process.pid) for node in nodes for one in node.all_processes.get("raylet", [])]
    command = ["pgrep", "--parent", ",".join(raylets), "--full", f"^ray::{title}"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    return [int(pid) for pid in listed.stdout.split()]


def kill_worker(cluster: Any, title: str, chosen: random.Random) -> bool:
    """Kill a process that is at work; tells whether there was one."""
    pids = workers_of(cluster, title)
    if not pids:
        return False
    victim = chosen.choice(pids)
    os.kill(victim, signal.SIGKILL)
    log.info("killed %s, process %d", title, victim)
    return True


def kill_node(cluster: Any, chosen: random.Random) -> None:
    """Kill a node with all that runs there; another one takes its place. The one that we are connected to stays."""
    victim = chosen.choice(sorted(cluster.worker_nodes, key=lambda node: str(node.node_id)))
    cluster.remove_node(victim, allow_graceful=False)
    log.info("killed node %s", victim.node_id)
    add_node(cluster)


def add_node(cluster: Any) -> None:
    """Ray gives a node 30 seconds to start; on a busy machine it may need a second attempt."""
    try:
        cluster.add_node(**NODE)
    except Exception:
        cluster.add_node(**NODE)


def worked_while_killing(
    cluster: Any, title: str, most: int, longest: float, chosen: random.Random, work: Callable[[], str]
) -> tuple[str, list[str]]:
    """Do some work while processes with this title and whole nodes are killed at random moments; what was killed.

    Two kills are at most `longest` seconds apart.
    The work has the thread of its own: Ray starts nodes in the main thread only.
    """
    killed: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        while not wait([working], chosen.uniform(0, longest)).done:
            if len(killed) == most:
                break
            if chosen.random() < A_NODE:
                kill_node(cluster, chosen)
                killed.append("node")
            elif kill_worker(cluster, title, chosen):
                killed.append(title)
        return working.result(), killed
