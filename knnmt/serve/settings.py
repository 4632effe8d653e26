"""Settings of a server: where it listens, and who may call it."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from knnmt.errors import SettingsError
from knnmt.service.limits import Limits

PAIR = re.compile(r"\w+-\w+")
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    host: str = "127.0.0.1"
    port: int = 5000
    api_keys: Path | None = None
    public: bool = False  # listen to other machines although there are no keys
    cors: tuple[str, ...] = ()  # origins of web pages that may call
    hosts: tuple[str, ...] = ()  # names under which a server without keys may be called, beside loopback's
    state: Path | None = None  # where jobs are kept
    log_texts: bool = False
    echo: tuple[str, ...] = ()  # pairs such as en-de that are answered with the text itself
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise SettingsError(f"--port {self.port}: must be between 0 and 65535")
        if self.host not in LOOPBACK and self.api_keys is None and not self.public:
            raise SettingsError(
                f"--host {self.host}: other machines could reach a server without keys; "
                "give --api-keys FILE, or --public if everyone may translate with it"
            )
        for pair in self.echo:
            if not PAIR.fullmatch(pair):
                raise SettingsError(f"--echo {pair}: must be a pair of languages, such as en-de")


def host_in(header: str) -> str:
    """The name in a Host header, without its port."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""
