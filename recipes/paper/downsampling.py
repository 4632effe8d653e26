"""Down-sampling frequent target tokens: size, speed and BLEU of a store over the most entries of one token."""

from __future__ import annotations

from collections.abc import Sequence

from steps import Steps, facts, options, row, said


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__)
    parser.add_argument("--domain", default="koran")
    parser.add_argument("--languages", nargs=2, default=["de", "en"], metavar=("SOURCE", "TARGET"))
    parser.add_argument("--caps", nargs="+", type=int, default=[10_000, 1_000, 300, 100])
    parser.add_argument("--index", help="as for knnmt build; one index for all makes speeds comparable")
    given = parser.parse_args(arguments)
    steps = Steps.of(given)
    train, dev, test = (steps.text(f"{given.domain}/{split}", given.languages) for split in ("train", "dev", "test"))
    index = ("--index", given.index) if given.index else ()
    rows = []
    for cap in (None, *sorted(given.caps, reverse=True)):
        name = f"{given.domain}-cap-{cap or 'none'}" if cap or index else given.domain  # the last: domains.py's store
        store = steps.build(name, [train], *index, *(("--cap", cap) if cap else ()))
        evaluation = steps.evaluate(name, [store], test, *steps.tune(name, store, dev))
        said_of_it = facts(store)
        memory = f"at most {cap:,} entries of a token" if cap else "all entries"
        about = {"test": given.domain, "memory": memory, "entries": said_of_it["entries"], "bytes": said_of_it["bytes"]}
        rows.append(row(evaluation, **about))
    steps.save("downsampling", said(parser, given, "downsampling"), rows)


if __name__ == "__main__":
    main()
