"""Nearest-neighbour machine translation.

`Translator` is the one object a library user needs; `attach_retrieval` adds retrieval to your own `generate` call.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from knnmt.release import __version__

if TYPE_CHECKING:
    from knnmt.errors import ClusterError, CorpusError, DocumentError, KnnmtError, ModelError, SettingsError, StoreError
    from knnmt.measure.evaluation import evaluate
    from knnmt.measure.sweep import Axes, sweep
    from knnmt.measure.sweep_plot import draw_sweep
    from knnmt.measure.tuning import tune, write_tuning
    from knnmt.models.translation_model import load_model
    from knnmt.store.building import BuildSettings, build_store
    from knnmt.store.datastore import Store
    from knnmt.text.corpus import Corpus
    from knnmt.text.exporting import write_memory
    from knnmt.translate.explanation import Explanation
    from knnmt.translate.pipeline import pipeline
    from knnmt.translate.translator import Translation, Translator, attach_retrieval

__all__ = [
    "Axes",
    "BuildSettings",
    "ClusterError",
    "Corpus",
    "CorpusError",
    "DocumentError",
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
    "draw_sweep",
    "evaluate",
    "load_model",
    "pipeline",
    "sweep",
    "tune",
    "write_memory",
    "write_tuning",
]

_HOME = {
    "Axes": "measure.sweep",
    "BuildSettings": "store.building",
    "ClusterError": "errors",
    "Corpus": "text.corpus",
    "CorpusError": "errors",
    "DocumentError": "errors",
    "Explanation": "translate.explanation",
    "KnnmtError": "errors",
    "ModelError": "errors",
    "SettingsError": "errors",
    "Store": "store.datastore",
    "StoreError": "errors",
    "Translation": "translate.translator",
    "Translator": "translate.translator",
    "attach_retrieval": "translate.translator",
    "build_store": "store.building",
    "draw_sweep": "measure.sweep_plot",
    "evaluate": "measure.evaluation",
    "load_model": "models.translation_model",
    "pipeline": "translate.pipeline",
    "sweep": "measure.sweep",
    "tune": "measure.tuning",
    "write_memory": "text.exporting",
    "write_tuning": "measure.tuning",
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use: `knnmt --help` should not wait for torch."""
    if name not in _HOME:
        raise AttributeError(f"module 'knnmt' has no attribute {name!r}")
    return getattr(import_module(f"knnmt.{_HOME[name]}"), name)
