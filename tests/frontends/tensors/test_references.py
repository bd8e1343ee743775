"""Which responses may refer to memory: those of which the broker says that it has looked."""

from __future__ import annotations

import pytest

from zmqtriton_floor import wire
from zmqtriton_floor.errors import ProtocolError
from zmqtriton_floor.wire import Reference, ResponseBody, Tensor
from zmqtriton_frontends.tensors.references import PlacedBody, read_response
from zmqtriton_stub.memory.tensor_forwarding import check_placed

LARGE = Tensor("T", 11, [25_000], Reference(2, 1, 1, 0, 100_000))
SMALL = Tensor("T", 11, [1], b"\0\0\0\0")


def test_a_response_that_was_checked_may_refer_to_memory() -> None:
    body = ResponseBody({}, [SMALL, LARGE])

    assert body == read_response(PlacedBody(wire.encode_body(body)))


def test_another_may_not() -> None:
    with pytest.raises(ProtocolError, match="refers to memory"):
        read_response(wire.encode_body(ResponseBody({}, [SMALL, LARGE])))

    small = ResponseBody({}, [SMALL])
    assert small == read_response(wire.encode_body(small))


def test_what_a_model_asks_may_refer_to_memory_if_that_was_checked() -> None:
    check_placed([SMALL, LARGE], wire.UNCHECKED | wire.HAS_REFERENCES)
    check_placed([SMALL], wire.UNCHECKED)

    with pytest.raises(ProtocolError, match="memory"):
        check_placed([SMALL, LARGE], wire.UNCHECKED)
