"""Fit the built-in head, which mixes for every store that has no head of its own.

    python recipes/mixing/fit.py CORPORA --work FOLDER --output knnmt/data/learned.safetensors

CORPORA has a folder for each domain with train.de.gz and train.en.gz. A store of the first pairs of each is built in
FOLDER, or taken from there. The head is fitted on all of them together: each memory's own sentences, left out of their
own search, and general text that is to stay as the model says. Distances are in variances of each store's keys, so
that the head serves other models, too.
"""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from knnmt.measure.fitting import general_sentences, observe_memory
from knnmt.mixing.head_mixer import head_bytes
from knnmt.mixing.training import all_foreign, all_seen, fit_head, new_head
from knnmt.models.translation_model import TranslationModel, load_model
from knnmt.store.building import BuildSettings, build_store
from knnmt.store.datastore import Store
from knnmt.text.corpus import Corpus

DOMAINS = ("it", "medical", "law", "koran")
PAIRS = 4000


def main(
    corpora: Path,
    work: Annotated[Path, typer.Option(help="Folder of the stores; those that are there are used again.")],
    output: Annotated[Path, typer.Option(help="The head's file.")],
    model: str = "builtin:de-en",
    pairs: int = PAIRS,
) -> None:
    loaded = load_model(model)
    work.mkdir(parents=True, exist_ok=True)
    general = general_sentences(loaded.source_lang)
    observed = []
    for domain in DOMAINS:
        store = store_of(loaded, corpora / domain, work / f"{domain}-{loaded.fingerprint}-{pairs}", pairs)
        observed.append(observe_memory(loaded, store, general))
        print(
            f"{domain}: {len(observed[-1].seen.model):,} tokens, variance {observed[-1].variance:.0f}", file=sys.stderr
        )
    seen = all_seen([one.seen for one in observed])
    foreign = all_foreign([one.foreign for one in observed if one.foreign])
    fitted = fit_head(new_head("learned"), seen, foreign, fresh=True)
    about = {
        "model": loaded.fingerprint,
        "domains": list(DOMAINS),
        "pairs": pairs,
        "tokens": len(seen.model),
        "likelihood": {"model": fitted.base, "fixed": fitted.fixed, "head": fitted.likelihood},
        "divergence": fitted.divergence,
        "general_weight": fitted.foreign_weight,
    }
    output.write_bytes(head_bytes(fitted.head, about))
    print(json.dumps(about, indent=2))


def store_of(model: TranslationModel, texts: Path, folder: Path, pairs: int) -> Store:
    """A store of the first pairs of a text."""
    if (folder / "manifest.json").is_file():
        return Store.open(folder)
    corpus = Corpus(texts / "train.de.gz", texts / "train.en.gz", ("de", "en"), texts.name)
    return build_store(folder, model, [corpus], BuildSettings(limit=pairs, show_progress=sys.stderr.isatty()))


if __name__ == "__main__":
    typer.run(main)
