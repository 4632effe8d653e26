"""How well does each way to mix predict translations?

    python recipes/mixing/kinds.py STORE --source FILE --target FILE [--limit N]

Every kind is fitted to STORE on its own text, without the text of the files. Printed is the mean log-likelihood of a
token of the references (higher is better), and, on the package's general sentences, the divergence from the model and
the mean weight of the memory. It takes seconds where decoding takes minutes, so it is for trying features and losses.
"""

from itertools import islice
from pathlib import Path
from typing import Annotated

import torch
import typer
from knnmt.measure.fitting import general_sentences, observe_memory
from knnmt.mixing.fixed_values import PAPER_TEMPERATURE, PAPER_WEIGHT
from knnmt.mixing.heads import Head
from knnmt.mixing.training import (
    Foreign,
    Seen,
    best_fixed,
    divergence,
    fit_head,
    fixed_likelihood,
    likelihood,
    new_head,
)
from knnmt.retrieval.local_retriever import LocalRetriever
from knnmt.store.datastore import Store
from knnmt.text.inputs import read_lines
from knnmt.translate.leave_one_out import new_text
from knnmt.translate.mixer_choice import builtin_head
from knnmt.translate.translator import model_of_store


def main(
    store: Path,
    source: Annotated[Path, typer.Option(help="Source lines that are not in the store.")],
    target: Annotated[Path, typer.Option(help="Their translations.")],
    limit: int = 300,
) -> None:
    opened = Store.open(store)
    model = model_of_store(opened)
    observed = observe_memory(model, opened, general_sentences(model.source_lang))
    sources, references = (list(islice(read_lines(file), limit)) for file in (source, target))
    retriever = LocalRetriever([opened])
    text = new_text(model, retriever, observed.coverage, observed.variance, sources, references)
    if text is None or observed.foreign is None:
        raise typer.BadParameter("no line has text on both sides, or the package has no text in the source language")
    weight, temperature = best_fixed(observed.seen)
    print("| mixing | log-likelihood | divergence on general text | mean weight there |")
    print("| --- | --- | --- | --- |")
    print(f"| model alone | {float(text.model.mean()):.3f} | 0 | 0 |")
    for name, values in {
        "paper": (PAPER_WEIGHT, PAPER_TEMPERATURE / observed.variance),
        "fixed, fitted to the memory": (weight, temperature),
        "fixed, fitted to the references themselves": best_fixed(text),
    }.items():
        print(f"| {name} | {float(fixed_likelihood(text, *values).mean()):.3f} | – | {values[0]:.2f} |")
    print(row("learned, the built-in head", builtin_head(), text, observed.foreign))
    for kind in ("learned", "robust", "adaptive"):
        fresh = kind != "learned"
        head = new_head(kind) if fresh else builtin_head()
        print(row(kind, fit_head(head, observed.seen, observed.foreign, fresh=fresh).head, text, observed.foreign))


@torch.inference_mode()
def row(name: str, head: Head, text: Seen, foreign: Foreign) -> str:
    own = float(likelihood(head(text.evidence), text).mean())
    judged = head(foreign.evidence)
    apart = float(divergence(judged, foreign.evidence).mean())
    return f"| {name} | {own:.3f} | {apart:.4f} | {float(judged.weight.mean()):.3f} |"


if __name__ == "__main__":
    typer.run(main)
