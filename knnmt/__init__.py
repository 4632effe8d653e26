"""Nearest-neighbour machine translation.

`Translator` is the one object a library user needs; `attach_retrieval` adds retrieval to your own `generate` call.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from knnmt.version import __version__

if TYPE_CHECKING:
    from knnmt.building import BuildSettings, build_store
    from knnmt.corpus import Corpus
    from knnmt.errors import CorpusError, KnnmtError, ModelError, SettingsError, StoreError
    from knnmt.explanation import Explanation
    from knnmt.model import load_model
    from knnmt.store import Store
    from knnmt.translator import Translation, Translator, attach_retrieval

__all__ = [
    "BuildSettings",
    "Corpus",
    "CorpusError",
    "Explanation",
    "KnnmtError",
    "ModelError",
    "SettingsError",
    "Store",
    "StoreError",
    "Translation",
    "Translator",
    "__version__",
    "attach_retrieval",
    "build_store",
    "load_model",
]

_HOME = {
    "BuildSettings": "building",
    "Corpus": "corpus",
    "CorpusError": "errors",
    "Explanation": "explanation",
    "KnnmtError": "errors",
    "ModelError": "errors",
    "SettingsError": "errors",
    "Store": "store",
    "StoreError": "errors",
    "Translation": "translator",
    "Translator": "translator",
    "attach_retrieval": "translator",
    "build_store": "building",
    "load_model": "model",
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use: `knnmt --help` should not wait for torch."""
    if name not in _HOME:
        raise AttributeError(f"module 'knnmt' has no attribute {name!r}")
    return getattr(import_module(f"knnmt.{_HOME[name]}"), name)
