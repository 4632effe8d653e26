"""Reads lines from a pipe in blocks: all lines that are available, without waiting for more.

A file is then translated in large batches, and a program that sends one line and waits gets its answer.
"""

import os
import select
import time
from collections.abc import Iterator
from typing import BinaryIO

from knnmt.errors import CorpusError

BLOCK_LINES = 512
BLOCK_BYTES = 1 << 16
LONGEST_LINE = 64 << 20  # bytes: no sentence is as long, and memory must not follow whatever is sent
PATIENCE = 0.05  # seconds that a block may wait for further lines: more than a pipe needs, less than a person notices


def line_blocks(stream: BinaryIO, *, size: int = BLOCK_LINES) -> Iterator[list[str]]:
    """All lines of the stream, in order, without their line ends."""
    number = 0
    for block in blocks_of(raw_lines(stream), size):
        yield [decode(line, number + row) for row, line in enumerate(block, start=1)]
        number += len(block)


def blocks_of(lines: Iterator[bytes | None], size: int) -> Iterator[list[bytes]]:
    """Lines gathered until a block is full or no more are available (None)."""
    block: list[bytes] = []
    for line in lines:
        if line is not None:
            block.append(line)
        if block and (line is None or len(block) == size):
            yield block
            block = []
    if block:
        yield block


def raw_lines(stream: BinaryIO) -> Iterator[bytes | None]:
    """Lines as they arrive, and None whenever no more are available for a moment."""
    try:
        source = stream.fileno()
    except OSError:
        yield from stream  # not a file of the system, so everything is there already
        return
    unended, deadline = UnendedLine(), time.monotonic() + PATIENCE
    while chunk := os.read(source, BLOCK_BYTES):
        *lines, rest = chunk.split(b"\n")
        if lines:
            yield unended.taken() + lines[0]
            yield from lines[1:]
        unended.add(rest)
        if not more_within(source, deadline):
            yield None
            select.select([source], [], [])
            deadline = time.monotonic() + PATIENCE
    if rest := unended.taken():
        yield rest


class UnendedLine:
    """The beginning of a line that has not ended yet. Its pieces are joined once, however many there are."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.bytes = 0

    def add(self, piece: bytes) -> None:
        self.bytes += len(piece)
        if self.bytes > LONGEST_LINE:
            raise CorpusError(f"standard input: a line of more than {LONGEST_LINE >> 20} MB; is it text?")
        self.pieces.append(piece)

    def taken(self) -> bytes:
        line = b"".join(self.pieces)
        self.pieces, self.bytes = [], 0
        return line


def more_within(source: int, deadline: float) -> bool:
    ready, _, _ = select.select([source], [], [], max(0.0, deadline - time.monotonic()))
    return bool(ready)


def decode(line: bytes, number: int) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise CorpusError(f"standard input: line {number} is not UTF-8 ({error.reason})") from error
