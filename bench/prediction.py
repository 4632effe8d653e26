"""The model of docs/scale.md: what a store will cost, from the rows of two smaller ones.

Clusters are found by comparing with the middles of groups, whose number grows with that of clusters, and then with as
many codes whatever the size. Codes of the clusters searched are scanned one by one.
"""

from typing import Any

from bench.filling import QUERIES
from knnmt.search.groups import MEMBERS

Row = dict[str, Any]
ID_BYTES = 8
CODE_FACTORS = 8  # bytes of a one-bit code beside its bits
TOLERANCE = 0.25


def predicted(smaller: Row, larger: Row, entries: int, clusters: int, nprobe: int) -> Row:
    """The row of a store of so many entries; `larger` has groups of clusters, as the store will have."""
    dimension = larger["dimension"]
    code = dimension / 8 + CODE_FACTORS + ID_BYTES
    middles = (clusters - larger["clusters"]) / MEMBERS * larger["middle_nanoseconds"]
    scanned = QUERIES * nprobe * entries / clusters
    return {
        "gigabytes": (code * entries + 4 * dimension * clusters) / 1e9,
        "train_seconds": training(smaller, larger, clusters),
        "assign_microseconds_a_key": larger["assign_microseconds_a_key"] + middles / 1e3,
        "write_microseconds_a_key": larger["write_microseconds_a_key"],
        "warm_processor_milliseconds": larger["finding_milliseconds"]
        + middles * QUERIES / 1e6
        + scanned * (code_time(smaller) + code_time(larger)) / 2,
    }


def training(smaller: Row, larger: Row, clusters: int) -> float:
    """Seconds to train on so many keys a cluster: for each, some time and some that grows with √ clusters."""
    one, other = (row["train_seconds"] / row["clusters"] for row in (smaller, larger))
    steeply = (other - one) / (larger["clusters"] ** 0.5 - smaller["clusters"] ** 0.5)
    return float(clusters * (other + steeply * (clusters**0.5 - larger["clusters"] ** 0.5)))


def code_time(row: Row) -> float:
    """Milliseconds for one code that is scanned."""
    scanned = QUERIES * row["nprobe"] * row["entries"] / row["clusters"]
    return float((row["warm_processor_milliseconds"] - row["finding_milliseconds"]) / scanned)


def compared(rows: list[Row]) -> list[Row]:
    """Of three rows or more, the last beside what the two before it predict."""
    smaller, larger, last = rows[-3:]
    told = predicted(smaller, larger, last["entries"], last["clusters"], last["nprobe"])
    return [
        {"what": name, "predicted": round(value, 2), "measured": last[name], "ratio": round(value / last[name], 2)}
        for name, value in told.items()
    ]
