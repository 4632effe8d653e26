"""Adds and removes sentence pairs in one change, given in memory and not as a file.

Corrections use it: the new pair is added and the pairs that it replaces are removed in the same version, so neither a
reader nor a crash sees one without the other.
"""

from collections.abc import Iterable, Sequence

from knnmt.errors import CorpusError
from knnmt.models.translation_model import TranslationModel
from knnmt.store.adding import Added, AddSettings, check_model, write_new_parts
from knnmt.store.building import encode_segments, fits, forced_keys
from knnmt.store.datastore import Store
from knnmt.store.index_files import grown
from knnmt.store.versions import commit
from knnmt.text.corpus import Segment


def check_fits(segments: Iterable[Segment], model: TranslationModel) -> None:
    """Raise if the model cannot take a pair, before it is stored."""
    for encoded in encode_segments(segments, model):
        if not fits(encoded, model):
            raise CorpusError(f"the sentence pair is longer than the model's {model.positions} tokens")


def rehearse(model: TranslationModel) -> None:
    """Run a small pair once and drop its keys, because the first pass of a network takes much longer than others."""
    forced_keys(model, [*encode_segments([Segment(".", ".", "", 1)], model)])


def replace_segments(
    store: Store, model: TranslationModel, *, new: Sequence[Segment], old: Iterable[int], change: str
) -> Store:
    """Put pairs in and take segments out; call it inside `changing`. Returns the store's next version."""
    check_model(store, model)
    gone = sorted(set(old))
    if not new and not gone:
        return store
    check_fits(new, model)
    parts = write_new_parts(store, model, iter(new), len(new), AddSettings(), Added()) if new else []
    names = [{"name": name, "files": []} for name in dict.fromkeys(segment.corpus for segment in new)]
    known = store.manifest.corpora
    corpora = [*known, *(name for name in names if name not in known)]
    return commit(store, change, corpora=corpora, **grown(store, parts, gone))
