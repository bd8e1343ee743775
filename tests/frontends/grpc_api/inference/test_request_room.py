"""Room in the ledger for requests that wait for their answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.faults.attacks.target import message_frames
from tests.frontends.grpc_api.fake_gateway import FakeCall, FakeGateway, version_info
from tests.frontends.grpc_api.serving import serving
from tests.support import raw_http2 as h2
from tests.support.scenarios import scenario
from tests.support.waiting import eventually
from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_frontends.gateway.streams import StreamItem
from zmqtriton_frontends.grpc_api.call import NoRequestRoomError
from zmqtriton_frontends.grpc_api.inference.infer import Inference
from zmqtriton_frontends.grpc_api.inference.stream_infer import Streaming
from zmqtriton_frontends.grpc_api.unary import Response
from zmqtriton_frontends.inference.admission import CheckedRequest
from zmqtriton_frontends.inference.load_on_demand import OnDemandLoader
from zmqtriton_frontends.process.ledger import Book, Share
from zmqtriton_protos import message

KIB, LIMIT = 1 << 10, 1 << 20
INFER = "/inference.GRPCInferenceService/ModelInfer"


class Held(FakeGateway):
    """A gateway that answers when it is told to."""

    def __init__(self) -> None:
        super().__init__(version_info("m"), version_info("d", decoupled=True))
        self.replies: list[Any] = []
        self.may_end = asyncio.Event()

    def begin(self, request: CheckedRequest, reply: Any) -> int:
        self.replies.append(reply)
        return len(self.replies)

    def cancel(self, own_id: int) -> None:
        """Do nothing: there is no task."""

    async def stream(self, request: CheckedRequest) -> Any:
        self.replies.append(None)
        await self.may_end.wait()
        yield StreamItem(None, None, True)


class Noted:
    """Keeps errors, and wants no response."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def set_result(self, response: Response, /) -> None:
        raise AssertionError(response)

    def set_exception(self, error: Exception, /) -> None:
        self.errors.append(error)


def written(model: str, *kib: int) -> bytes:
    """Return a request with tensors of these sizes."""
    request: Any = message("inference.ModelInferRequest")(model_name=model)
    for number, size in enumerate(kib):
        request.inputs.add(name=f"INPUT{number}", datatype="FP32", shape=[size * KIB // 4])
        request.raw_input_contents.append(bytes(size * KIB))
    return bytes(request.SerializeToString())


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


@pytest.mark.parametrize("model", ["m", "d"])
@scenario(asyncio.run)
async def test_requests_of_a_stream_have_room_until_they_are_answered(model: str) -> None:
    async def requests() -> AsyncIterator[Any]:
        for _ in range(30):
            yield written(model, 60)
        await asyncio.Event().wait()

    gateway, call, book = Held(), FakeCall(), Book(LIMIT)
    call.requests = Share(book)
    responses = Streaming(gateway).infer(requests(), call)
    answers = aiter(responses)
    try:
        await settle()

        begun = len(gateway.replies)
        assert 10 < begun < LIMIT // (60 * KIB)
        assert begun * 60 * KIB <= book.held + 8 * KIB <= LIMIT

        for reply in gateway.replies:
            if reply is not None:
                reply.set_exception(ZmqTritonError("no"))
        gateway.may_end.set()
        before = begun if model == "m" else 0  # those of the other have no message
        texts = [await asyncio.wait_for(anext(answers), 20) for _ in range(before + 1)]
        assert b"Too many large requests" in bytes(texts[-1])
        await settle()
        assert 0 == book.held
    finally:
        await responses.aclose()


@scenario(asyncio.run)
async def test_nothing_is_held_for_a_stream_that_is_closed() -> None:
    async def requests() -> AsyncIterator[Any]:
        yield written("m", 60)
        await asyncio.Event().wait()

    gateway, call, book = Held(), FakeCall(), Book(LIMIT)
    call.requests = Share(book)
    responses = Streaming(gateway).infer(requests(), call)
    await settle()
    assert book.held >= 52 * KIB

    await responses.aclose()

    assert 0 == book.held


@scenario(asyncio.run)
async def test_what_lies_in_shared_memory_takes_no_room_of_requests() -> None:
    gateway, call = Held(), FakeCall()
    answer: Any = None
    Inference(gateway).begin(written("m", INLINE_BYTES // KIB + 1), call, answer)
    assert 0 == call.requests.held

    Inference(gateway).begin(written("m", 40), call, answer)
    assert 40 * KIB <= call.requests.held <= 41 * KIB


@scenario(asyncio.run)
async def test_a_request_has_room_when_its_model_was_loaded_for_it() -> None:
    gateway, call, answer = Held(), FakeCall(), Noted()

    async def load(verb: str, arguments: dict[str, Any]) -> None:
        gateway.catalogue.update(version_info("late"))

    gateway.catalogue.demand = OnDemandLoader(load, 60.0)
    inference = Inference(gateway)
    pending = inference.begin(written("late", 40), call, answer)
    await settle()
    assert 40 * KIB <= call.requests.held <= 41 * KIB
    assert 1 == len(gateway.replies)
    pending.cancel()

    gateway.catalogue.forget("late")
    call.requests = Share(Book(16 * KIB))
    inference.begin(written("late", 40), call, answer)
    await settle()
    assert [NoRequestRoomError] == [type(error) for error in answer.errors]


def test_unary_requests_of_a_client_are_bounded_and_go_with_it() -> None:
    gateway = FakeGateway(version_info("m"), settings={"client_memory_byte_size": 8 * LIMIT})
    with serving(gateway) as server:
        gateway.gate = server.run_function(asyncio.Event)
        with h2.Connection(server.port) as client:
            data = written("m", 60)
            for number in range(1, 400, 2):
                begun = h2.headers_frame(number, INFER)
                client.send(begun, message_frames(number, data, is_last=True))

            client.send(h2.frame(h2.PING, 0, 0, b"the last"))
            client.read_until(b"the last")
            assert 2 * LIMIT < server.ledger.requests.held <= 8 * LIMIT
            assert 35 < len(gateway.requests) < 140

        eventually(lambda: server.ledger.requests.held == 0, within_s=20)
        server.run_function(gateway.gate.set)
