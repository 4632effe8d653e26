"""`KNNMT_PLAIN`: switches fast paths off, to find out whether one of them causes a fault.

`KNNMT_PLAIN=packed,int8` leaves out two of them, `KNNMT_PLAIN=all` every one. Each has a plain twin that gives the same
up to rounding. A path that is not taken says why in the log, at level DEBUG.
"""

import os

from knnmt.errors import SettingsError

VARIABLE = "KNNMT_PLAIN"
FAST_PATHS = {
    "packed": "linear layers multiply weights that oneDNN laid out beforehand",
    "direct": "a Marian network is run by its weights, without transformers' calls around them",
    "compiled": "a Marian decoder's step over few rows is one graph, run by ONNX Runtime",
    "halves": "weights stored in half precision are read so by the projection, for few rows",
    "int8": "a large vocabulary is projected in int8 first; the best candidates are computed anew in float32",
    "forced": "given translations are projected at their own positions alone, in int8 first where translation does so",
    "asked": "model and neighbours are mixed only in those rows of a batch for which the memory was asked",
    "centroids": "the nearest clusters are found by codes of their centroids",
    "turns": "while one batch waits for the shards of a cluster, another one is decoded",
    "lines": "shards of a cluster are asked over connections of their own, without Ray's calls",
    "groups": "of very many clusters, only those in the nearest groups are looked at",
}


def left_out(path: str) -> bool:
    """Whether `KNNMT_PLAIN` switches this fast path off."""
    assert path in FAST_PATHS, path
    named = {name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()}
    for name in sorted(named - {"all", *FAST_PATHS}):
        raise SettingsError(f"{VARIABLE}: {name!r} is no fast path; there are all, {', '.join(FAST_PATHS)}")
    return path in named or "all" in named
