from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from zmqtriton_floor import wire
from zmqtriton_floor.datatypes import BY_NAME
from zmqtriton_floor.errors import InvalidArgument, NotFound, Unsupported
from zmqtriton_frontends.http_api.inference import json_documents
from zmqtriton_frontends.http_api.inference.binary import Tail
from zmqtriton_frontends.http_api.inference.infer_request import read
from zmqtriton_frontends.inference.admission import Options

SCALARS: Any = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=6)


def some(**fields: Any) -> Any:
    """An object with some of these fields, each as it should be or anything at all."""
    return st.fixed_dictionaries(
        {}, optional={key: value | VALUES for key, value in fields.items()}
    )


INPUT = some(
    name=st.just("A"),
    datatype=st.sampled_from([*BY_NAME]),
    shape=st.lists(st.integers(0, 4), max_size=3),
    data=st.lists(st.integers(0, 1), max_size=4) | st.lists(SCALARS, max_size=4),
    parameters=some(binary_data_size=st.integers(0, 8), shared_memory_region=st.just("r")),
)
DOCUMENT = some(
    id=st.just("1"),
    parameters=some(
        sequence_id=st.integers(0, 9),
        sequence_start=st.booleans(),
        priority=st.integers(0, 9),
        timeout=st.integers(0, 9),
        binary_data_output=st.booleans(),
        own=SCALARS,
    ),
    inputs=st.lists(INPUT | VALUES, max_size=3),
    outputs=st.lists(some(name=st.just("B"), parameters=some(binary_data=st.booleans()))),
)


@given(DOCUMENT | VALUES, st.none() | st.binary(max_size=16))
def test_any_document_is_refused_or_becomes_what_the_wire_can_carry(
    document: Any, tail: bytes | None
) -> None:
    try:
        request, options, _ = read(document, None if tail is None else Tail(memoryview(tail), "m"))
    except (InvalidArgument, NotFound, Unsupported):
        return

    check_wire(request, options)


def check_wire(request: wire.RequestBody, options: Options) -> None:
    body = wire.decode_request(wire.encode_body(request))
    assert [bytes(t.data) for t in request.inputs] == [t.data for t in body.inputs]
    row = wire.Request(1, 1, "", -1, *options[:4], 0, 0, options.correlation)
    assert wire.decode(wire.encode(wire.Infer([row]))) == wire.Infer([row])


#: Texts that only some parsers take: lone surrogates, numbers beyond 64 bits, NaN.
ODD = SCALARS | st.integers() | st.sampled_from(["\ud800", "\udfff\ud800", 10**400, float("nan")])
ODD_INPUT = st.fixed_dictionaries(
    {
        "name": st.just("A"),
        "datatype": st.sampled_from([*BY_NAME]),
        "shape": st.lists(st.integers(0, 3), max_size=2),
        "data": st.recursive(ODD, lambda inner: st.lists(inner, max_size=4), max_leaves=6),
    }
)


@given(st.lists(ODD_INPUT, min_size=1, max_size=2), ODD)
def test_any_text_is_refused_or_becomes_what_the_wire_can_carry(inputs: Any, value: Any) -> None:
    text = json.dumps({"inputs": inputs, "parameters": {"own": value}, "id": value}).encode()

    try:
        request, options, _ = read(json_documents.parse(text), None)
    except InvalidArgument:
        return

    check_wire(request, options)
