"""Copies of requests: when they are sent, what becomes of their answers, and what they hold."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from tests.frontends.entrance.test_canaries import news
from tests.frontends.gateway.awaited import AwaitedRequest, infer
from zmqtriton_floor.errors import Unavailable
from zmqtriton_floor.wire import RequestBody, ResponseBody, Tensor, TrafficSplit, encode_body
from zmqtriton_frontends.entrance import shadows
from zmqtriton_frontends.entrance.shadows import Shadows
from zmqtriton_frontends.gateway.pending_request import PendingRequest
from zmqtriton_frontends.inference.admission import CheckedRequest, Copy, Options, prepare
from zmqtriton_frontends.inference.catalogue import Catalogue


def answer(*values: float) -> ResponseBody:
    data = np.array(values, np.float32).tobytes()
    return ResponseBody({}, [Tensor("Y", 11, [len(values)], data)])


class FakeGateway:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.payload: Any = None
        self.catalogue: Any = None
        self.order: list[str] = []
        #: Requests of clients, and copies.
        self.requests: list[PendingRequest] = []
        self.copies: list[PendingRequest] = []
        self.cancelled: list[int] = []
        self.reports: list[dict[str, Any]] = []
        self.has_room = True

    def begin(self, request: CheckedRequest, reply: PendingRequest) -> int | None:
        if isinstance(reply, AwaitedRequest):
            self.order.append(f"version {request.model.version}")
            self.requests.append(reply)
            assert request.copy is not None
            request.copy.send()
            return 1000 + len(self.requests)
        assert request.copy is None
        self.order.append(f"copy to version {request.model.version}")
        self.copies.append(reply)
        return len(self.copies) if self.has_room else None

    async def begin_late(self, request: CheckedRequest, reply: PendingRequest) -> int:
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
        self.shadows = Shadows(self.gateway)
        catalogue = Catalogue()
        catalogue.apply(TrafficSplit("m", 1, 2, 0, "", "", 10_000, "0.1"))
        catalogue.apply(news(1))
        catalogue.apply(news(2))
        self.model = catalogue.find("m")
        self.request = prepare(catalogue, self.model, RequestBody("r", {}, [], []), Options())

    def copy(self) -> Copy:
        assert self.model.canary is not None
        return self.shadows.copy(self.request, self.model.canary)

    def ask(self) -> asyncio.Task[ResponseBody]:
        request = self.request._replace(copy=self.copy())
        return asyncio.ensure_future(infer(self.gateway, request))

    async def results(self) -> dict[str, Any]:
        """Return what the supervisor is told next."""
        while not self.gateway.reports:
            await asyncio.sleep(0.01)
        report = self.gateway.reports.pop()
        assert ("m", 2) == (report.pop("model"), report.pop("version"))
        return report


def run(test: Callable[[Scene], Awaitable[None]]) -> None:
    async def scene() -> None:
        made = Scene()
        await asyncio.wait_for(test(made), 20)
        assert (0, 0) == (made.shadows.copies, made.shadows._bytes)

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
def test_the_copy_follows_the_request_and_its_answer_is_compared(
    values: tuple[float, ...], expected: dict[str, Any]
) -> None:
    async def test(scene: Scene) -> None:
        answering = scene.ask()
        await asyncio.sleep(0)
        assert ["version 1", "copy to version 2"] == scene.gateway.order

        scene.gateway.answer(answer(1.0))
        assert answer(1.0) == await answering
        scene.gateway.copies[0].set_result(encode_body(answer(*values)))
        assert expected == await scene.results()

    run(test)


def test_a_canary_may_answer_first_or_fail() -> None:
    async def test(scene: Scene) -> None:
        answering = scene.ask()
        await asyncio.sleep(0)
        scene.gateway.copies[0].set_exception(Unavailable("no"))
        scene.gateway.answer(answer(1.0))
        assert answer(1.0) == await answering
        report = await scene.results()
        assert {"failed": 1, "differences": ["request 'r': no"]} == report

    run(test)


def test_large_answers_are_compared_too() -> None:
    async def test(scene: Scene) -> None:
        answering = scene.ask()
        await asyncio.sleep(0)
        large = answer(*[1.0] * 100_000)
        scene.gateway.copies[0].set_result(encode_body(large))
        scene.gateway.answer(large)
        await answering
        assert {"equal": 1, "differences": []} == await scene.results()

    run(test)


def test_a_copy_whose_request_fails_or_is_cancelled_is_cancelled() -> None:
    async def test(scene: Scene) -> None:
        answering = scene.ask()
        await asyncio.sleep(0)
        scene.gateway.requests.pop().set_exception(Unavailable("gone"))
        with pytest.raises(Unavailable, match="gone"):
            await answering
        assert [1] == scene.gateway.cancelled

        answering = scene.ask()
        await asyncio.sleep(0)
        answering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await answering
        assert [1, 1001, 2] == scene.gateway.cancelled
        scene.gateway.copies[1].set_result(encode_body(answer(1.0)))  # nobody wants it
        assert {"skipped": 2, "differences": []} == await scene.results()

    run(test)


def test_copies_beyond_the_bounds_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadows, "MAX_COPIES", 1)

    async def test(scene: Scene) -> None:
        first, second = scene.ask(), scene.ask()
        await asyncio.sleep(0)
        assert 1 == len(scene.gateway.copies)
        scene.gateway.answer(answer(1.0))
        await asyncio.gather(first, second)
        scene.gateway.copies[0].set_result(encode_body(answer(1.0)))
        assert {"skipped": 1, "equal": 1, "differences": []} == await scene.results()

    run(test)


def test_answers_beyond_the_bounds_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadows, "MAX_BYTES", 6)

    async def test(scene: Scene) -> None:
        answering = scene.ask()
        await asyncio.sleep(0)
        scene.gateway.answer(answer(1.0))
        await answering
        scene.gateway.copies[0].set_result(encode_body(answer(1.0)))
        assert {"skipped": 1, "differences": []} == await scene.results()

    run(test)


def test_a_copy_that_is_skipped_is_never_sent() -> None:
    async def test(scene: Scene) -> None:
        copy = scene.copy()
        copy.skip()
        copy.send()
        copy.drop()
        assert [] == scene.gateway.copies
        assert {"skipped": 1, "differences": []} == await scene.results()

    run(test)


def test_without_room_for_its_tensors_there_is_no_copy() -> None:
    async def test(scene: Scene) -> None:
        scene.gateway.has_room = False
        answering = scene.ask()
        await asyncio.sleep(0)
        scene.gateway.answer(answer(1.0))
        await answering
        assert {"skipped": 1, "differences": []} == await scene.results()

    run(test)
