"""What the command line lets other libraries say."""

import pytest

from knnmt.progress import QUIET, silence_libraries


def test_libraries_are_silent_unless_the_user_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"TRANSFORMERS_VERBOSITY": "info"}
    monkeypatch.setattr("os.environ", environment)
    silence_libraries()
    assert environment == QUIET | {"TRANSFORMERS_VERBOSITY": "info"}
