"""Works in processes of their own, all started first and then asked in turn, so that no thread pool slows another."""

import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from knnmt.errors import KnnmtError

PROCESSES = multiprocessing.get_context("spawn")  # nothing of the parent's libraries or their threads comes along


class Opened(NamedTuple):
    """What a worker has loaded: the work itself, and what its numbers depend on."""

    work: Callable[..., Any]
    signature: str | None = None


class Answer(NamedTuple):
    result: Any
    seconds: float  # of the work alone, not of asking for it


Opening = Callable[[], Opened]  # called in the worker; must pickle, as a partial of a function in a module does


class Worker:
    """A process that loads something and then waits for questions."""

    def __init__(self, name: str, opening: Opening) -> None:
        self.name = name
        self.signature: str | None = None
        self.connection, theirs = PROCESSES.Pipe()
        self.process = PROCESSES.Process(target=serve, args=(theirs, opening), daemon=True)
        self.process.start()
        theirs.close()  # else there would be no end of file when the worker dies

    def ask(self, *question: Any) -> Answer:
        with suppress(OSError):  # of a dead worker: what it said last, or that it is dead, is worth more
            self.connection.send(question)
        answer: Answer = self.told()
        return answer

    def told(self) -> Any:
        """What the worker sends next; its error is raised here."""
        try:
            said = self.connection.recv()
        except (EOFError, OSError) as error:
            self.process.join()
            code = self.process.exitcode
            raise KnnmtError(f"{self.name}: its process died with exit code {code}; is there enough memory?") from error
        if isinstance(said, Exception):
            raise said
        return said

    def end(self) -> None:
        self.process.terminate()
        self.process.join()
        self.connection.close()


@contextmanager
def working_apart(openings: Mapping[str, Opening]) -> Iterator[dict[str, Worker]]:
    """A worker for each, ready to be asked; gone afterwards, whatever happens."""
    workers: dict[str, Worker] = {}
    try:
        for name, opening in openings.items():
            workers[name] = Worker(name, opening)
        for worker in workers.values():
            worker.signature = worker.told()
        yield workers
    finally:
        for worker in workers.values():
            worker.end()


def serve(connection: Connection, opening: Opening) -> None:
    """The whole life of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent ends this one
    answer_questions(connection, opening)


def answer_questions(connection: Connection, opening: Opening) -> None:
    try:
        opened = opening()
        connection.send(opened.signature)
        for question in questions(connection):
            connection.send(timed(opened.work, question))
    except KnnmtError as error:
        connection.send(error)
    except Exception:
        connection.send(RuntimeError(traceback.format_exc()))  # not every exception pickles


def questions(connection: Connection) -> Iterator[tuple[Any, ...]]:
    """Until the parent is gone."""
    with suppress(EOFError):
        while True:
            yield connection.recv()


def timed(work: Callable[..., Any], question: tuple[Any, ...]) -> Answer:
    began = time.perf_counter()
    result = work(*question)
    return Answer(result, time.perf_counter() - began)
