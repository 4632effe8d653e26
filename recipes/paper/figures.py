"""Figures 2 and 3 and the cost: BLEU and speed over k and temperature, datastore size, clusters searched and beams."""

from __future__ import annotations

import csv
from collections.abc import Sequence

from steps import Steps, knnmt, options, said, words


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__, beam="1,2,5", sentences=500)
    parser.add_argument("--domain", default="koran")
    parser.add_argument("--languages", nargs=2, default=["de", "en"], metavar=("SOURCE", "TARGET"))
    parser.add_argument("--k", default="1,2,4,8,16,32,64")
    parser.add_argument("--temperature", default="1,10,100")
    parser.add_argument("--sizes", default="0.03,0.1,0.3,1")
    parser.add_argument("--nprobe", default="1,4,16,32", help="or none, for an index without clusters")
    parser.add_argument("--weight", default="0.5", help="for all points, whatever the store was tuned to")
    given = parser.parse_args(arguments)
    steps = Steps.of(given)
    store = steps.build(given.domain, [steps.text(f"{given.domain}/train", given.languages)])
    source, target = steps.text(f"{given.domain}/dev", given.languages)
    table = given.output / "results" / "figures.csv"
    axes = ["--k", given.k, "--temperature", given.temperature, "--sizes", given.sizes, "--beam", given.beam]
    axes += [] if given.nprobe == "none" else ["--nprobe", given.nprobe]
    files = ["--output", table, "--plot", table.with_suffix(".png")]
    text = ["--source", source, "--target", target, "--limit", given.sentences, "--weight", given.weight]
    print(knnmt(*words("sweep", store, *text, *axes, *files)))
    with table.open(encoding="utf-8", newline="") as opened:
        steps.save("figures", said(parser, given, "figures"), list(csv.DictReader(opened)))


if __name__ == "__main__":
    main()
