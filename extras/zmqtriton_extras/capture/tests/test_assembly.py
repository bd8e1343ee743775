"""Frames of requests, and the records that they make."""

from __future__ import annotations

from typing import Any

import pytest

from zmqtriton_extras.capture.frames import (
    END,
    LENGTHS,
    REQUEST,
    RESPONSE,
    Frame,
    decode,
    encode,
)
from zmqtriton_extras.capture.process.assembly import Assembly, Budget
from zmqtriton_floor.wire import Tensor

FP32 = 11


def request(number: int, size: int = 4, **details: Any) -> Frame:
    tensor = Tensor("X", FP32, [size // 4], b"\1" * size)
    return Frame(REQUEST, number, {"model": "m", "dropped": {}, **details}, [tensor], size)


def response(number: int, size: int = 4) -> Frame:
    return Frame(RESPONSE, number, {}, [Tensor("Y", FP32, [size // 4], b"\2" * size)], size)


def end(number: int, *, is_cut: bool = False) -> Frame:
    return Frame(END, number, {"is_cut": is_cut})


def test_a_frame_comes_as_it_was_sent() -> None:
    tensors = [
        Tensor("A", FP32, [2], memoryview(b"12345678")),
        Tensor("in a client's memory", FP32, [9], None),
        Tensor("ü", 13, [0], b""),
    ]
    data = encode(
        [
            Frame(REQUEST, 7, {}, tensors[:1]),
            Frame(RESPONSE, 7, {"parameters": {"a": 1.5}}, tensors),
        ]
    )

    header, size = LENGTHS.unpack_from(data)
    at = LENGTHS.size + header
    assert len(data) == at + size
    first, frame = decode(data[LENGTHS.size : at], data[at:])

    assert tensors[:1] == [*first.tensors]
    assert frame[:3] == (RESPONSE, 7, {"parameters": {"a": 1.5}})
    assert tensors == [*frame.tensors]


def test_a_request_takes_room_for_its_names_and_parameters_too() -> None:
    budget = Budget(20_000)
    assembly = Assembly(budget)
    details = {"model": "m", "dropped": {}, "parameters": {"p": "x" * 1000}}
    for number in range(5):
        data = encode([Frame(REQUEST, number, details)])
        header, _ = LENGTHS.unpack_from(data)
        assembly.take(*decode(data[LENGTHS.size : LENGTHS.size + header], b""))

    assert assembly.dropped == {"m": 3}
    assert 2000 < budget.held <= 20_000


def test_requests_end_in_any_order_with_their_own_responses() -> None:
    assembly = Assembly(Budget(1000))
    for frame in (request(1), request(2), response(2), response(1, 8), response(2)):
        assert assembly.take(frame) is None

    captures = [assembly.take(end(2)), assembly.take(end(1))]

    assert [capture.request.id for capture in captures if capture is not None] == [2, 1]
    assert [
        [len(frame.tensors[0].data) for frame in capture.responses]
        for capture in captures
        if capture is not None
    ] == [[4, 4], [8]]
    assert assembly.dropped == {}


@pytest.mark.parametrize("frame", [request(2, 800), response(1, 800)])
def test_what_is_beyond_the_budget_is_dropped_whole_and_counted(frame: Frame) -> None:
    budget = Budget(600)
    assembly = Assembly(budget)
    assembly.take(request(1, 400))
    assembly.take(frame)

    assert (frame.id == 1) == (assembly.take(end(1)) is None)
    assert assembly.take(end(frame.id)) is None
    assert assembly.dropped == {"m": 1}


def test_what_a_frontend_has_dropped_or_cut_is_counted_and_takes_no_room() -> None:
    budget = Budget(1000)
    assembly = Assembly(budget)
    assembly.take(request(1, dropped={"other": 3}))
    assembly.take(response(1))

    assert assembly.take(end(1, is_cut=True)) is None
    assert assembly.dropped == {"other": 3, "m": 1}
    assert budget.held == 0


def test_a_frontend_that_has_gone_leaves_nothing() -> None:
    budget = Budget(1000)
    assembly = Assembly(budget)
    assembly.take(request(1))

    assembly.close()

    assert budget.held == 0
    assert assembly.dropped == {"m": 1}
