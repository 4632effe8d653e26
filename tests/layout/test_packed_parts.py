"""Small parts are one file, in the format of safetensors."""

import io
import json
from typing import Any

import hypothesis.extra.numpy as nps
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from safetensors.numpy import load

from knnmt.layout.packed_parts import KINDS, read_packed, write_packed

SHAPES = nps.array_shapes(max_dims=2, min_side=0, max_side=4)
KINDS_DRAWN = st.sampled_from([kind for kind in KINDS.values() if kind is not np.float16])
HALVES = nps.arrays(np.float16, SHAPES, elements=st.floats(-9, 9, width=16))
ARRAYS = st.dictionaries(
    st.text("abc", min_size=1), HALVES | KINDS_DRAWN.flatmap(lambda kind: nps.arrays(kind, SHAPES)), max_size=6
)


def packed(arrays: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    write_packed(file, arrays)
    return file.getvalue()


@given(ARRAYS)
def test_what_is_written_is_read_by_us_and_by_safetensors(arrays: dict[str, Any]) -> None:
    content = packed(arrays)
    for read in (read_packed(content), load(content)):
        assert set(read) == set(arrays)
        for name, array in arrays.items():
            assert read[name].dtype == array.dtype
            np.testing.assert_array_equal(read[name], array)


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [2, 2]},
        {"shape": [-3]},
        {"shape": [True]},
        {"data_offsets": [0, 99]},
        {"data_offsets": [4, 0]},
        {"dtype": "F99"},
        {"shape": None},
    ],
    ids=str,
)
def test_a_header_that_does_not_fit_is_refused(change: dict[str, Any]) -> None:
    content = packed({"a": np.arange(3, dtype=np.int32)})
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["a"] |= change
    text = json.dumps(header).encode()
    with pytest.raises((ValueError, KeyError, TypeError)):
        read_packed(len(text).to_bytes(8, "little") + text + content[8 + length :])


@pytest.mark.parametrize("content", [b"", b"\xff" * 20, b"\x02" + b"\0" * 7 + b"{}"])
def test_other_files(content: bytes) -> None:
    try:
        assert read_packed(content) == {}
    except ValueError:
        assert content != b"\x02" + b"\0" * 7 + b"{}"
