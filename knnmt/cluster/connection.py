"""Joins a Ray cluster or starts one on this machine, and turns Ray's failures into our errors."""

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from knnmt.errors import ClusterError, KnnmtError, SettingsError

HERE = "local"  # start a cluster on this machine
FOUND = "auto"  # the cluster that this machine belongs to, else a new one here
ADDRESS = re.compile(r"auto|local|\[?[\w.:-]+\]?:\d+")
OBJECT_STORE = 200 << 20  # bytes, of a cluster that is started here: little goes through it
PATIENCE = 10  # seconds to wait for an answer
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # Ray's way to say: stay on 127.0.0.1
# Ray would make its workers nice, by 15: a translation that waits for its shards would wait for every other process.
NOT_NICE = {"RAY_worker_niceness": "0"}
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


def is_address(text: str) -> bool:
    """Whether this is the address of a cluster and not the next argument."""
    return ADDRESS.fullmatch(text) is not None


@contextmanager
def connected(address: str = FOUND, *, cpus: int | None = None) -> Iterator[None]:
    """Inside, Ray's calls reach the cluster; `cpus` are those of a cluster that is started here."""
    connect(address, cpus=cpus)
    import ray

    try:
        yield
    finally:
        ray.shutdown()


def connect(address: str = FOUND, *, cpus: int | None = None) -> None:
    """Join a cluster for the rest of this process; one that is joined already stays."""
    if not is_address(address):
        raise SettingsError(f"--ray {address}: neither HOST:PORT of a cluster, nor auto, nor local")
    ray = library(on_loopback=address == HERE or address.startswith(("127.", "localhost:")))
    if ray.is_initialized():
        return
    check_answers(address)
    ray._private.worker._worker_logs_enabled = False  # Ray tells of dead workers on stdout, where translations go
    try:
        try:
            begin(ray, address, cpus)
        except ConnectionError:
            if address != FOUND:
                raise
            begin(ray, HERE, cpus)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ClusterError(f"--ray {address}: no cluster answers there ({first_line(error)})") from error


def begin(ray: Any, address: str, cpus: int | None) -> None:
    """Join a cluster, or start one here. Ray's own default address would also join one that is here."""
    own = {"num_cpus": cpus, "object_store_memory": OBJECT_STORE, "include_dashboard": False}
    ray.init(address=address, **(own if address == HERE else {}), **quiet())


def check_answers(address: str) -> None:
    """Raise unless the cluster answers soon; Ray itself would try for minutes."""
    if address in (HERE, FOUND):
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(f"--ray {address}: no cluster answers there ({first_line(error)})") from error


def quiet() -> dict[str, Any]:
    return {"logging_level": "error", "log_to_driver": False, "configure_logging": False}


def library(*, on_loopback: bool = False) -> Any:
    """Ray, imported with what it reads from the environment."""
    for name, value in {**QUIET, **NOT_NICE, **(LOOPBACK if on_loopback else {})}.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ModuleNotFoundError as error:
        raise SettingsError("--ray needs Ray: pip install 'knnmt[cluster]'") from error
    return ray


def first_line(error: BaseException) -> str:
    return (str(error).strip().split("\n")[0] or type(error).__name__)[:200]


def explained(error: BaseException, what: str) -> KnnmtError:
    """An error of a task, as the library would have raised it here, or one line that names what failed."""
    cause = getattr(error, "cause", None) or error  # Ray's own error of a task holds it
    if isinstance(cause, KnnmtError):
        return type(cause)(f"{what}: {cause}")
    return ClusterError(f"{what}: {first_line(cause)}")
