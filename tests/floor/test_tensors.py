"""Datatypes and the BYTES codec."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqtriton_floor import datatypes, tensors


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_bytes_elements_go_there_and_back(elements: list[bytes]) -> None:
    array = np.array([*elements, None], dtype=np.object_)[:-1]

    assert elements == tensors.decode_bytes(tensors.encode_bytes(array))


@pytest.mark.parametrize("datatype", [d for d in datatypes.DATATYPES if d.size and d.numpy])
def test_numpy_arrays_go_there_and_back_and_are_writable(datatype: datatypes.Datatype) -> None:
    array = np.arange(6).reshape(2, 3).astype(datatype.numpy)

    back = tensors.to_numpy(datatype.number, [2, 3], tensors.from_numpy(array))

    assert back.dtype == array.dtype
    assert np.array_equal(array, back)
    assert back.flags.writeable


def test_strings_come_back_as_bytes() -> None:
    array = np.array([["a", b"\xff\x00"], [1, ""]], dtype=np.object_)

    back = tensors.to_numpy(datatypes.BYTES, [2, 2], tensors.from_numpy(array))

    assert [[b"a", b"\xff\x00"], [b"1", b""]] == back.tolist()


def test_fixed_width_strings_are_bytes() -> None:
    array = np.array([b"ab", b"c"])

    assert datatypes.BYTES == tensors.datatype_of(array).number
    assert [b"ab", b"c"] == tensors.decode_bytes(tensors.from_numpy(array))


@pytest.mark.parametrize("data", [b"\x01", b"\x02\x00\x00\x00a", b"\x00\x00\x00\x00\x01"])
def test_broken_lengths_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="incomplete string"):
        tensors.decode_bytes(data)


def test_the_table_knows_each_type_by_all_its_names() -> None:
    assert 14 == len(datatypes.DATATYPES)
    for datatype in datatypes.DATATYPES:
        assert datatype is datatypes.BY_NAME[datatype.name]
        assert datatype is datatypes.BY_CONFIG_NAME[datatype.config_name]
        assert datatype is datatypes.BY_NUMBER[datatype.number]
