"""The steps of a request before it is sent, with a catalogue and without processes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest

from tests.frontends.fake_gateway import FakeGateway, version_info
from tests.support.scenarios import scenario
from tests.support.waiting import loop_turns
from zmqtriton_floor.datatypes import BYTES
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.settings.codec import encode
from zmqtriton_floor.settings.offers import Offers
from zmqtriton_floor.settings.tracing import Sampling, TracingSettings
from zmqtriton_floor.signature import check_elements
from zmqtriton_floor.token_file import INFER, Grant
from zmqtriton_floor.wire import ANY_VERSION, BYTE_WINDOW, RequestBody, ResponseBody, Tensor
from zmqtriton_frontends.access.refusals import Forbidden
from zmqtriton_frontends.entrance.ask import Ask, Content, TakesLong
from zmqtriton_frontends.entrance.entrance import Entrance
from zmqtriton_frontends.gateway.pending import Pending
from zmqtriton_frontends.gateway.streams import StreamItem
from zmqtriton_frontends.gateway.token_marks import TokenMarks
from zmqtriton_frontends.inference import admission
from zmqtriton_frontends.inference.admission import (
    FEW_ELEMENTS,
    NO_OPTIONS,
    CheckedRequest,
    SchedulingOptions,
)
from zmqtriton_frontends.inference.load_on_demand import OnDemandLoader
from zmqtriton_frontends.inference.model_version import ModelVersion
from zmqtriton_frontends.inference.request_trace import Trace
from zmqtriton_frontends.inference.trace_sampling import Traces
from zmqtriton_frontends.process.arrivals import Arrivals

NAMES: list[str] = []
#: Those of a test, which are ended after it.
TRACES: list[Traces] = []


def named_step(name: str, gateway: Any) -> Callable[[Ask, CheckedRequest], CheckedRequest]:
    """A step that writes down its name."""

    def step(ask: Ask, checked: CheckedRequest) -> CheckedRequest:
        NAMES.append(name)
        return checked

    return step


def counted(gateway: Any) -> Callable[[Ask, CheckedRequest], CheckedRequest]:
    NAMES.append("made")
    return named_step("counted", gateway)


one, two = partial(named_step, "one"), partial(named_step, "two")


class Record:
    """An observer."""

    context = ""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def take(self, response: ResponseBody) -> None:
        self.seen.append(response)

    def fail(self, error: Exception) -> None:
        self.seen.append(error)

    def end(self, sending: str) -> None:
        self.seen.append(sending)


@pytest.fixture(autouse=True)
def ends() -> Iterator[None]:
    yield
    while TRACES:
        TRACES.pop().end()


class Frontend(FakeGateway):
    """One with the model m, and its entrance."""

    def __init__(self, *, forwards: str = "", steps: tuple[str, ...] = (), **settings: Any) -> None:
        NAMES.clear()
        super().__init__([version_info("m")], settings)
        offers = Offers(tuple(("requests.step", "", f"{__name__}:{step}") for step in steps))
        self.settings = self.settings._replace(offers=offers)
        self.marks: list[Any] = []
        self.token_marks = TokenMarks(self.marks.append)
        TRACES.append(self.traces)
        self.entrance = Entrance(self, "RECV", "SEND", forwards)

    def trace(self, rate: int) -> None:
        """Trace one of so many requests; 0: none."""
        levels = ("TIMESTAMPS",) if rate else ()
        self.traces.change(
            encode(TracingSettings("triton", (Sampling("", levels, rate, -1, 0, "all"),)))
        )


def content(**fields: Any) -> Content:
    return Content(RequestBody("7", {"own": 1}, [], [Tensor("INPUT0", 11, [1], b"abcd")]), **fields)


def ask(model: str = "m", read: Callable[[ModelVersion], Any] | None = None, **more: Any) -> Ask:
    return Ask((model, ""), read or (lambda _: content()), **more)


def slow_reading(
    aside: Callable[[], Coroutine[Any, Any, Content]],
) -> Callable[[ModelVersion], Content]:
    """Return what reads a body that takes long: aside."""

    def read(model: ModelVersion) -> Content:
        raise TakesLong(aside())

    return read


class Begun(Pending):
    """Gets the answer of one request, and has no gateway."""

    def __init__(self) -> None:
        """Set up without what a gateway is needed for."""
        self.started: list[CheckedRequest] = []
        self.errors: list[Exception] = []
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, checked: CheckedRequest) -> None:
        self.started.append(checked)

    def set_exception(self, error: Exception, /) -> None:
        self.errors.append(error)

    def wait(self, awaited: Coroutine[Any, Any, Any], then: Callable[[Any], None]) -> None:
        async def work() -> None:
            then(await awaited)

        self.tasks.append(asyncio.get_running_loop().create_task(work()))


async def waited_for(frontend: Frontend, request: Ask, way: str) -> CheckedRequest:
    """Return a request that has to wait, or raise its error, in either way to enter."""
    if way == "admit":
        return await frontend.entrance.admit(request)
    begun = Begun()
    frontend.entrance.begin(request, begun)
    assert not begun.started
    for task in begun.tasks:  # the list grows meanwhile
        await task
    for error in begun.errors:
        raise error
    [checked] = begun.started
    return checked


def test_a_request_gets_its_content_and_what_its_client_said_beside() -> None:
    frontend = Frontend()
    options = SchedulingOptions(priority=2)

    checked = frontend.entrance.enter(
        ask(read=lambda _: content(options=options, form={"OUTPUT0": 3}), deadline_ns=9)
    )

    assert ("m", {"own": 1}) == (checked.model.name, checked.body.parameters)
    assert options._replace(deadline_ns=9, flags=ANY_VERSION) == checked.options
    assert {"OUTPUT0": 3} == checked.form


def test_a_token_counts_for_its_models_and_marks_requests_where_tokens_are_needed() -> None:
    grant = Grant("someone", b"", frozenset({INFER}), ("m",), requests_per_second=5.0)
    frontend = Frontend(tokens="/tokens")

    assert 1 == frontend.entrance.enter(ask(grant=grant)).options.token
    assert (0, 1) == (frontend.entrance.enter(ask()).options.token, len(frontend.marks))
    with pytest.raises(Forbidden):
        frontend.entrance.enter(ask("n", grant=grant))
    assert 0 == Frontend().entrance.enter(ask(grant=grant)).options.token


def test_requests_are_traced_while_some_are_to_be() -> None:
    frontend = Frontend(steps=("one",))
    assert frontend.entrance.enter(ask()).observer is None

    frontend.trace(1)
    assert frontend.entrance.enter(ask(begun_ns=5)).observer is not None
    frontend.trace(0)
    assert frontend.entrance.enter(ask()).observer is None

    assert ["one"] * 3 == NAMES
    frontend.trace(1)
    later = Entrance(frontend, "RECV", "SEND")
    assert later.enter(ask()).observer is not None, "the settings were there before"


class Demand:
    """Models that are loaded on demand."""

    def __init__(self, frontend: Frontend, *, comes: bool = True) -> None:
        self.loads: list[str] = []
        #: Not set while a load lasts.
        self.may_come = asyncio.Event()
        self.may_come.set()
        self._catalogue = frontend.catalogue
        self._comes = comes
        self._catalogue.demand = OnDemandLoader(self._call, 60.0)

    async def _call(self, verb: str, arguments: dict[str, Any]) -> Any:
        self.loads.append(arguments["model"])
        await self.may_come.wait()
        if self._comes:
            self._catalogue.update(version_info(arguments["model"], version=2))


@scenario(asyncio.run)
async def test_a_request_that_waits_for_its_model_keeps_nothing_of_its_caller() -> None:
    frontend, begun = Frontend(), Begun()
    Demand(frontend)
    received = bytearray(b"bytes")

    def receive(_: memoryview) -> None:
        frontend.entrance.begin(ask("late"), begun)

    receive(memoryview(received))
    received.clear()  # of which no view is left
    await asyncio.gather(*begun.tasks)
    assert 1 == len(begun.started)


@pytest.mark.parametrize("way", ["begin", "admit"])
@scenario(asyncio.run)
async def test_a_model_that_does_not_come_is_the_requests_error(way: str) -> None:
    frontend = Frontend()
    demand = Demand(frontend, comes=False)

    with pytest.raises(Exception, match="late"):
        await waited_for(frontend, ask("late"), way)

    assert ["late"] == demand.loads


@pytest.mark.parametrize("way", ["begin", "admit"])
@scenario(asyncio.run)
async def test_a_body_that_takes_long_is_read_aside_and_its_model_found_again(way: str) -> None:
    frontend = Frontend()

    async def aside() -> Content:
        frontend.catalogue.update(version_info("m", version=3))
        return content()

    checked = await waited_for(frontend, ask(read=slow_reading(aside)), way)

    assert (3, "7") == (checked.model.version, checked.body.request_id)
    assert NO_OPTIONS._replace(flags=ANY_VERSION) == checked.options


@pytest.mark.parametrize("way", ["begin", "admit"])
@pytest.mark.parametrize("missing", [0, 1])
@scenario(asyncio.run)
async def test_a_thread_counts_many_strings_once(
    monkeypatch: pytest.MonkeyPatch, way: str, missing: int
) -> None:
    frontend, threads = Frontend(), list[str]()
    frontend.catalogue.update(version_info("s", "STRING"))
    many = FEW_ELEMENTS + 1
    tensor = Tensor("INPUT0", BYTES, [many + missing], bytes(4 * many))
    request = ask("s", lambda _: Content(RequestBody("", {}, [], [tensor])))

    def count(tensor: Tensor, model: str) -> None:
        threads.append(threading.current_thread().name)
        check_elements(tensor, model)

    monkeypatch.setattr(admission, "check_elements", count)
    with pytest.raises(InvalidArgument, match=f"got {many}") if missing else nullcontext():
        assert [tensor] == (await waited_for(frontend, request, way)).body.inputs

    assert ["documents-0-MiB"] == threads


@pytest.mark.parametrize("way", ["begin", "admit"])
@scenario(asyncio.run)
async def test_a_model_that_goes_while_a_body_is_read_aside_is_loaded_again(way: str) -> None:
    frontend = Frontend()
    demand = Demand(frontend)

    async def aside() -> Content:
        frontend.catalogue.forget("late")
        return content()

    checked = await waited_for(frontend, ask("late", slow_reading(aside)), way)

    assert ["late", "late"] == demand.loads
    assert "late" == checked.model.name


@scenario(asyncio.run)
async def test_who_has_no_deadline_waits_while_a_model_is_loaded() -> None:
    frontend = Frontend()
    demand = Demand(frontend)
    demand.may_come.clear()
    waiting = [
        asyncio.ensure_future(frontend.entrance.find("late", grant=None)),
        asyncio.ensure_future(frontend.entrance.admit(ask("late"))),
    ]
    await loop_turns(10)  # in which those would end that wait no longer
    assert [False, False] == [one.done() for one in waiting]
    demand.may_come.set()
    await asyncio.gather(*waiting)
    assert ["late"] == demand.loads


@scenario(asyncio.run)
async def test_a_model_is_found_before_there_is_a_request_as_far_as_the_token_goes() -> None:
    frontend = Frontend()
    demand = Demand(frontend)
    grant = Grant("someone", b"", frozenset({INFER}), ("late",))
    assert "late" == (await frontend.entrance.find("late", grant=grant)).name
    assert ["late"] == demand.loads
    with pytest.raises(Forbidden):
        await frontend.entrance.find("m", grant=grant)
    assert "m" == (await frontend.entrance.find("m", grant=None)).name


@pytest.mark.slow
@scenario(asyncio.run)
async def test_responses_come_as_there_is_room_and_end_the_trace() -> None:
    frontend = Frontend()
    frontend.trace(1)
    frontend.fake_streams.put("7", *[StreamItem(ResponseBody({}, []), None, True)] * 2)
    checked = frontend.entrance.enter(ask())
    arrivals, record, trace = Arrivals(), Record(), checked.observer
    checked = checked.with_observer(record)
    assert 1 == len([item async for item in frontend.entrance.responses(checked, arrivals)])
    assert [ResponseBody({}, []), "SEND"] == record.seen, "a second observer sees the same"
    assert 1 == len([item async for item in frontend.entrance.responses(checked)])
    with_room, without = frontend.requests
    assert arrivals is with_room.arrivals
    assert with_room.options.flags & BYTE_WINDOW
    assert without.arrivals is None
    assert not without.options.flags & BYTE_WINDOW
    assert isinstance(trace, Trace)
    assert checked.observer is not None
    assert trace.context == checked.observer.context
    # before it is written
    assert any("SEND_START" == name for name, _ in trace._marks)
