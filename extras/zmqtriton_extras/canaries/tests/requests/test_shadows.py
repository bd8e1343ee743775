"""Copies of requests: when they are sent, what becomes of their answers, and what they hold."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from tests.frontends.fake_gateway import tensor_config, version_info
from tests.frontends.gateway.awaited import infer
from tests.support.scenarios import scenario
from zmqtriton_extras.canaries import requests as division
from zmqtriton_extras.canaries.requests import Shadows
from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.errors import Unavailable
from zmqtriton_floor.wire import (
    WANT_STAGES,
    RequestBody,
    ResponseBody,
    Tensor,
    TrafficSplit,
    encode_body,
)
from zmqtriton_frontends.gateway.pending import Pending
from zmqtriton_frontends.inference.admission import CheckedRequest, Copy, SchedulingOptions, prepare
from zmqtriton_frontends.inference.catalogue import Catalogue
from zmqtriton_frontends.inference.client_regions import RegionContents

pytestmark = pytest.mark.slow

INPUT = {**tensor_config("X", "FP32", [-1]), "optional": True}


def answer(*values: float) -> ResponseBody:
    data = np.array(values, np.float32).tobytes()
    return ResponseBody({}, [Tensor("Y", 11, [len(values)], data)])


def input_of(data: Any) -> Tensor:
    """An input of one number."""
    return Tensor("X", 11, [1], data)


class FakePayload:
    """Knows what is lent by its kind alone."""

    def is_lent(self, data: Any) -> bool:
        return type(data) is RegionContents


class FakeGateway:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.payload: Any = FakePayload()
        self.catalogue: Any = None
        self.order: list[str] = []
        #: Requests of clients, and copies.
        self.requests: list[Pending] = []
        self.copies: list[Pending] = []
        #: What the copies ask.
        self.questions: list[CheckedRequest] = []
        self.cancelled: list[int] = []
        self.reports: list[dict[str, Any]] = []
        self.has_room = True

    def begin(self, request: CheckedRequest, reply: Pending) -> int | None:
        if request.copy is not None:
            self.order.append(f"version {request.model.version}")
            self.requests.append(reply)
            request.copy.send()
            return 1000 + len(self.requests)
        self.order.append(f"copy to version {request.model.version}")
        self.copies.append(reply)
        self.questions.append(request)
        return len(self.copies) if self.has_room else None

    async def begin_late(self, request: CheckedRequest, reply: Pending) -> int:
        raise AssertionError("a copy that has no room is skipped")

    def answer(self, response: ResponseBody) -> None:
        """Answer all that clients have asked."""
        requests, self.requests = self.requests, []
        for one in requests:
            one.set_result(encode_body(response))

    def cancel(self, own_id: int) -> None:
        self.cancelled.append(own_id)

    async def call(self, verb: str, arguments: dict[str, Any]) -> None:
        assert verb == "canary.compared"
        self.reports.append(arguments)


class Scene:
    def __init__(self) -> None:
        self.gateway = FakeGateway()
        gateway: Any = self.gateway
        self.shadows = Shadows(gateway)
        self.catalogue = Catalogue()
        self.catalogue.apply(TrafficSplit("m", 1, 2, 0, "", "", 10_000, "0.1"))
        for number in (1, 2):
            self.catalogue.apply(version_info("m", version=number, input=[INPUT]))

    def request(self, *inputs: Tensor, **options: int) -> CheckedRequest:
        """Return a request with its copy."""
        body, model = RequestBody("r", {}, [], list(inputs)), self.catalogue.find("m")
        request = prepare(self.catalogue, model, body, SchedulingOptions(**options))
        assert model.trial is not None
        return request._replace(copy=self.shadows.copy(request))

    def copy(self) -> Copy:
        copy = self.request().copy
        assert copy is not None
        return copy

    def ask(self, *inputs: Tensor, **options: int) -> asyncio.Task[ResponseBody]:
        return asyncio.ensure_future(infer(self.gateway, self.request(*inputs, **options)))

    async def results(self) -> dict[str, Any]:
        """Return what the supervisor is told next."""
        while not self.gateway.reports:
            await asyncio.sleep(0.01)
        report = self.gateway.reports.pop()
        assert (report.pop("model"), report.pop("version")) == ("m", 2)
        return report


def run(test: Callable[[Scene], Awaitable[None]]) -> None:
    async def scene() -> None:
        made = Scene()
        await asyncio.wait_for(test(made), 20)
        assert (made.shadows.copies, made.shadows._bytes) == (0, 0)

    asyncio.run(scene())


@pytest.mark.row("L16")
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((1.05,), {"equal": 1, "differences": []}),
        (
            (3.0,),
            {
                "different": 1,
                "differences": ["request 'r': output 'Y' differs in 1 of 1 elements, by up to 2"],
            },
        ),
    ],
)
@scenario(run)
async def test_the_copy_follows_the_request_and_its_answer_is_compared(
    scene: Scene, /, values: tuple[float, ...], expected: dict[str, Any]
) -> None:
    answering = scene.ask()
    await asyncio.sleep(0)
    assert scene.gateway.order == ["version 1", "copy to version 2"]

    scene.gateway.answer(answer(1.0))
    assert answer(1.0) == await answering
    scene.gateway.copies[0].set_result(encode_body(answer(*values)))
    assert expected == await scene.results()


@scenario(run)
async def test_a_canary_may_answer_first_or_fail(scene: Scene, /) -> None:
    answering = scene.ask()
    await asyncio.sleep(0)
    scene.gateway.copies[0].set_exception(Unavailable("no"))
    scene.gateway.answer(answer(1.0))
    assert answer(1.0) == await answering
    report = await scene.results()
    assert report == {"failed": 1, "differences": ["request 'r': no"]}


@pytest.mark.parametrize(("size", "under_way"), [(INLINE_BYTES, 0), (INLINE_BYTES + 4, 1)])
@scenario(run)
async def test_large_answers_are_compared_while_the_loop_goes_on(
    scene: Scene, /, size: int, under_way: int
) -> None:
    answering = scene.ask()
    await asyncio.sleep(0)
    long = answer(*[1.0] * (size // 4))
    scene.gateway.copies[0].set_result(encode_body(long))
    scene.gateway.answer(long)
    assert under_way == scene.shadows.copies
    await answering
    assert await scene.results() == {"equal": 1, "differences": []}


@scenario(run)
async def test_a_copy_whose_request_fails_or_is_cancelled_is_cancelled(scene: Scene, /) -> None:
    answering = scene.ask()
    await asyncio.sleep(0)
    scene.gateway.requests.pop().set_exception(Unavailable("gone"))
    with pytest.raises(Unavailable, match="gone"):
        await answering
    assert scene.gateway.cancelled == [1]

    answering = scene.ask()
    await asyncio.sleep(0)
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering
    assert scene.gateway.cancelled == [1, 1001, 2]
    # nobody wants these
    scene.gateway.copies[0].set_exception(Unavailable("late"))
    scene.gateway.copies[1].set_result(encode_body(answer(1.0)))
    assert await scene.results() == {"skipped": 2, "differences": []}


@scenario(run)
async def test_a_copy_that_has_ended_is_not_cancelled(scene: Scene, /) -> None:
    answering = scene.ask()
    await asyncio.sleep(0)
    scene.gateway.copies[0].set_exception(Unavailable("no"))
    scene.gateway.requests.pop().set_exception(Unavailable("gone"))
    with pytest.raises(Unavailable, match="gone"):
        await answering
    assert scene.gateway.cancelled == []
    assert await scene.results() == {"failed": 1, "differences": ["request 'r': no"]}


@scenario(run)
async def test_32_copies_are_under_way_at_most_and_others_skipped(scene: Scene, /) -> None:
    answering = [scene.ask() for _ in range(33)]
    await asyncio.sleep(0)
    assert len(scene.gateway.copies) == 32
    scene.gateway.answer(answer(1.0))
    await asyncio.gather(*answering)
    for copy in scene.gateway.copies:
        copy.set_result(encode_body(answer(1.0)))
    assert await scene.results() == {"skipped": 1, "equal": 32, "differences": []}


@scenario(run)
async def test_copies_hold_64_mib_at_most_and_what_has_no_room_is_cancelled(
    scene: Scene, /
) -> None:
    first, second = scene.copy(), scene.copy()
    first.send()
    second.send()

    first.take_stable(ResponseBody({}, [Tensor("Y", 6, [64 << 20], bytes(64 << 20))]))
    assert scene.gateway.cancelled == []
    second.take_stable(answer(1.0))
    assert scene.gateway.cancelled == [2]

    scene.gateway.copies[0].set_exception(Unavailable("no"))
    report = await scene.results()
    assert report == {"failed": 1, "skipped": 1, "differences": ["request 'r': no"]}


@scenario(run)
async def test_answers_beyond_the_bounds_are_not_kept(
    scene: Scene, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(division, "MAX_BYTES", 6)

    answering = scene.ask()
    await asyncio.sleep(0)
    scene.gateway.answer(answer(1.0))
    await answering
    scene.gateway.copies[0].set_result(encode_body(answer(1.0)))
    assert await scene.results() == {"skipped": 1, "differences": []}


@scenario(run)
async def test_a_copy_that_is_skipped_is_never_sent(scene: Scene, /) -> None:
    copy = scene.copy()
    copy.skip()
    copy.send()
    copy.drop()
    assert scene.gateway.copies == []
    assert await scene.results() == {"skipped": 1, "differences": []}


@scenario(run)
async def test_a_copy_whose_request_is_not_sent_is_neither_sent_nor_counted(
    scene: Scene, /
) -> None:
    copy = scene.copy()
    copy.drop()
    copy.send()
    assert scene.gateway.copies == []
    scene.copy().skip()
    assert await scene.results() == {"skipped": 1, "differences": []}


@scenario(run)
async def test_a_copy_asks_the_same_but_is_no_request_of_the_clients_token(scene: Scene, /) -> None:
    answering = scene.ask(input_of(b"abcd"), flags=WANT_STAGES, priority=2, token=3)
    await asyncio.sleep(0)
    [question] = scene.gateway.questions
    assert [input_of(b"abcd")] == question.body.inputs
    assert SchedulingOptions(priority=2) == question.options
    scene.gateway.answer(answer(1.0))
    await answering
    scene.gateway.copies[0].set_result(encode_body(answer(1.0)))
    assert await scene.results() == {"equal": 1, "differences": []}


@scenario(run)
async def test_inputs_that_a_client_may_change_meanwhile_are_not_copied(scene: Scene, /) -> None:
    region: Any = None  # nobody reads it

    answering = scene.ask(input_of(RegionContents(region, 0, 4)))
    await asyncio.sleep(0)
    assert scene.gateway.copies == []
    scene.gateway.answer(answer(1.0))
    await answering
    assert await scene.results() == {"skipped": 1, "differences": []}


@scenario(run)
async def test_a_copy_that_does_not_fit_the_canary_has_failed(scene: Scene, /) -> None:
    scene.catalogue.apply(version_info("m", version=2, input=[]))
    answering = scene.ask(input_of(b"abcd"))
    await asyncio.sleep(0)
    assert scene.gateway.copies == []
    scene.gateway.answer(answer(1.0))
    await answering
    report = await scene.results()
    [difference] = report.pop("differences")
    assert "expected 0 inputs but got 1" in difference
    assert report == {"failed": 1}


@scenario(run)
async def test_without_room_for_its_tensors_there_is_no_copy(scene: Scene, /) -> None:
    scene.gateway.has_room = False
    answering = scene.ask()
    await asyncio.sleep(0)
    scene.gateway.answer(answer(1.0))
    await answering
    assert await scene.results() == {"skipped": 1, "differences": []}


class Clock(asyncio.SelectorEventLoop):
    """A loop for which time passes when the test says so."""

    now = 0.0

    def time(self) -> float:
        return self.now

    async def wait(self, seconds: float) -> None:
        self.now += seconds
        for _ in range(5):  # turns for what is due by now, and for what that begins
            await asyncio.sleep(0)


def test_what_came_of_copies_is_told_together_after_a_while() -> None:
    clock, while_s = Clock(), division._REPORT_AFTER_S

    async def test() -> None:
        scene = Scene()
        reports = scene.gateway.reports
        scene.copy().skip()
        await clock.wait(0.6 * while_s)
        scene.copy().skip()
        assert reports == []
        await clock.wait(0.6 * while_s)
        assert [report["skipped"] for report in reports] == [2]

        scene.copy().skip()
        await clock.wait(0.9 * while_s)
        assert [report["skipped"] for report in reports] == [2]
        await clock.wait(0.2 * while_s)
        assert [report["skipped"] for report in reports] == [2, 1]

    try:
        clock.run_until_complete(test())
    finally:
        clock.close()


@scenario(run)
async def test_a_task_is_kept_until_it_ends_and_no_longer(scene: Scene, /) -> None:
    references: list[weakref.ref[Any]] = []

    async def work() -> None:
        future = asyncio.get_running_loop().create_future()
        references.extend((weakref.ref(future), weakref.ref(asyncio.current_task())))
        await future

    scene.shadows.run(work())
    await asyncio.sleep(0)
    gc.collect()
    future = references[0]()
    assert future is not None, "nobody else knows what is awaited"

    future.set_result(None)
    del future
    for _ in range(3):  # turns to go on, to end, and to hear of that
        await asyncio.sleep(0)
    gc.collect()
    assert [one() for one in references] == [None, None]
