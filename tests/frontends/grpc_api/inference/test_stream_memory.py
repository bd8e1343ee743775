"""The memory of a stream: nothing of requests that are under way."""

from __future__ import annotations

import asyncio
import random
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.frontends.grpc_api.fake_gateway import FakeCall, FakeGateway, version_info
from zmqtriton_floor.wire import ResponseBody, Tensor
from zmqtriton_frontends.gateway.streams import StreamItem
from zmqtriton_frontends.grpc_api.inference.response import Pieces
from zmqtriton_frontends.grpc_api.inference.stream_infer import Streaming
from zmqtriton_frontends.inference.admission import CheckedRequest
from zmqtriton_protos import message

REQUEST = message("inference.ModelInferRequest")


class Memory(bytearray):
    """A message that can be watched."""


class Silent(FakeGateway):
    """A gateway that keeps no request, and answers none."""

    def __init__(self) -> None:
        super().__init__(version_info("m"), version_info("d", decoupled=True))
        self.sizes: list[int] = []

    def begin(self, request: CheckedRequest, reply: Any) -> int:
        self.sizes.append(len(request.body.inputs[0].data))
        return len(self.sizes)

    def cancel(self, own_id: int) -> None:
        """Do nothing: there is no task."""

    async def stream(self, request: CheckedRequest) -> Any:
        self.begin(request, None)
        del request
        await asyncio.Event().wait()
        yield StreamItem(None, None, True)


def written(model: str, count: int) -> Memory:
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [count]}
    request: Any = REQUEST(model_name=model, inputs=[tensor], raw_input_contents=[bytes(4 * count)])
    return Memory(request.SerializeToString())


@pytest.mark.parametrize("model", ["m", "d"])
def test_no_tensor_is_kept_until_its_request_is_answered(model: str) -> None:
    watched: list[weakref.ref[Memory]] = []

    async def requests() -> AsyncIterator[Any]:
        for count in (10_000, 1):
            requests = [written(model, count)]
            watched.append(weakref.ref(requests[0]))
            yield requests.pop()
        await asyncio.Event().wait()

    async def run() -> None:
        gateway = Silent()
        responses = Streaming(gateway).infer(requests(), FakeCall())
        try:
            for _ in range(20):
                await asyncio.sleep(0)

            assert [40_000, 4] == gateway.sizes
            assert watched[0]() is None
        finally:
            await responses.aclose()

    asyncio.run(run())


def test_a_large_response_is_not_copied_while_its_client_reads() -> None:
    whole = Tensor("OUTPUT0", 11, [75_000], bytes(300_000))

    async def requests() -> AsyncIterator[Any]:
        for _ in range(2):
            yield written("m", 1)

    async def run() -> None:
        gateway = FakeGateway(version_info("m"))
        gateway.respond = lambda request: ResponseBody({}, [whole])
        responses = Streaming(gateway).infer(requests(), FakeCall())
        for _ in range(20):
            await asyncio.sleep(0)

        first, second = [message async for message in responses]

        assert isinstance(first, Pieces)
        assert any(len(part) == 300_000 for part in first.parts)
        assert isinstance(second, bytes), "it has waited for the first one"
        assert (len(second), second) == (len(first), bytes(first))
        await responses.aclose()

    asyncio.run(run())


def test_a_very_large_response_that_waits_is_to_be_copied_step_by_step() -> None:
    whole = Tensor("OUTPUT0", 11, [3 << 18], bytes(3 << 20))

    async def requests() -> AsyncIterator[Any]:
        for _ in range(2):
            yield written("m", 1)

    async def run() -> None:
        gateway, call = FakeGateway(version_info("m")), FakeCall()
        gateway.respond = lambda request: ResponseBody({}, [whole])
        responses = Streaming(gateway).infer(requests(), call)

        messages = [message async for message in responses]

        assert [Pieces, Pieces] == [type(each) for each in messages]
        assert 1 == len(call.works), "the first one does not wait"
        await responses.aclose()

    asyncio.run(run())


def test_a_message_is_copied_as_long_as_somebody_has_it() -> None:
    lies_in = bytearray(random.Random(1).randbytes(3 << 20))
    message = Pieces([b"head", memoryview(lies_in)], 4 + len(lies_in))
    step = message.steps_of_copy()

    assert step()
    assert b"head" + lies_in == bytes(message)
    del message
    assert not step()
