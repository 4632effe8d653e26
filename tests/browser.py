"""A real Chromium for tests, or the reason why there is none."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Nothing of the browser's own may call out: the tests watch that the page does not.
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


def missing() -> str:
    """Why the page cannot be tested here; empty where it can."""
    if chromium() is None:
        return f"no browser: none of {', '.join(NAMES)} is installed (KNNMT_CHROMIUM may name one)"
    try:
        import playwright  # noqa: F401
    except ImportError:
        return "no playwright: pip install playwright"
    return ""


def chromium() -> str | None:
    named = os.environ.get("KNNMT_CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def browsing() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=QUIET)
        try:
            yield browser
        finally:
            browser.close()
