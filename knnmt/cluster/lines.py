"""Lines: direct connections to a process that answers requests.

A call through Ray copies its arguments to shared memory and wakes several processes, which takes milliseconds. A line
takes one message there and one back. Messages are pickles, so nothing is read from a caller who does not know the
process's token; the token is told through Ray only.
"""

import hmac
import pickle
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from knnmt.errors import ClusterError

TOKEN_BYTES = 32
HANDSHAKE = 5.0  # seconds a caller has to say its token, and a caller waits to be let in
LENGTH = struct.Struct("!Q")
ACCEPTED = b"+"


@dataclass(frozen=True, slots=True)
class LineAddress:
    """Where a process listens, and what it wants to hear first."""

    host: str
    port: int
    token: bytes


@dataclass(frozen=True, slots=True)
class Failure:
    """An answer that is an error."""

    error: Exception


class Switchboard:
    """Listens on a port of its own; each caller's requests are answered in a thread."""

    def __init__(self, host: str, answer: Callable[[Any], Any]) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.answer, self.token = answer, secrets.token_bytes(TOKEN_BYTES)
        self.listening = socket.create_server((host, 0), family=family)
        self.address = LineAddress(host, self.listening.getsockname()[1], self.token)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                caller, _ = self.listening.accept()
                threading.Thread(target=self.serve, args=(caller,), daemon=True).start()

    def serve(self, caller: socket.socket) -> None:
        with caller, suppress(OSError, EOFError):
            without_delay(caller)
            caller.settimeout(HANDSHAKE)
            if not hmac.compare_digest(read_exactly(caller, TOKEN_BYTES), self.token):
                return
            caller.sendall(ACCEPTED)
            caller.settimeout(None)
            while True:
                request = pickle.loads(received_message(caller))
                send_message(caller, self.outcome(request))

    def outcome(self, request: Any) -> bytes:
        try:
            return packed(self.answer(request))
        except Exception as error:
            return failed(error)

    def close(self) -> None:
        self.listening.close()


class DirectLine:
    """A connection to a `Switchboard`. After an error it must be closed: an old answer could still arrive on it."""

    def __init__(self, address: LineAddress) -> None:
        self.connection = socket.create_connection((address.host, address.port), timeout=HANDSHAKE)
        try:
            without_delay(self.connection)
            self.connection.sendall(address.token)
            read_exactly(self.connection, len(ACCEPTED))
        except (OSError, EOFError):
            self.close()
            raise

    def ask(self, message: bytes, deadline: float) -> None:
        """Send a `packed` request; TimeoutError at the deadline, which `time.monotonic` tells."""
        self.wait_until(deadline)
        send_message(self.connection, message)

    def answer(self, deadline: float) -> Any:
        """What was answered; a `Failure` is returned and not raised."""
        self.wait_until(deadline)
        return pickle.loads(received_message(self.connection))

    def wait_until(self, deadline: float) -> None:
        """The time limit is that of each part of a message, so a message may take a little longer."""
        self.connection.settimeout(max(0.001, deadline - time.monotonic()))

    def close(self) -> None:
        self.connection.close()


def packed(content: Any) -> bytes:
    return pickle.dumps(content, protocol=pickle.HIGHEST_PROTOCOL)


def failed(error: Exception) -> bytes:
    try:
        return packed(Failure(error))
    except Exception:
        return packed(Failure(ClusterError(f"{type(error).__name__}: {error}")))


def send_message(connection: socket.socket, message: bytes) -> None:
    connection.sendall(LENGTH.pack(len(message)))
    connection.sendall(message)


def received_message(connection: socket.socket) -> bytearray:
    return read_exactly(connection, LENGTH.unpack(read_exactly(connection, LENGTH.size))[0])


def read_exactly(connection: socket.socket, length: int) -> bytearray:
    """So many bytes; EOFError if the other side has gone."""
    content = bytearray(length)
    view, have = memoryview(content), 0
    while have < length:
        got = connection.recv_into(view[have:])
        if not got:
            raise EOFError
        have += got
    return content


def without_delay(connection: socket.socket) -> None:
    """TCP would hold back the end of a message until the other side confirms the rest; and tell if it has gone."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
