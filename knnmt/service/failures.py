"""The errors of requests as one tree, each with its HTTP status.

ApiError
├── BadRequest   400  something in the request that its sender can put right
├── Forbidden    403  a key that is wrong, or that may not do this
├── NotFound     404
├── TooLarge     413  more bytes than the server reads
├── TooFast      429  a client over its own rate, never mere load
└── TooLate      500  not answered before the deadline
"""

import traceback


def where(fault: BaseException) -> str:
    """What a log may say about an internal error: its type and traceback, not its message, which may contain texts."""
    return f"{type(fault).__name__}, at\n{''.join(traceback.format_tb(fault.__traceback__))}"


class ApiError(Exception):
    """Answered as `{"error": message}`."""

    status = 500

    def __init__(self, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.headers = headers or {}


class BadRequest(ApiError):  # noqa: N818 - these are named as HTTP names them
    status = 400


class Forbidden(ApiError):  # noqa: N818
    status = 403


class NotFound(ApiError):  # noqa: N818
    status = 404


class TooLarge(ApiError):  # noqa: N818
    status = 413


class TooFast(ApiError):  # noqa: N818
    status = 429

    def __init__(self, seconds: int) -> None:
        super().__init__(
            f"Slowdown: this key's rate is used up; try again in {seconds} s", {"Retry-After": str(seconds)}
        )


class TooLate(ApiError):  # noqa: N818
    status = 500
