"""Requests above max_batch_size that a model executes in parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.refusals import refusal
from zmqtriton_floor import wire
from zmqtriton_floor.datatypes import BY_NAME
from zmqtriton_floor.signature import Signature
from zmqtriton_stub.api.errors import TritonError, TritonModelException
from zmqtriton_stub.api.inference import InferenceRequest, InferenceResponse, received
from zmqtriton_stub.api.tensor import Tensor, received_tensor
from zmqtriton_stub.parts import divide_large

CONFIG: dict[str, Any] = {
    "name": "m",
    "max_batch_size": 4,
    "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [2]}],
    "parameters": {"SPLIT_BATCHES": {"string_value": "true"}},
}
BF16 = BY_NAME["BF16"].number


def divided(execute: Any, **more: Any) -> Any:
    instance: Any = SimpleNamespace(signature=Signature({**CONFIG, **more}))
    return divide_large(execute, instance)


class Served:
    """A request that the broker has sent, whose client may leave."""

    outputs: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.work = wire.BatchedRequest(0, 0, 1, 0, 0, 0, 0)
        self.is_cancelled = False

    def is_cancelled_now(self) -> bool:
        return self.is_cancelled


def request_of(*tensors: wire.Tensor, served: Served | None = None) -> InferenceRequest:
    pending: Any = served or Served()
    return received(pending, "r", {"key": 1}, tensors)


def numbers(rows: int) -> wire.Tensor:
    data = np.arange(2 * rows, dtype=np.float32)
    return wire.Tensor("X", BY_NAME["FP32"].number, [rows, 2], data.tobytes())


def echo(requests: list[InferenceRequest]) -> list[InferenceResponse]:
    return [InferenceResponse(one.inputs(), parameters={"n": 1}) for one in requests]


def rows_of(sizes: list[int]) -> Callable[..., Any]:
    """Return an execute() that notes how many rows each request has."""

    def execute(requests: list[InferenceRequest]) -> list[InferenceResponse]:
        sizes.extend(one.inputs()[0].shape()[0] for one in requests)
        assert all(one.request_id() == "r" and one.parameters() == '{"key":1}' for one in requests)
        return echo(requests)

    return execute


@pytest.mark.parametrize(("rows", "parts"), [(4, [4]), (5, [4, 1]), (8, [4, 4]), (11, [4, 4, 3])])
def test_the_parts_are_within_the_bound_and_joined_in_order(rows: int, parts: list[int]) -> None:
    sizes: list[int] = []

    [response] = divided(rows_of(sizes))([request_of(numbers(rows))])

    assert parts == sizes
    [joined] = response.output_tensors()
    assert np.arange(2 * rows, dtype=np.float32).tolist() == joined.as_numpy().ravel().tolist()
    assert '{"n":1}' == response.parameters()


def test_strings_and_types_without_numpy_are_joined() -> None:
    texts = np.array([[f"text {n}".encode()] for n in range(9)], np.object_)
    halves = np.arange(9, dtype=np.uint16)
    tensors = [
        Tensor("S", texts),
        received_tensor(wire.Tensor("B", BF16, [9, 1], halves.tobytes())),
    ]
    request = request_of()
    # a request of a broker has no others
    request._inputs = tensors

    [response] = divided(echo)([request])

    strings, numbers_ = response.output_tensors()
    assert texts.tolist() == strings.as_numpy().tolist()
    assert (BF16, [9, 1]) == (numbers_.triton_dtype(), numbers_.shape())
    assert halves.tobytes() == bytes(numbers_._data)  # numpy has no bfloat16


def test_the_error_of_a_part_is_that_of_the_request_and_the_last_part() -> None:
    sizes: list[int] = []

    def execute(requests: list[InferenceRequest]) -> list[InferenceResponse]:
        rows_of(sizes)(requests)
        if len(sizes) < 2:
            return echo(requests)
        return [InferenceResponse(error=TritonError("part two", TritonError.UNSUPPORTED))]

    [response] = divided(execute)([request_of(numbers(12))])

    assert ("part two", [4, 4]) == (response.error().message(), sizes)


def test_no_part_is_begun_after_the_client_has_left() -> None:
    sizes: list[int] = []
    served = Served()

    def execute(requests: list[InferenceRequest]) -> list[InferenceResponse]:
        served.is_cancelled = True
        assert requests[0].is_cancelled()
        return rows_of(sizes)(requests)

    [response] = divided(execute)([request_of(numbers(12), served=served)])

    assert ([4], "request was cancelled") == (sizes, response.error().message())
    assert TritonError.CANCELLED == response.error().code()


def test_coroutines_are_awaited_part_by_part() -> None:
    sizes: list[int] = []

    async def execute(requests: list[InferenceRequest]) -> list[InferenceResponse]:
        await asyncio.sleep(0)
        return rows_of(sizes)(requests)

    [response] = asyncio.run(divided(execute)([request_of(numbers(6))]))

    assert ([4, 2], [6, 2]) == (sizes, response.output_tensors()[0].shape())


@pytest.mark.parametrize(
    ("execute", "text"),
    [
        (lambda requests: None, "Expected a list with one InferenceResponse"),
        (lambda requests: [None], "Expected an 'InferenceResponse' object"),
        (
            lambda requests: [InferenceResponse([Tensor("Y", np.zeros([1, 2]))])],
            "The parts of output 'Y' cannot be joined: one has the shape [1, 2], which is not",
        ),
        (
            lambda requests: [
                InferenceResponse([Tensor(f"Y{len(one.inputs()[0].as_numpy())}", np.zeros([4]))])
                for one in requests
            ],
            "must have the same outputs: Y4 and Y2",
        ),
        (
            lambda requests: requests[0].get_response_sender().send(echo(requests)[0], 1),
            "execute() has to return its response",
        ),
    ],
)
def test_what_cannot_be_joined_is_an_error_of_the_model(execute: Any, text: str) -> None:
    assert text in refusal(TritonModelException, divided(execute), [request_of(numbers(6))])
