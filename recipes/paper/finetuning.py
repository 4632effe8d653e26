"""A datastore against what one would do instead: fine-tuning the same model on the same text.

The datastore is built with its mixing fitted, without any dev text. Fine-tuning gets the same processor time, and some
multiples of it, at several learning rates; the rate with the best likelihood of held-out pairs of the same text wins.
Then a datastore of the same text is built on top of the fine-tuned model. All of them translate the test text, and
another text that has nothing to do with it, which shows what each of them forgets.
"""

from __future__ import annotations

import argparse
import random
import resource
import shutil
import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from knnmt.measure.evaluation import TOKENIZERS, Scores, paired_bootstrap
from knnmt.models.batching import batches_by_tokens
from knnmt.models.translation_model import TranslationModel, load_model, model_folder
from sacrebleu.metrics.bleu import BLEU

from steps import Json, Steps, Text, cut, options, read_json, read_lines, said, write_json

TOKENS = 512  # padded tokens of a batch: the store's time is short, and few large updates would waste it
WARMUP = 5  # updates
SMOOTHING = 0.1  # of labels, as these models were trained with
HELD_OUT = 20  # every so many pairs judge the learning rates
WEIGHTS = ("*.safetensors", "*.bin", "complete")
SEED = 0
KNN, BASE = "knn.txt", "base.txt"  # what a system with a store makes of a text, and one without

Pair = tuple[list[int], list[int]]


@dataclass(frozen=True)
class Place:
    """Where a model is saved."""

    folder: Path
    likelihood: float  # of held-out pairs, the mean logarithm of a token's probability
    updates: int


def tuned_models(
    name: str, languages: Sequence[str], text: Text, rate: float, stops: Sequence[float], to: Path
) -> Json:
    """Fine-tune at one learning rate and save the model at each of some processor times; what was reached there."""
    loaded = load_model(name, source_lang=languages[0], target_lang=languages[1])
    model = replace(loaded, network=deepcopy(loaded.network))  # whoever else has the network keeps it as it is
    pairs = encoded(model, text)
    held = [pair for number, pair in enumerate(pairs) if not number % HELD_OUT]
    batches = endless([pair for number, pair in enumerate(pairs) if number % HELD_OUT])
    trainer, reached = Trainer(model, rate), []
    for stop in stops:
        while trainer.seconds < stop:
            trainer.update(next(batches))
        folder = to / f"{rate:g}-{stop:.0f}"
        saved(model, folder)
        about = {"seconds": stop, "folder": str(folder), "updates": trainer.updates}
        reached.append(about | {"likelihood": trainer.likelihood(held)})
    return {"rate": rate, "reached": reached}


def encoded(model: TranslationModel, text: Text) -> list[Pair]:
    sources, targets = ([line.rstrip("\n") for line in read_lines(path)] for path in text)
    found = zip(model.encode_sources(sources), model.encode_targets(targets), strict=True)
    return [pair for pair in found if max(map(len, pair)) < min(200, model.positions)]


def endless(pairs: list[Pair]) -> Iterator[list[Pair]]:
    """Batches of similar length in random order, again and again."""
    order = random.Random(SEED)
    lengths = [max(map(len, pair)) for pair in pairs]
    while True:
        batches = list(batches_by_tokens(lengths, TOKENS))
        order.shuffle(batches)
        for batch in batches:
            yield [pairs[row] for row in batch]


class Trainer:
    """Updates all weights of a model; `seconds` is the processor time that updates took."""

    def __init__(self, model: TranslationModel, rate: float) -> None:
        self.model, self.rate, self.seconds, self.updates = model, rate, 0.0, 0
        self.network: Any = model.network
        learned = [(name, value) for name, value in model.network.named_parameters() if "embed_positions" not in name]
        for _, value in learned:
            value.requires_grad_(True)
        self.optimizer = torch.optim.AdamW([value for _, value in learned], lr=rate, weight_decay=0.0)
        torch.manual_seed(SEED)

    def update(self, batch: list[Pair]) -> None:
        began = time.process_time()
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * min(1.0, (self.updates + 1) / WARMUP)
        self.network.train()
        loss = self.loss(batch, smoothing=SMOOTHING)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.updates += 1
        self.seconds += time.process_time() - began

    def loss(self, batch: list[Pair], *, smoothing: float = 0.0) -> torch.Tensor:
        first = len(self.model.decoder_prefix) - 1
        targets = [target for _, target in batch]
        inputs = self.model.teacher_forcing([source for source, _ in batch], targets)
        logits = self.network(**inputs, use_cache=False).logits
        labels = torch.full(logits.shape[:2], -100)
        for row, target in enumerate(targets):
            labels[row, first : first + len(target)] = torch.tensor(target)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=smoothing)

    @torch.inference_mode()
    def likelihood(self, pairs: list[Pair]) -> float:
        self.network.eval()
        total = tokens = 0.0
        for batch in batches_by_tokens([max(map(len, pair)) for pair in pairs], TOKENS):
            rows = [pairs[row] for row in batch]
            count = sum(len(target) for _, target in rows)
            total, tokens = total - float(self.loss(rows)) * count, tokens + count
        return total / tokens


def saved(model: TranslationModel, folder: Path) -> None:
    """The model in a folder, its tokenizer's files as they were."""
    source = Path(model_folder(model.name))
    shutil.rmtree(folder, ignore_errors=True)
    if source.is_dir():
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns(*WEIGHTS))
    else:
        model.tokenizer.save_pretrained(folder)
    network: Any = model.network
    network.save_pretrained(folder)


class Comparison:
    """One text and one model."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.steps = given, Steps.of(given)
        text = self.steps.text(given.train, given.languages)
        self.name = f"finetuning-{given.name}"
        self.text = cut(text, given.output / "texts", f"{self.name}-{given.pairs}", 0, given.pairs)
        self.tests = {"own": self.steps.text(given.test, given.languages)}
        if given.foreign != "none":
            self.tests["foreign"] = self.foreign()

    def foreign(self) -> Text:
        """A text of another kind; where nobody has translated it, only its source."""
        stem = self.given.corpora / self.given.foreign
        source = next(path for path in stem.parent.iterdir() if path.name == f"{stem.name}.{self.given.languages[0]}")
        target = source.with_suffix(f".{self.given.languages[1]}")
        return source, target if target.is_file() else source

    def store(self, name: str, model: str) -> tuple[Path, float]:
        """A store of the text, with the processor time that it took."""
        record = self.steps.record(f"seconds-{name}")
        before = children_seconds()
        languages = ("--source-lang", self.given.languages[0], "--target-lang", self.given.languages[1])
        store = replace(self.steps, model=model).build(name, [self.text], *languages)
        if not record.is_file():
            write_json(record, {"seconds": children_seconds() - before})
        return store, float(read_json(record)["seconds"])

    def rows(self) -> list[Json]:
        given = self.given
        store, seconds = self.store(f"{self.name}-store", given.model)
        rows = [self.row("datastore", seconds, store=store)]
        rows.append(self.row("the same datastore, fixed values", seconds, store=store, mixing=("--mixing", "fixed")))
        best = self.finetuned([seconds * times for times in given.times])
        tuned = [
            f"fine-tuned, {times:g} × the time, rate {rate:g}, {place.updates:,} updates"
            for times, (rate, place) in zip(given.times, best, strict=True)
        ]
        for times, about, (_, place) in zip(given.times, tuned, best, strict=True):
            rows.append(self.row(about, seconds * times, model=str(place.folder)))
        for times, about, (_, place) in zip(given.times, tuned, best, strict=True):
            store, more = self.store(f"{self.name}-top-{times:g}", str(place.folder))
            rows.append(self.row(f"datastore on top of {times:g} ×", seconds * times + more, store=store, on=about))
        return rows

    def finetuned(self, stops: list[float]) -> list[tuple[float, Place]]:
        """For each processor time, the learning rate that reached most, and its model."""
        found = [self.at_rate(rate, stops) for rate in self.given.rates]
        best = []
        for at in range(len(stops)):
            one = max(found, key=lambda run: run["reached"][at]["likelihood"])
            reached = one["reached"][at]
            best.append((one["rate"], Place(Path(reached["folder"]), reached["likelihood"], reached["updates"])))
        return best

    def at_rate(self, rate: float, stops: list[float]) -> Json:
        record = self.steps.record(f"{self.name}-rate-{rate:g}")
        if not record.is_file() or [reached["seconds"] for reached in read_json(record)["reached"]] != stops:
            folder = self.given.output / "models" / self.name
            write_json(record, tuned_models(self.given.model, self.given.languages, self.text, rate, stops, folder))
        return read_json(record)

    def row(
        self,
        what: str,
        seconds: float,
        *,
        store: Path | None = None,
        model: str = "",
        mixing: Sequence[str] = (),
        on: str = "",
    ) -> Json:
        """BLEU on both texts, beside the model as it was; `on` is the system that a store was put on top of."""
        found: Json = {"system": what, "seconds": round(seconds)}
        for name, test in self.tests.items():
            pairs = zip(("--source-lang", "--target-lang"), self.given.languages, strict=True)
            languages = [word for pair in pairs for word in pair]
            base, printed_base = self.steps.base(test, self.given.languages)
            chosen = ["--store", store, *mixing, "--against", base] if store else ["--model", model, *languages]
            made = self.made(name, what)
            command = ("evaluate", *chosen, *self.steps.test_options(test), "--save", made)
            printed = self.steps.once(f"{self.name}-{name}-{slug(what)}", [store] if store else [], *command)
            scored: Json = printed["knn" if store else "base"]
            found |= {f"{name}_bleu": scored["bleu"], f"{name}_chrf": scored["chrf"], "sentences": printed["sentences"]}
            found[f"{name}_base"] = printed_base["base"]["bleu"]
            found["signature"] = printed["signature"]
            first = self.made(name, "datastore") / KNN
            translations = made / (KNN if store else BASE)
            if translations != first:
                found[f"{name}_p"] = self.p_value(test, first, translations)
            if on:
                found[f"{name}_p_on"] = self.p_value(test, self.made(name, on) / BASE, translations)
        return found

    def made(self, test: str, what: str) -> Path:
        """The folder with a system's translations."""
        return Path(self.given.output / "made" / f"{self.name}-{test}-{slug(what)}")

    def p_value(self, test: Text, *translations: Path) -> float | None:
        """Of the difference between two systems, by paired bootstrap."""
        references = [line.rstrip("\n") for line in read_lines(test[1])]
        both = [[line.rstrip("\n") for line in read_lines(path)] for path in translations]
        tokenizer = TOKENIZERS.get(self.given.languages[1], "13a")
        bleu = BLEU(tokenize=tokenizer, references=[references[: len(both[0])]])
        return paired_bootstrap(bleu, *(Scores(0.0, 0.0, None, texts) for texts in both))


def slug(text: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in text)


def children_seconds() -> float:
    """Processor time of the commands that were run."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__)
    parser.add_argument("--name", default="koran", help="of the results, where there are several models or texts")
    parser.add_argument("--languages", nargs=2, default=["de", "en"], metavar=("SOURCE", "TARGET"))
    parser.add_argument("--train", default="koran/train")
    parser.add_argument("--test", default="koran/test")
    parser.add_argument("--foreign", default="general/newstest2017", help="a text of another kind, or none")
    parser.add_argument("--pairs", type=int, default=5000)
    parser.add_argument("--times", type=float, nargs="+", default=[1.0, 3.0, 10.0])
    parser.add_argument("--rates", type=float, nargs="+", default=[2e-5, 1e-4, 5e-4])
    given: Any = parser.parse_args(arguments)
    comparison = Comparison(given)
    recipe = "finetuning" if given.name == "koran" else f"finetuning-{given.name}"
    comparison.steps.save(recipe, said(parser, given, "finetuning"), comparison.rows())


if __name__ == "__main__":
    main()
