"""How many general sentences does a fit need?

    python recipes/mixing/general.py STORE

Heads are fitted to STORE with the first of the package's general sentences, in a random order. Each is then judged on
sentences that no fit has seen: its divergence from the model there, and the likelihood of the memory's own text, each
sentence left out of its own search.
"""

from pathlib import Path

import torch
import typer
from knnmt.measure.fitting import PRIOR, general_sentences, observe_memory
from knnmt.mixing.heads import Head
from knnmt.mixing.training import Foreign, Seen, divergence, fit_head, likelihood
from knnmt.store.datastore import Store
from knnmt.translate.mixer_choice import builtin_head
from knnmt.translate.translator import model_of_store

JUDGING = 80  # sentences that no fit sees
COUNTS = (0, 10, 20, 40, 80, 160)
HELD_OUT = 4  # every so many sentences of the memory judge
SEED = 0


def main(store: Path) -> None:
    opened = Store.open(store)
    model = model_of_store(opened)
    observed = observe_memory(model, opened, general_sentences(model.source_lang))
    assert observed.foreign is not None
    order = torch.randperm(int(observed.foreign.sentences.max()) + 1, generator=torch.Generator().manual_seed(SEED))
    judge, rest = order[:JUDGING], order[JUDGING:]
    judges = of_sentences(observed.foreign, judge)
    own = observed.seen.sentences % HELD_OUT == 1
    print("| general sentences | divergence | mean weight there | log-likelihood of the memory's text |")
    print("| --- | --- | --- | --- |")
    print(row("built-in head", builtin_head(), judges, rows_of(observed.seen, own)))
    for count in COUNTS:
        foreign = of_sentences(observed.foreign, rest[:count]) if count else None
        fitted = fit_head(
            builtin_head(), rows_of(observed.seen, ~own), foreign, fresh=False, prior=0.0 if count else PRIOR
        )
        print(row(str(count), fitted.head, judges, rows_of(observed.seen, own)))


@torch.inference_mode()
def row(name: str, head: Head, foreign: Foreign, seen: Seen) -> str:
    judged = head(foreign.evidence)
    apart = float(divergence(judged, foreign.evidence).mean())
    own = float(likelihood(head(seen.evidence), seen).mean())
    return f"| {name} | {apart:.4f} | {float(judged.weight.mean()):.3f} | {own:.3f} |"


def of_sentences(foreign: Foreign, numbers: torch.Tensor) -> Foreign:
    rows = torch.nonzero(torch.isin(foreign.sentences, numbers))[:, 0]
    return Foreign(foreign.evidence.rows(rows), foreign.sentences[rows])


def rows_of(seen: Seen, mask: torch.Tensor) -> Seen:
    rows = torch.nonzero(mask)[:, 0]
    return Seen(seen.evidence.rows(rows), seen.hits[rows], seen.model[rows], seen.sentences[rows])


if __name__ == "__main__":
    typer.run(main)
