"""Shards that are asked over lines. Ray starts them and brings them back, and answers where a line does not."""

import logging
import threading
import time
import weakref
from typing import Any

from knnmt.cluster.actors import Request, Shards
from knnmt.cluster.connection import explained
from knnmt.cluster.lines import DirectLine, Failure, LineAddress, packed
from knnmt.cluster.shard import ShardAnswer
from knnmt.switches import left_out

SILENCE = 5.0  # seconds without an answer, after which Ray is asked: it finds out whether the machine is still there
ATTEMPTS = 3  # to reach a shard that Ray reaches; ports may be closed between machines

Answer = list[ShardAnswer | None]

log = logging.getLogger(__name__)


class DirectShards:
    """The shards, with the lines to each that are not in use. Several threads may search at the same time."""

    def __init__(self, shards: Shards) -> None:
        self.shards = shards
        self.exchanges = [Exchange() for _ in range(shards.count)]
        weakref.finalize(self, hung_up, self.exchanges)

    def search(self, request: Request) -> list[Answer]:
        """The answer of each shard."""
        if left_out("lines"):
            return self.shards.search(request)
        began = time.monotonic()
        found = self.over_lines(request, began + min(SILENCE, self.shards.patience))
        silent = [number for number in range(self.shards.count) if number not in found]
        if silent:
            found |= self.shards.search_some(request, silent, began=began)
            self.look_up(silent)
        return [found[number] for number in range(self.shards.count)]

    def over_lines(self, request: Request, deadline: float) -> dict[int, Answer]:
        """The answers of those shards that have a line and answer in time."""
        message = packed(request)
        lines = {number: line for number, exchange in enumerate(self.exchanges) if (line := exchange.line())}
        asked = [number for number, line in lines.items() if self.ask(number, line, message, deadline)]
        answers = {number: self.answer(number, lines[number], deadline) for number in asked}
        found = {number: answer for number, answer in answers.items() if answer is not None}
        for number in found:
            self.exchanges[number].give_back(lines[number])
        for number, answer in found.items():
            if isinstance(answer, Failure):
                raise explained(answer.error, self.shards.name(number)) from answer.error
        return found

    def ask(self, number: int, line: DirectLine, message: bytes, deadline: float) -> bool:
        try:
            line.ask(message, deadline)
        except OSError as error:
            self.broken(number, line, error)
            return False
        return True

    def answer(self, number: int, line: DirectLine, deadline: float) -> Any:
        """None if the line is broken."""
        try:
            return line.answer(deadline)
        except (OSError, EOFError) as error:
            self.broken(number, line, error)
            return None

    def broken(self, number: int, line: DirectLine, error: BaseException) -> None:
        log.debug("lines: %s is asked through Ray (%r)", self.shards.name(number), error)
        line.close()
        self.exchanges[number].forget()

    def look_up(self, numbers: list[int]) -> None:
        """Ask shards that have just answered where they listen."""
        wanted = [number for number in numbers if self.exchanges[number].is_wanted()]
        for number, address in self.shards.lines(wanted).items():
            self.exchanges[number].moved(address)


def hung_up(exchanges: list["Exchange"]) -> None:
    for exchange in exchanges:
        exchange.forget()


class Exchange:
    """What is known of one shard's lines."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.address: LineAddress | None = None
        self.free: list[DirectLine] = []
        self.attempts = 0  # in a row that did not reach it

    def line(self) -> DirectLine | None:
        """One that nobody uses, or a new one; None where there is none."""
        with self.lock:
            if self.free:
                return self.free.pop()
            address = self.address
        return self.opened(address) if address else None

    def opened(self, address: LineAddress) -> DirectLine | None:
        try:
            line = DirectLine(address)
        except (OSError, EOFError) as error:
            self.attempts += 1
            self.forget()
            log.debug("lines: %s:%s cannot be reached (%r)", address.host, address.port, error)
            return None
        self.attempts = 0
        return line

    def give_back(self, line: DirectLine) -> None:
        with self.lock:
            self.free.append(line)

    def forget(self) -> None:
        """The shard is not where it was."""
        with self.lock:
            lines, self.free, self.address = self.free, [], None
        for line in lines:
            line.close()

    def moved(self, address: LineAddress) -> None:
        with self.lock:
            self.address = address

    def is_wanted(self) -> bool:
        return self.address is None and self.attempts < ATTEMPTS
