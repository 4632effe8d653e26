"""The highest memory of a process of its own."""

import subprocess
import sys
import tempfile
from pathlib import Path

# Asked from inside: what the system tells a parent of its children's peak begins with the parent's own.
WATCHED = """
import re, sys
from pathlib import Path
report = Path(sys.argv.pop(1))
try:
    exec(sys.argv.pop(1))
finally:
    peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
    report.write_text(peak.group(1))
"""


def peak_of(code: str, *arguments: str, stdin: bytes = b"") -> int:
    """Bytes, of a process that runs some Python with `sys.argv[1:]` as given."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "peak"
        command = [sys.executable, "-c", WATCHED, str(report), code, *arguments]
        subprocess.run(command, input=stdin, stdout=subprocess.DEVNULL, check=True)
        return int(report.read_text()) * 1024
