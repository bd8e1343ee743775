"""The handler of ModelStreamInfer without a transport; the test is the client."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from tests.frontends.fake_gateway import echo, failing, version_info
from tests.frontends.grpc_api.fake_gateway import (
    FakeCall,
    FakeGateway,
    Silent,
    infer_request,
    written,
)
from tests.support.garbage import Watched
from tests.support.scenarios import scenario
from tests.support.streams import failure, final, item
from tests.support.waiting import loop_turns
from zmqtriton_floor.errors import InternalError, NotFound, Unavailable, ZmqTritonError
from zmqtriton_floor.settings.codec import encode
from zmqtriton_floor.settings.tracing import Sampling, TracingSettings
from zmqtriton_floor.wire import ResponseBody, Tensor
from zmqtriton_frontends.entrance.entrance import Entrance
from zmqtriton_frontends.gateway.streams import StreamItem
from zmqtriton_frontends.grpc_api.inference import stream_infer
from zmqtriton_frontends.grpc_api.inference.infer import Messages
from zmqtriton_frontends.grpc_api.inference.response import Pieces
from zmqtriton_frontends.grpc_api.inference.stream_infer import Streaming
from zmqtriton_frontends.inference.admission import FEW_ELEMENTS, CheckedRequest
from zmqtriton_frontends.inference.request_trace import Trace
from zmqtriton_frontends.process import turns
from zmqtriton_frontends.process.turns import RequestShares
from zmqtriton_protos import message

RESPONSE = message("inference.ModelStreamInferResponse")
EMPTY_FINAL = "triton_enable_empty_final_response"


class Conversation:
    """One stream: what the test sends and what it has got."""

    def __init__(
        self,
        gateway: FakeGateway,
        call: FakeCall | None = None,
        streaming: Streaming | None = None,
    ) -> None:
        self.gateway = gateway
        self.streaming = streaming or Streaming(gateway)
        self._sent: asyncio.Queue[bytes | None] = asyncio.Queue()
        #: How many requests the handler has read.
        self.read = 0
        self.responses = self.streaming.infer(self._requests(), call or FakeCall())

    async def _requests(self) -> AsyncIterator[bytes]:
        while (data := await self._sent.get()) is not None:
            self.read += 1
            yield data

    def send(self, *requests: Any) -> None:
        for one in requests:
            self._sent.put_nowait(one if isinstance(one, bytes) else one.SerializeToString())

    def half_close(self) -> None:
        self._sent.put_nowait(None)

    def ask(self, *requests: Any) -> None:
        """Send all the requests that there will be."""
        self.send(*requests)
        self.half_close()

    async def answers(self, *requests: Any) -> list[Any]:
        self.ask(*requests)
        return await self.rest()

    async def get(self) -> Any:
        return RESPONSE.FromString(bytes(await anext(aiter(self.responses))))

    async def rest(self) -> list[Any]:
        return [RESPONSE.FromString(bytes(data)) async for data in self.responses]


def converse(test: Callable[[Conversation], Coroutine[Any, Any, None]], **call: Any) -> FakeGateway:
    """Runs the test with a gateway of three plain models and a decoupled one."""

    async def run() -> FakeGateway:
        models = (
            version_info("m"),
            version_info("n", version=3),
            version_info("d", decoupled=True),
            version_info("s", "STRING"),
        )
        gateway = FakeGateway(*models, settings=call.get("settings"))
        fake_call = FakeCall()
        fake_call.metadata = call.get("metadata", [])
        conversation = Conversation(gateway, fake_call)
        try:
            await asyncio.wait_for(test(conversation), 10)
        finally:
            await conversation.responses.aclose()
            await loop_turns(10)
        return gateway

    return asyncio.run(run())


def is_final(response: Any) -> bool:
    parameter = response.infer_response.parameters["triton_final_response"]
    assert parameter.WhichOneof("parameter_choice") == "bool_param"
    return bool(parameter.bool_param)


def text(response: Any) -> bytes:
    return bytes(response.infer_response.raw_output_contents[0][4:])


# ------------------------------------------------------------------- responses


@pytest.mark.row("D33")
@scenario(converse)
async def test_a_plain_model_answers_once_and_its_response_is_final(
    conversation: Conversation, /
) -> None:
    (response,) = await conversation.answers(infer_request("n", "7"))

    assert response.error_message == ""
    inner = response.infer_response
    assert (inner.id, inner.model_name, inner.model_version) == ("7", "n", "3")
    assert ("OUTPUT0", "FP32") == (inner.outputs[0].name, inner.outputs[0].datatype)
    assert ([1], [b"abcd"]) == (list(inner.outputs[0].shape), list(inner.raw_output_contents))
    assert is_final(response)


@scenario(converse)
async def test_a_fault_amid_one_request_is_its_error_and_the_stream_goes_on(
    conversation: Conversation, /
) -> None:
    catalogue: Any = conversation.gateway.catalogue
    find = catalogue.find
    catalogue.find = lambda *target: find(*target) if target[0] == "m" else 1 // 0
    failed, answered = await conversation.answers(infer_request("n", "1"), infer_request("m", "2"))

    assert "the server failed to answer" in failed.error_message
    assert "2" == answered.infer_response.id


def test_a_stream_that_ends_before_its_requests_begin_leaves_nothing_behind() -> None:
    async def run() -> None:
        gateway = FakeGateway(version_info("m"), version_info("d", decoupled=True))
        entrance, shares = Entrance(gateway, "RECV", "SEND"), RequestShares()
        # closed from outside, amid what it reads: a call does it when its loop ends
        exchange = stream_infer._Exchange(gateway, entrance, Messages(), shares, FakeCall())
        for model in ("m", "d", "nobody"):
            exchange._begin(written(model, "1"))
        reading = exchange._reading = asyncio.create_task(loop_turns(10))
        await exchange.aclose()
        await asyncio.wait([reading])
        await loop_turns(10)
        assert ([], (0, 0)) == (gateway.requests, (shares.requests, shares.clients))

    asyncio.run(run())
    gc.collect()  # a coroutine that was made and not begun would be an error of its own


def sent_ids(conversation: Conversation) -> list[str]:
    return [request.body.request_id for request in conversation.gateway.requests]


@pytest.mark.row("D31", "D38")
@scenario(converse)
async def test_a_request_that_waits_for_memory_is_not_overtaken(
    conversation: Conversation, /
) -> None:
    room = asyncio.Event()
    conversation.gateway.placements["large"] = room.wait
    conversation.ask(
        infer_request("m", "large", 50_000), infer_request("d", "next"), infer_request("m", "last")
    )
    answers = asyncio.ensure_future(conversation.get())
    await loop_turns(10)
    assert [] == sent_ids(conversation)

    room.set()
    await answers
    conversation.gateway.fake_streams.put("next", final())
    await conversation.rest()

    assert ["large", "next", "last"] == sent_ids(conversation)


@scenario(converse)
async def test_a_large_request_that_is_never_asked_does_not_stop_the_others(
    conversation: Conversation, /
) -> None:
    async def fail() -> None:
        raise Unavailable("no memory")

    conversation.gateway.placements = {"large": fail, "last": fail}
    assert ["no memory"] * 2 == [
        r.error_message
        for r in await conversation.answers(
            infer_request("m", "large", 50_000), infer_request("m", "last", 50_000)
        )
    ]


@scenario(converse)
async def test_plain_requests_and_refusals_come_in_their_order_whatever_is_first(
    conversation: Conversation, /
) -> None:
    gates = conversation.gateway.gates
    gates["0"] = asyncio.Event()
    conversation.ask(infer_request("m", "0"), infer_request("n", "1"), infer_request("nope", "2"))
    reading = asyncio.ensure_future(conversation.rest())
    await loop_turns(10)
    assert len(conversation.gateway.requests) == 2
    assert not reading.done()

    gates["0"].set()

    assert ["0", "1", "2"] == [r.infer_response.id for r in await reading]


@scenario(converse)
async def test_requests_reach_the_gateway_in_their_order(conversation: Conversation, /) -> None:
    ids = [str(number) for number in range(200)]
    await conversation.answers(*(infer_request("m", one) for one in ids))

    assert ids == [r.body.request_id for r in conversation.gateway.requests]


@pytest.mark.row("D33", "D31")
@scenario(converse)
async def test_decoupled_responses_come_as_they_are_made(conversation: Conversation, /) -> None:
    feeds = conversation.gateway.fake_streams
    conversation.send(infer_request("d", "a"), infer_request("d", "b"))

    got = []
    for request_id, one in (
        ("b", item(b"b0")),
        ("a", item(b"a0")),
        ("b", item(b"b1", is_final=True)),
        ("a", item(b"a1", is_final=True)),
    ):
        feeds.put(request_id, one)
        response = await conversation.get()
        got.append((response.infer_response.id, text(response), is_final(response)))

    assert got == [
        ("b", b"b0", False),
        ("a", b"a0", False),
        ("b", b"b1", True),
        ("a", b"a1", True),
    ]


@scenario(converse)
async def test_a_decoupled_request_does_not_wait_for_a_plain_one_before_it(
    conversation: Conversation, /
) -> None:
    conversation.gateway.gate = asyncio.Event()
    conversation.gateway.fake_streams.put("b", item(b"x", is_final=True))
    conversation.send(infer_request("m", "a"), infer_request("d", "b"))

    assert (await conversation.get()).infer_response.id == "b"


@pytest.mark.row("D34")
@pytest.mark.parametrize("is_final_wanted", [True, False])
@scenario(converse)
async def test_an_end_without_a_response_is_sent_to_those_who_want_it(
    conversation: Conversation, /, is_final_wanted: bool
) -> None:
    conversation.gateway.fake_streams.put("a", item(b"x"), final())
    stream_request = infer_request("d", "a")
    stream_request.parameters[EMPTY_FINAL].bool_param = is_final_wanted
    responses = await conversation.answers(stream_request)

    assert [False, True][: 1 + is_final_wanted] == [is_final(r) for r in responses]
    if is_final_wanted:
        inner = responses[1].infer_response
        assert (inner.id, inner.model_name, inner.model_version) == ("a", "d", "")
        assert not inner.outputs
        assert not inner.raw_output_contents
    assert conversation.gateway.requests[0].body.parameters == {}


@scenario(converse)
async def test_parameters_of_a_response_stand_beside_the_final_one(
    conversation: Conversation, /
) -> None:
    own = item(b"x", is_final=True, tokens=3, triton_final_response=False)
    conversation.gateway.fake_streams.put("a", own)
    conversation.send(infer_request("d", "a"))

    response = await conversation.get()

    assert response.infer_response.parameters["tokens"].int64_param == 3
    assert is_final(response)


# ---------------------------------------------------------------------- errors


@pytest.mark.row("D30")
@scenario(converse)
async def test_what_is_wrong_with_a_request_is_a_message_and_the_stream_goes_on(
    conversation: Conversation, /
) -> None:
    unreadable, unknown, lacking, good = await conversation.answers(
        b"\xff\xff",
        infer_request("nope", "a"),
        infer_request("m", "b", raw_input_contents=[]),
        infer_request("m", "c"),
    )

    assert "failed to parse the request" in unreadable.error_message
    assert unknown.error_message == "Request for unknown model: 'nope' is not found"
    assert ("a", "") == (unknown.infer_response.id, unknown.infer_response.model_name)
    assert lacking.error_message == (
        "unable to find data for input tensor 'INPUT0' for model 'm' in request."
    )
    assert lacking.infer_response.id == "b"
    assert ("", "c") == (good.error_message, good.infer_response.id)


@pytest.mark.row("D30")
@scenario(converse)
async def test_an_error_of_a_plain_model_names_the_model(conversation: Conversation, /) -> None:
    conversation.gateway.respond = failing(InternalError("no luck"))
    conversation.send(infer_request("n", "a"))

    response = await conversation.get()

    assert response.error_message == "no luck"
    inner = response.infer_response
    assert (inner.id, inner.model_name, inner.model_version) == ("a", "n", "")
    assert is_final(response)


@scenario(converse)
async def test_an_error_amid_a_decoupled_stream_is_one_of_its_responses(
    conversation: Conversation, /
) -> None:
    conversation.gateway.fake_streams.put(
        "a", item(b"x"), failure(NotFound("lost")), item(b"y", is_final=True)
    )
    first, second, third = await conversation.answers(infer_request("d", "a"))

    assert text(first) == b"x"
    assert ("lost", "d") == (second.error_message, second.infer_response.model_name)
    assert text(third) == b"y"
    assert [False, False, True] == [is_final(r) for r in (first, second, third)]


@scenario(converse)
async def test_a_fault_of_ours_ends_one_request_alone(
    conversation: Conversation, /, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(checked: CheckedRequest) -> ResponseBody:
        if checked.body.request_id == "a":
            raise ZeroDivisionError
        return echo(checked)

    conversation.gateway.respond = fail
    responses = {
        r.infer_response.id: r.error_message
        for r in await conversation.answers(infer_request("m", "a"), infer_request("m", "b"))
    }

    assert responses == {
        "a": "the server failed to answer; its log says why",
        "b": "",
    }
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.row("D35")
def test_a_client_may_have_the_first_error_end_the_stream() -> None:
    async def test(conversation: Conversation) -> None:
        conversation.gateway.fake_streams.put(
            "a", item(b"x"), failure(NotFound("lost")), item(b"y")
        )
        conversation.send(infer_request("d", "b"), infer_request("d", "a"))

        assert text(await conversation.get()) == b"x"
        with pytest.raises(NotFound, match="lost"):
            await conversation.get()

    gateway = converse(test, metadata=[("triton_grpc_error", "true")])
    assert gateway.fake_streams.cancelled == ["b", "a"]


@scenario(converse, metadata=[("triton_grpc_error", "true")])
async def test_a_refusal_ends_such_a_stream_too(conversation: Conversation, /) -> None:
    conversation.send(infer_request("nope", "a"))

    with pytest.raises(ZmqTritonError, match="unknown model"):
        await conversation.get()


# ---------------------------------------------------------------- ends and flow


@scenario(converse)
async def test_a_stream_without_requests_ends(conversation: Conversation, /) -> None:
    conversation.half_close()

    assert await conversation.rest() == []


@pytest.mark.row("D37")
@scenario(converse)
async def test_a_client_that_does_not_read_stops_its_models_streams_and_loses_nothing(
    conversation: Conversation, /
) -> None:
    feeds = conversation.gateway.fake_streams
    feeds.put("a", *(item(b"%d" % number) for number in range(1000)), final())
    conversation.ask(infer_request("d", "a"))
    got = [text(await conversation.get())]
    await loop_turns(10)

    assert feeds.consumed["a"] < 100
    got += [text(response) for response in await conversation.rest()]
    assert [b"%d" % number for number in range(1000)] == got


@scenario(converse)
async def test_a_stream_that_floods_leaves_others_their_turn(conversation: Conversation, /) -> None:
    feeds = conversation.gateway.fake_streams
    feeds.put("loud", *(item(b"!") for _ in range(1000)), final())
    conversation.send(infer_request("d", "loud"), infer_request("d", "quiet"))
    for _ in range(100):
        await conversation.get()

    feeds.put("quiet", item(b"."))

    following = [await conversation.get() for _ in range(140)]
    assert "quiet" in [response.infer_response.id for response in following]


@pytest.mark.slow
@scenario(converse)
async def test_no_more_requests_are_read_than_can_be_under_way(
    conversation: Conversation, /
) -> None:
    gate = conversation.gateway.gate = asyncio.Event()
    conversation.ask(*(infer_request("m", str(number)) for number in range(1500)))
    reading = asyncio.ensure_future(conversation.rest())
    await loop_turns(10)
    assert conversation.read == 1024

    gate.set()

    assert len(await reading) == 1500


@scenario(converse)
async def test_streams_with_many_requests_have_their_share_of_those_of_the_process(
    conversation: Conversation, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (turns, stream_infer):
        monkeypatch.setattr(module, "MAX_REQUESTS", 40)
    gate = conversation.gateway.gate = asyncio.Event()
    streaming, gateway = conversation.streaming, conversation.gateway
    streams = [conversation, *(Conversation(gateway, streaming=streaming) for _ in range(4))]
    for stream in streams:
        stream.ask(*(infer_request("m", str(number)) for number in range(100)))
    reading = [asyncio.ensure_future(stream.rest()) for stream in streams[:-1]]
    await loop_turns(10)
    assert [8, 10, 14, 20, 40] == sorted(stream.read for stream in streams)

    await streams[-1].responses.aclose()
    gate.set()

    assert [100] * 4 == [len(await each) for each in reading]
    # what has ended would only grow
    assert (0, 0) == (streaming._shares.requests, streaming._shares.clients)


@pytest.mark.slow
@scenario(converse)
async def test_large_requests_fill_a_stream_sooner(conversation: Conversation, /) -> None:
    conversation.gateway.gate = asyncio.Event()
    conversation.send(*[written("m", "", 8 << 20)] * 4)
    reading = asyncio.ensure_future(conversation.get())
    await loop_turns(10)

    assert conversation.read == 2
    reading.cancel()


@scenario(asyncio.run)
async def test_a_transport_that_breaks_ends_the_stream() -> None:
    async def broken() -> AsyncIterator[bytes]:
        raise ConnectionError("gone")
        yield b""

    responses = Streaming(FakeGateway()).infer(broken(), FakeCall())

    with pytest.raises(ConnectionError, match="gone"):
        await anext(aiter(responses))


@pytest.mark.row("D45", "--grpc-header-forward-pattern")
@scenario(
    converse,
    metadata=[("x-key", "v"), ("other", "w")],
    settings={"grpc_header_forward_pattern": "^x-"},
)
async def test_metadata_of_the_call_become_parameters_of_each_request(
    conversation: Conversation, /
) -> None:
    await conversation.answers(infer_request("m", "1"), infer_request("m", "2"))

    assert [{"x-key": "v"}, {"x-key": "v"}] == [
        checked.body.parameters for checked in conversation.gateway.requests
    ]


@pytest.mark.row("C55")
@scenario(converse)
async def test_outputs_of_a_stream_may_become_classes(conversation: Conversation, /) -> None:
    output = {"name": "OUTPUT0", "parameters": {"classification": {"int64_param": 1}}}
    conversation.send(infer_request("m", "", outputs=[output], raw_input_contents=[bytes(4)]))
    conversation.send(infer_request("d", "", outputs=[output], raw_input_contents=[bytes(4)]))

    assert b"0.000000:0" == text(await conversation.get())
    number = StreamItem(ResponseBody({}, [Tensor("OUTPUT0", 11, [1], bytes(4))]), None, False)
    conversation.gateway.fake_streams.put("", number, number._replace(is_final=True))
    assert [b"0.000000:0"] * 2 == [text(await conversation.get()) for _ in range(2)]


@scenario(converse)
async def test_each_request_of_a_stream_has_its_trace_which_ends_with_its_answer(
    conversation: Conversation, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[str] = []
    monkeypatch.setattr(Trace, "end", lambda trace, sending: ends.append(sending))
    all_of_them = Sampling("", ("TIMESTAMPS",), 1, -1, 0, "all")
    conversation.gateway.traces.change(encode(TracingSettings("triton", (all_of_them,))))
    conversation.gateway.fake_streams.put("2", final())

    await conversation.answers(infer_request("m", "1"), infer_request("d", "2"))

    assert ["GRPC_SEND"] * 2 == ends


# ------------------------------------------------------------------- quiet end


@pytest.mark.parametrize("quiet_s", [0.0, 600.0])
@scenario(converse)
async def test_a_stream_ends_when_all_is_answered_and_its_client_is_quiet(
    conversation: Conversation, /, quiet_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_infer, "QUIET_S", quiet_s)

    streams = conversation.gateway.fake_streams
    streams.put("a", item(b"x"))
    conversation.send(infer_request("d", "a"))
    await conversation.get()

    conversation.streaming.drain()
    streams.put("b", item(b"z", is_final=True))
    conversation.send(infer_request("d", "b"))
    assert text(await conversation.get()) == b"z"
    streams.put("a", item(b"y", is_final=True))

    assert text(await conversation.get()) == b"y"
    if quiet_s:
        conversation.half_close()
        assert [] == await conversation.rest()
    else:
        with pytest.raises(Unavailable, match="GRPC server is shutting down"):
            await conversation.get()


# ------------------------------------------------------------------- memory


async def two_requests() -> AsyncIterator[bytes]:
    for _ in range(2):
        yield written()


@pytest.mark.parametrize("model", ["m", "d"])
@scenario(asyncio.run)
async def test_no_tensor_is_kept_until_its_request_is_answered(model: str) -> None:
    watched: list[weakref.ref[Watched]] = []

    async def requests() -> AsyncIterator[Any]:
        for count in (10_000, 1):
            requests = [Watched(written(model, "", count))]
            watched.append(weakref.ref(requests[0]))
            yield requests.pop()
        await asyncio.Event().wait()

    gateway = Silent()
    responses = Streaming(gateway).infer(requests(), FakeCall())
    try:
        await loop_turns(20)

        assert [40_000, 4] == gateway.sizes
        assert watched[0]() is None
    finally:
        await responses.aclose()


@scenario(asyncio.run)
async def test_a_large_response_is_not_copied_while_its_client_reads() -> None:
    whole = Tensor("OUTPUT0", 11, [75_000], bytes(300_000))

    gateway = FakeGateway(version_info("m"))
    gateway.respond = lambda request: ResponseBody({}, [whole])
    responses = Streaming(gateway).infer(two_requests(), FakeCall())
    await loop_turns(20)

    first, second = [message async for message in responses]

    assert isinstance(first, Pieces)
    assert any(len(part) == 300_000 for part in first.parts)
    assert isinstance(second, bytes), "it has waited for the first one"
    assert (len(second), second) == (len(first), bytes(first))
    await responses.aclose()


@scenario(asyncio.run)
async def test_a_very_large_response_that_waits_is_to_be_copied_step_by_step() -> None:
    whole = Tensor("OUTPUT0", 11, [3 << 18], bytes(3 << 20))

    gateway, call = FakeGateway(version_info("m")), FakeCall()
    gateway.respond = lambda request: ResponseBody({}, [whole])
    responses = Streaming(gateway).infer(two_requests(), call)

    assert [Pieces, Pieces] == [type(each) for each in [message async for message in responses]]
    assert 1 == len(call.works), "the first one does not wait"
    await responses.aclose()


def test_a_message_is_copied_as_long_as_somebody_has_it() -> None:
    lies_in = bytearray(random.Random(1).randbytes(3 << 20))
    message = Pieces([b"head", memoryview(lies_in)], 4 + len(lies_in))
    step = message.steps_of_copy()

    assert step()
    assert b"head" + lies_in == bytes(message)
    del message
    assert not step()


@scenario(converse)
async def test_requests_do_not_overtake_one_whose_strings_take_long_to_count(
    conversation: Conversation, /
) -> None:
    many = FEW_ELEMENTS + 1
    strings = {"name": "INPUT0", "datatype": "BYTES", "shape": [many]}
    first = infer_request("s", "1", inputs=[strings], raw_input_contents=[bytes(4 * many)])

    answers = await conversation.answers(first, infer_request())

    assert ["1", ""] == [answer.infer_response.id for answer in answers]
    assert ["", ""] == [answer.error_message for answer in answers]
