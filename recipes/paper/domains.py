"""Domain adaptation: each domain's test text with its own memory, with general text, and with all domains together.

All domains are searched in two ways that should agree: several stores at once, and one store made of all texts.
A domain without a test text is tuned on the first half of its dev text and tested on the second.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from steps import HALF, Json, Steps, Text, cut, entries_of, options, row, said


class Domains:
    """The stores, the texts and the conditions."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.steps = Steps.of(given)
        self.prefix = "" if given.name == "domains" else f"{given.name}-"
        self.texts = {domain: self.memory_text(domain, given.pairs) for domain in given.domains}
        if given.general != "none" and not given.in_domain_only:
            self.texts["general"] = self.memory_text(given.general, given.general_pairs)
        self.stores = {name: self.steps.build(self.store_name(name), [text]) for name, text in self.texts.items()}

    def store_name(self, name: str) -> str:
        """The general text's is also single_pair.py's, if that takes as much of it."""
        return f"{self.prefix}general-{self.given.general_pairs}" if name == "general" else f"{self.prefix}{name}"

    def memory_text(self, domain: str, pairs: int | None) -> Text:
        text = self.steps.text(f"{domain}/train", self.given.languages)
        return cut(text, self.given.output / "texts", f"{self.prefix}{domain}-{pairs}", 0, pairs) if pairs else text

    def rows(self, domain: str) -> list[Json]:
        """All conditions of one test text."""
        conditions: dict[str, tuple[list[Path], Path]] = {"in-domain": ([self.stores[domain]], self.stores[domain])}
        if "general" in self.stores:
            conditions["out-of-domain"] = ([self.stores["general"]], self.stores["general"])
        if len(self.stores) > 1 and not self.given.in_domain_only:
            joint = self.steps.join(f"{self.prefix}joint", list(self.stores.values()))
            # What is found in all stores together is what is found in the joint one, so its tuning serves both.
            conditions["all domains, several stores"] = (list(self.stores.values()), joint)
            conditions["all domains, one store"] = ([joint], joint)
        return [self.row(domain, name, *condition) for name, condition in conditions.items()]

    def row(self, domain: str, condition: str, stores: list[Path], tuned_on: Path) -> Json:
        dev, test = self.steps.dev_and_test(domain, self.given.languages, half=self.given.half)
        tuned = self.steps.tune(f"{domain}-with-{tuned_on.name}", tuned_on, dev)
        name = f"{domain}-with-{'-'.join(store.name for store in stores)}"
        entries = sum(entries_of(store) for store in stores)
        return row(self.steps.evaluate(name, stores, test, *tuned), test=domain, memory=condition, entries=entries)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__)
    parser.add_argument("--name", default="domains", help="of the results, where there are several models")
    parser.add_argument("--languages", nargs=2, default=["de", "en"], metavar=("SOURCE", "TARGET"))
    parser.add_argument("--domains", nargs="+", default=["koran", "it", "medical", "law"])
    parser.add_argument("--general", default="general", help="the out-of-domain text, or none")
    parser.add_argument("--pairs", type=int, help="of each domain at most")
    parser.add_argument("--general-pairs", type=int, default=100_000)
    parser.add_argument("--in-domain-only", action="store_true", help="each domain with its own memory, nothing else")
    parser.add_argument("--half", type=int, default=HALF, help="dev lines to tune on, where there is no test text")
    given = parser.parse_args(arguments)
    domains = Domains(given)
    rows = [row for domain in given.domains for row in domains.rows(domain)]
    domains.steps.save(given.name, said(parser, given, "domains"), rows)


if __name__ == "__main__":
    main()
