"""What a call of the command line comes to; the fixture `run` of conftest makes it."""

from collections.abc import Callable
from typing import NamedTuple


class Result(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Result]
