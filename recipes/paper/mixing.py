"""Ways to mix, without any dev text: each memory on text of its own kind, and on text that it is not about.

The learned head and the fixed values are those that `knnmt build` fitted to the memory alone. On the memory's own kind
of text they are compared with fixed values that were tuned on dev text. A text without translations is scored against
what the model alone makes of it, so that 100 BLEU says that nothing was changed.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from steps import HALF, Json, Steps, Text, cut, entries_of, find, options, said

HAD = ("learned", "fixed", "paper")  # kinds of mixing that every store has


class Mixing:
    """The memories, the texts, and each way to mix on them."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.steps = Steps.of(given)
        self.prefix = "" if given.name == "mixing" else f"{given.name.removeprefix('mixing-')}-"

    def rows(self) -> Iterator[Json]:
        stores = {domain: self.store(domain) for domain in self.given.domains}
        tests = {domain: self.dev_and_test(domain)[1] for domain in stores}
        for domain, store in stores.items():
            yield self.row(domain, domain, store, tests[domain], self.given.kinds) | self.tuned(domain, store)
            for other in self.given.domains:
                if other != domain:
                    yield self.row(domain, other, store, tests[other], self.given.foreign_kinds)
            for name in self.given.foreign:
                text, against = self.foreign_text(name)
                yield self.row(domain, Path(name).name, store, text, self.given.foreign_kinds, against)

    def store(self, domain: str) -> Path:
        texts = self.steps.text(f"{domain}/train", self.given.languages)
        name = f"{self.prefix}{domain}-mixing"
        limit = ("--limit", self.given.pairs) if self.given.pairs else ()
        return self.steps.build(name, [texts], *limit)

    def dev_and_test(self, domain: str) -> tuple[Text, Text]:
        return self.steps.dev_and_test(domain, self.given.languages, half=self.given.half)

    def row(self, memory: str, text: str, store: Path, test: Text, kinds: str, against: Path | None = None) -> Json:
        """One text with each way to mix beside the model alone."""
        systems: Json = {}
        first: Json = {}
        for group in groups(kinds.split(",")):
            name = f"{store.name}-on-{text}-{'-'.join(group)}"
            printed = self.steps.evaluate(name, [store], test, "--mixing", ",".join(group), against=against)
            first = first or printed
            systems |= {kind: known for kind, known in systems_of(printed, group).items() if kind not in systems}
        about = {"memory": memory, "text": text, "own": memory == text, "entries": entries_of(store)}
        base = {name: first["base"][name] for name in ("bleu", "chrf")}
        return about | {
            "base": base, "systems": systems, "sentences": first["sentences"], "signature": first["signature"],
        }  # fmt: skip

    def tuned(self, domain: str, store: Path) -> Json:
        """Fixed values that were tuned on dev text, of a copy: the store itself keeps what was fitted to it."""
        dev, test = self.dev_and_test(domain)
        if not self.given.tuned:
            return {}
        copy = copied(store, store.with_name(f"{store.name}-tuned"))
        chosen = self.steps.tune(copy.name, copy, dev)
        printed = self.steps.evaluate(f"{copy.name}-on-{domain}", [store], test, *chosen)
        knn = printed["knn"]
        return {"tuned": {"bleu": knn["bleu"], "chrf": knn["chrf"], "options": " ".join(chosen)}}

    def foreign_text(self, name: str) -> tuple[Text, Path | None]:
        """A text and its translations, and what to compare with; without translations, those of the model alone."""
        if not self.given.unreferenced:
            return self.steps.text(name, self.given.languages), None
        whole = find(self.given.corpora / name, self.given.languages[0])
        lines, _ = cut((whole, whole), self.steps.output / "texts", name.replace("/", "-"), 0, self.given.sentences)
        base, _ = self.steps.base((lines, lines), ())
        return (lines, base), base


def groups(kinds: Sequence[str]) -> list[list[str]]:
    """What is evaluated by one command: each kind that a store has, and those that are fitted for a comparison."""
    alone, others = [kind for kind in kinds if kind in HAD], [kind for kind in kinds if kind not in HAD]
    together = [others if len(others) > 1 else ["learned", *others]] if others else []
    return [[kind] for kind in alone] + together


def systems_of(printed: Json, kinds: Sequence[str]) -> dict[str, Json]:
    """The scores of each kind: several are compared, one is evaluated."""
    one = printed["knn"] | {"p_value": printed["p_value"], "signature": printed["signature"]["knnmt"]}
    found = printed.get("mixing") or {kinds[0]: one}
    wanted = ("bleu", "chrf", "p_value", "signature")
    return {kind: {name: known[name] for name in wanted} for kind, known in found.items()}


def copied(store: Path, to: Path) -> Path:
    if not to.exists():
        partial = to.with_name(f".{to.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(store, partial)
        partial.rename(to)
    return to


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__)
    parser.add_argument("--name", default="mixing", help="of the results, where there are several models")
    parser.add_argument("--languages", nargs=2, default=["de", "en"], metavar=("SOURCE", "TARGET"))
    parser.add_argument("--domains", nargs="+", default=["koran", "it", "medical", "law"])
    parser.add_argument("--foreign", nargs="*", default=["general/newstest2017"], help="texts of no memory's kind")
    parser.add_argument("--unreferenced", action="store_true", help="the foreign texts have no translations")
    parser.add_argument("--pairs", type=int, help="of each memory at most")
    parser.add_argument("--kinds", default="learned,fixed,paper", help="on text of the memory's kind")
    parser.add_argument("--foreign-kinds", default="learned,fixed", help="on other text")
    parser.add_argument("--half", type=int, default=HALF, help="dev lines to tune on, where there is no test text")
    parser.add_argument("--no-tuned", dest="tuned", action="store_false", help="without fixed values tuned on dev text")
    given: Any = parser.parse_args(arguments)
    mixing = Mixing(given)
    mixing.steps.save(given.name, said(parser, given, "mixing"), list(mixing.rows()))


if __name__ == "__main__":
    main()
