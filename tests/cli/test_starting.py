"""Commands that only look at a store, or change what is in it, start at once: they load neither model nor FAISS."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from living import PAIRS, made

HEAVY = ["torch", "transformers", "faiss", "matplotlib"]
CALL = f"""
import json, sys
from knnmt.cli.main import main
try:
    main()
finally:
    print(json.dumps([name for name in {HEAVY} if name in sys.modules]), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "--version",
        "info STORE",
        "info STORE --json",
        "versions STORE",
        "remove STORE --segment 0",
        "merge STORE OTHER",
        "export STORE --output FILE",
        "rollback STORE 1",
    ],
)
def test_nothing_heavy_is_loaded(tmp_path: Path, hash_keys: None, command: str) -> None:
    made(tmp_path / "store", PAIRS)
    if command.startswith(("merge", "rollback")):
        made(tmp_path / "other", [("x", "y")])
    places = {"STORE": tmp_path / "store", "OTHER": tmp_path / "other", "FILE": tmp_path / "out.tmx"}
    if command.startswith("rollback"):
        run("remove", str(places["STORE"]), "--segment", "0")
    loaded = run(*(str(places.get(word, word)) for word in command.split()))
    assert loaded == []


def run(*arguments: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", CALL, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded: list[str] = json.loads(done.stderr.splitlines()[-1])
    return loaded
