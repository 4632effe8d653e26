"""One pool of threads for PyTorch and FAISS."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COUNTING = """
from pathlib import Path
import numpy as np, torch
{imports}

def threads():
    return len(list(Path("/proc/self/task").iterdir()))

torch.set_num_threads(2)
torch.randn(512, 512) @ torch.randn(512, 512)
before = threads()
faiss.omp_set_num_threads(2)
index = faiss.IndexFlatL2(64)
index.add(np.random.rand(5000, 64).astype(np.float32))
index.search(np.random.rand(64, 64).astype(np.float32), 4)
print(threads() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_faiss_starts_no_threads_of_its_own() -> None:
    code = COUNTING.format(imports="from knnmt.search.library import faiss")
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.strip() == "0"


MODULES = sorted([*ROOT.glob("knnmt/**/*.py"), *ROOT.glob("bench/*.py")])


@pytest.mark.parametrize("file", MODULES, ids=lambda file: file.stem)
def test_faiss_is_imported_in_one_place(file: Path) -> None:
    imported = {
        name.name
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Import)
        for name in node.names
    }
    assert "faiss" not in imported or file.stem == "library"
