"""Lines from a pipe in blocks: as many as are there, but never waiting for more than the first.

A file is translated in large batches, and a person or program that sends one line and waits gets its answer.
"""

import queue
import threading
from collections.abc import Iterator
from typing import BinaryIO

from knnmt.errors import CorpusError

BLOCK_LINES = 512
PATIENCE = 0.05  # seconds to wait for the next line of a block: longer than a pipe takes, shorter than a person notices


def line_blocks(stream: BinaryIO, *, size: int = BLOCK_LINES) -> Iterator[list[str]]:
    """All lines of the stream, in order, without their line ends."""
    lines: queue.Queue[bytes | None] = queue.Queue(maxsize=4 * size)
    threading.Thread(target=read_into, args=(stream, lines), daemon=True).start()
    number = 0
    while (line := lines.get()) is not None:
        block = [line, *waiting_lines(lines, size - 1)]
        yield [decode(line, number + row) for row, line in enumerate(block, start=1)]
        number += len(block)


def read_into(stream: BinaryIO, lines: "queue.Queue[bytes | None]") -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def waiting_lines(lines: "queue.Queue[bytes | None]", most: int) -> Iterator[bytes]:
    for _ in range(most):
        try:
            line = lines.get(timeout=PATIENCE)
        except queue.Empty:
            return
        if line is None:
            lines.put(None)
            return
        yield line


def decode(line: bytes, number: int) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise CorpusError(f"standard input: line {number} is not UTF-8 ({error.reason})") from error
