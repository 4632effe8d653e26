"""One language pair: the model's own training text as datastore, tested on general text."""

from __future__ import annotations

from collections.abc import Sequence

from steps import Steps, cut, entries_of, options, row, said


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__)
    parser.add_argument("--languages", nargs=2, default=["de", "en"], metavar=("SOURCE", "TARGET"))
    parser.add_argument("--train", default="general/train", help="the model's training text")
    parser.add_argument("--pairs", type=int, default=100_000, help="of it that become the datastore")
    parser.add_argument("--dev", default="general/flores-dev", help="to tune on")
    tests = ["general/newstest2017", "general/europarl-test", "general/tatoeba-test"]
    parser.add_argument("--tests", nargs="+", default=tests)
    given = parser.parse_args(arguments)
    steps = Steps.of(given)
    name = f"{given.train.split('/')[0]}-{given.pairs}"  # as domains.py calls the same text, and then the same store
    train = cut(steps.text(given.train, given.languages), given.output / "texts", name, 0, given.pairs)
    store = steps.build(name, [train])
    tuned = steps.tune("single-pair", store, steps.text(given.dev, given.languages))
    rows = []
    for test in given.tests:
        name = test.rsplit("/", 1)[-1]
        evaluation = steps.evaluate(f"single-pair-{name}", [store], steps.text(test, given.languages), *tuned)
        rows.append(
            row(evaluation, test=name, memory=f"{given.pairs:,} pairs of {given.train}", entries=entries_of(store))
        )
    steps.save("single_pair", said(parser, given, "single_pair"), rows)


if __name__ == "__main__":
    main()
