"""The modules of the recipe of the embedded model."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

RECIPE = Path(__file__).parents[2] / "recipes" / "embedded-model"
MODULES = sorted(path.stem for path in RECIPE.glob("*.py"))


@pytest.fixture(scope="module")
def recipe() -> Iterator[SimpleNamespace]:
    """The recipe's modules, imported from its folder, which is no package."""
    sys.path.insert(0, str(RECIPE))
    try:
        yield SimpleNamespace(**{name: __import__(name) for name in MODULES})
    finally:
        sys.path.remove(str(RECIPE))
        for name in MODULES:
            sys.modules.pop(name, None)
