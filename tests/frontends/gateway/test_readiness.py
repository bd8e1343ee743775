"""Messages between a frontend and the supervisor: readiness, reports and settings."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest

from tests.frontends.fake_gateway import version_info
from tests.frontends.grpc_api.fake_gateway import FakeGateway
from tests.support.refusals import refusal
from tests.support.scenarios import scenario
from tests.support.shares import share_of
from tests.support.waiting import eventually
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument, Unavailable, Unsupported
from zmqtriton_floor.lifeline import Lifeline, pair
from zmqtriton_floor.reasons import Kind, Reason
from zmqtriton_frontends.gateway import trace_settings
from zmqtriton_frontends.gateway.readiness import Readiness
from zmqtriton_frontends.gateway.supervisor_line import SupervisorLine
from zmqtriton_frontends.process.ledger import Ledger
from zmqtriton_frontends.serving.process import ClientReport, Service

# --------------------------------------------------------------------------- readiness
# Which models a frontend has asked, before it says that they or the server are ready.


@pytest.fixture
def gateway() -> FakeGateway:
    gateway = FakeGateway(
        version_info("m", version=1, generation=4, has_is_ready=1),
        version_info("m", version=2, generation=7, has_is_ready=1),
        version_info("n", generation=5),
        version_info(
            "left",
            generation=0,
            state="UNAVAILABLE",
            reason=Reason.of(Kind.UNLOADED, "unloaded"),
            has_is_ready=1,
        ),
    )
    gateway.control_results["is_ready"] = False
    return gateway


def _of_model(gateway: FakeGateway, *model: str) -> bool:
    return asyncio.run(Readiness(gateway).of_model(*model))


def _calls(*generations: int) -> list[tuple[str, dict[str, Any]]]:
    return [("is_ready", {"generations": list(generations)})]


@pytest.mark.row("F43")
def test_the_version_that_would_serve_is_asked(gateway: FakeGateway) -> None:
    assert not _of_model(gateway, "m")
    assert _calls(7) == gateway.calls

    assert not _of_model(gateway, "m", "1")
    assert _calls(4) == gateway.calls[1:]


@pytest.mark.row("F40")
def test_the_server_is_ready_when_every_model_that_serves_says_so(gateway: FakeGateway) -> None:
    assert not asyncio.run(Readiness(gateway).of_server())
    assert _calls(4, 7) == gateway.calls

    gateway.control_results["is_ready"] = True

    assert asyncio.run(Readiness(gateway).of_server())


@pytest.mark.row("F41")
def test_without_strict_readiness_no_model_is_asked_for_the_server(gateway: FakeGateway) -> None:
    gateway.catalogue.strict_readiness = False

    assert asyncio.run(Readiness(gateway).of_server())
    assert [] == gateway.calls


def test_nothing_is_ready_while_the_server_stops(gateway: FakeGateway) -> None:
    gateway.is_stopping = True

    assert not _of_model(gateway, "n")
    assert not asyncio.run(Readiness(gateway).of_server())
    assert [] == gateway.calls


def _why_not(gateway: FakeGateway) -> str:
    return asyncio.run(Readiness(gateway).why_not_of_server())


@pytest.fixture
def plain() -> FakeGateway:
    """Four versions serve, and one was unloaded."""
    gateway = FakeGateway(
        *(version_info(name, generation=number) for number, name in enumerate("abcd", 1)),
        version_info(
            "left", generation=0, state="UNAVAILABLE", reason=Reason.of(Kind.UNLOADED, "unloaded")
        ),
    )
    gateway.catalogue.can_name_models = True
    return gateway


def test_a_few_of_many_are_named(plain: FakeGateway) -> None:
    for number, name in enumerate("abcd", 1):
        plain.catalogue.update(version_info(name, generation=number, state="LOADING"))

    assert _why_not(plain).endswith("c version 1 (LOADING), and 1 more")


# --------------------------------------------------------------------- supervisor line
# A frontend's end of its lifeline.


def test_messages_are_passed_on_and_the_end_after_them() -> None:
    heard: list[Any] = []
    threads = set(threading.enumerate())

    async def call(verb: str, arguments: dict[str, Any]) -> Any:
        return None

    async def test() -> None:
        ours, theirs = pair()
        supervisor, ended = Lifeline(ours), asyncio.Event()
        line = SupervisorLine(
            Lifeline(theirs), lambda message, descriptors: heard.append(message), ended.set
        )
        supervisor.send(wire.Sync(1))
        line.begin(asyncio.get_running_loop())
        assert [wire.Sync(1)] == heard, "what had come before"
        assert not ended.is_set()

        line.watch_loop(call)
        supervisor.send(wire.Sync(2))
        supervisor.close()
        await asyncio.wait_for(ended.wait(), 30)
        line.close()

    asyncio.run(test())

    assert [wire.Sync(1), wire.Sync(2)] == heard
    eventually(lambda: threads >= set(threading.enumerate()), 30, "nobody watches its loop")


# ----------------------------------------------------------------------- client report
# Reports about clients to the supervisor.


class FakeService(Service):
    role = "http"

    def __init__(self) -> None:
        self.ledger = Ledger(1 << 20)
        self.responses: Counter[str] = Counter()

    def counts(self) -> dict[str, Counter[str]]:
        return {"responses": self.responses}


async def checked(report: ClientReport) -> None:
    report.check()
    await asyncio.sleep(0)
    await asyncio.sleep(0)


@scenario(asyncio.run)
async def test_figures_are_told_when_they_have_changed() -> None:
    calls: list[tuple[str, str, int]] = []

    async def call(verb: str, figures: dict[str, Any]) -> None:
        calls.append((verb, figures["role"], figures["memory"]["requests_bytes"]))

    service = FakeService()
    report, share = ClientReport(service, call), share_of(service.ledger.requests)
    for size in (0, 100, 0, -100, 0):
        share.add(size)
        await checked(report)

    assert [("clients", "http", 100), ("clients", "http", 0)] == calls


@scenario(asyncio.run)
async def test_counters_of_the_protocol_are_told() -> None:
    messages: list[dict[str, Any]] = []

    async def call(verb: str, figures: dict[str, Any]) -> None:
        messages.append(figures)

    service = FakeService()
    report = ClientReport(service, call)
    await checked(report)
    service.responses["404"] += 1
    await checked(report)

    assert [(0, {"responses": {"404": 1}})] == [(m["connections"], m["counts"]) for m in messages]


@scenario(asyncio.run)
async def test_a_server_that_ends_need_not_know() -> None:
    async def call(verb: str, figures: dict[str, Any]) -> None:
        raise Unavailable("the server ends")

    service = FakeService()
    report, share = ClientReport(service, call), share_of(service.ledger.answers)
    for _ in range(3):
        share.add(1)
        await checked(report)


# ---------------------------------------------------------------------- trace settings
# Trace settings as clients write them: which are understood, and what is said of the others.


@pytest.mark.parametrize(
    ("key", "text", "shown"),
    [
        ("trace_rate", "0", "0"),
        ("trace_rate", "4294967295", "4294967295"),
        ("trace_count", "-1", "-1"),
        ("trace_count", "2147483647", "2147483647"),
        ("log_frequency", "\t +05 apples", "5"),
    ],
)
def test_a_number_is_read_as_c_reads_it(key: str, text: str, shown: str) -> None:
    assert shown == trace_settings.number(key, text)


@pytest.mark.parametrize(
    ("key", "text", "error"),
    [
        ("trace_rate", "apples", "Unable to parse 'trace_rate', got: apples"),
        (
            "trace_rate",
            "4294967296",
            "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], "
            "got: 4294967296",
        ),
        (
            "trace_rate",
            "-1",
            "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: -1",
        ),
        ("trace_count", "-2", "Unable to parse 'trace_count'. Expecting value >= -1, got: -2"),
        (
            "trace_count",
            "-2147483648",
            "Unable to parse 'trace_count'. Expecting value >= -1, got: -2147483648",
        ),
        (
            "trace_count",
            "-2147483649",
            "Unable to parse 'trace_count', value is out of range [ -1, 2147483647 ], "
            "got: -2147483649",
        ),
        (
            "trace_count",
            "9" * 5000,
            "Unable to parse 'trace_count', value is out of range [ -1, 2147483647 ], "
            f"got: {'9' * 5000}",
        ),
    ],
)
def test_what_is_no_number_or_out_of_its_range_is_refused(key: str, text: str, error: str) -> None:
    assert error == refusal(InvalidArgument, trace_settings.number, key, text)


def test_the_word_before_a_count_is_the_protocol_s() -> None:
    with pytest.raises(InvalidArgument, match=r"Expecting value >= -1, but got -5"):
        trace_settings.number("trace_count", "-5", "but got ")


@pytest.mark.parametrize(
    ("names", "levels"),
    [
        (["OFF"], ["OFF"]),
        (["TENSORS", "TIMESTAMPS"], ["TIMESTAMPS", "TENSORS"]),
        (["TENSORS", "apples"], ["TENSORS"]),
        (["apples"], None),
        ([], None),
    ],
)
def test_levels_that_are_not_known_change_nothing(
    names: list[str], levels: list[str] | None
) -> None:
    assert levels == trace_settings.level(names)


def test_off_stands_alone() -> None:
    with pytest.raises(InvalidArgument, match="Expect only one trace level 'OFF'"):
        trace_settings.level(["TENSORS", "OFF"])


def test_the_file_is_the_operator_s() -> None:
    trace_settings.check_names({"trace_rate": "1"})
    with pytest.raises(Unsupported, match="can not be updated"):
        trace_settings.check_names({"trace_file": "/tmp/x"})


def test_settings_are_changed_for_all_or_for_a_model_that_is_served() -> None:
    gateway = FakeGateway(version_info("m"), version_info("loading", state="LOADING"))
    changes = gateway.control_result = {"trace_rate": "7"}

    for model in ("", "m"):
        assert changes == asyncio.run(trace_settings.apply(gateway, model, changes))

    for model in ("loading", "unknown"):
        with pytest.raises(InvalidArgument, match=f"unknown model : {model}"):
            asyncio.run(trace_settings.apply(gateway, model, changes))
    assert [("trace.settings", {"model": m, "changes": changes}) for m in ("", "m")] == (
        gateway.calls
    )
