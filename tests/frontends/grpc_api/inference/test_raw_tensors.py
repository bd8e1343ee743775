from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from zmqtriton_frontends.grpc_api.inference.raw_tensors import split_raw
from zmqtriton_protos import message

REQUEST = message("inference.ModelInferRequest")

requests = st.builds(
    lambda name, request_id, inputs, raw: REQUEST(
        model_name=name,
        id=request_id,
        inputs=[{"name": n, "datatype": "FP32", "shape": s} for n, s in inputs],
        raw_input_contents=raw,
    ),
    st.text(st.characters(codec="utf-8"), max_size=200),
    st.text(st.characters(codec="utf-8"), max_size=5),
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8"), max_size=5),
            st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
        ),
        max_size=3,
    ),
    st.lists(st.binary(max_size=400), max_size=5),
)


def joined(parts: tuple[bytes, list[memoryview]]) -> Any:
    rest, raw = parts
    request = REQUEST.FromString(rest)
    assert len(request.raw_input_contents) == 0
    request.raw_input_contents.extend(bytes(r) for r in raw)
    return request


@given(requests)
def test_what_is_split_is_what_protobuf_reads(request_: Any) -> None:
    parts = split_raw(request_.SerializeToString())

    assert parts is not None
    assert joined(parts) == request_


def test_the_raw_contents_are_not_copied() -> None:
    data = REQUEST(raw_input_contents=[b"x" * 1000]).SerializeToString()

    parts = split_raw(data)

    assert parts is not None
    (raw,) = parts[1]
    assert raw.obj is data


@given(st.binary(max_size=60), requests, st.integers(0, 3000))
def test_nothing_is_read_into_bytes_that_protobuf_refuses(
    noise: bytes, request_: Any, cut: int
) -> None:
    whole = request_.SerializeToString()
    data = whole[: cut % (len(whole) + 1)] + noise

    parts = split_raw(data)

    if parts is None:
        return
    try:
        expected = REQUEST.FromString(data)
    except DecodeError:
        with pytest.raises(DecodeError):
            REQUEST.FromString(parts[0])
    else:
        assert joined(parts) == expected


@pytest.mark.parametrize(
    "data",
    [
        b"\x3a\x05abc",  # a raw tensor that ends too late
        b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",  # one of nearly 2**70 bytes
        b"\x3a",  # no length
        b"\x80" * 30,  # a tag without end
        b"\x3b\x3c",  # a group
        b"\x3a\x00" * 1000,  # more fields than are looked at
    ],
)
def test_what_is_not_understood_is_left_to_protobuf(data: bytes) -> None:
    assert split_raw(data) is None
