"""Clients in a frontend that wait for a model to be loaded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from tests.frontends.grpc_api.fake_gateway import version_info
from tests.frontends.http_api.fakes import FakeGateway
from tests.support.scenarios import scenario
from zmqtriton_floor.errors import (
    DeadlineExceeded,
    InvalidArgument,
    Unavailable,
    ZmqTritonError,
)
from zmqtriton_floor.reasons import Kind, Reason
from zmqtriton_floor.settings.broker import OnDemand
from zmqtriton_floor.wire import RepositoryState
from zmqtriton_frontends.http_api.inference.http_inference import HttpInference, InferenceHead
from zmqtriton_frontends.http_api.inference.infer import Inference
from zmqtriton_frontends.inference.catalogue import Catalogue
from zmqtriton_frontends.inference.load_on_demand import NotLoaded, OnDemandLoader, attempt, of


class Supervisor:
    """Answers when the test lets it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def call(self, verb: str, arguments: dict[str, Any]) -> bool:
        self.calls.append((verb, arguments))
        return await asyncio.shield(self.answer)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


@scenario(run)
async def test_those_who_wait_share_one_call_and_who_leaves_costs_the_others_nothing() -> None:
    supervisor = Supervisor()
    demand = OnDemandLoader(supervisor.call, 60.0)
    waiting = [asyncio.ensure_future(demand.load("m")) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)

    supervisor.answer.set_result(True)
    await asyncio.gather(*waiting[1:])

    assert [("demand", {"model": "m"})] == supervisor.calls
    assert waiting[0].cancelled()


@scenario(run)
async def test_a_failure_is_told_to_each_as_an_error_of_its_own() -> None:
    supervisor = Supervisor()
    demand = OnDemandLoader(supervisor.call, 60.0)
    waiting = [asyncio.ensure_future(demand.load("m")) for _ in range(2)]
    await asyncio.sleep(0)

    supervisor.answer.set_exception(Unavailable("no weights"))
    errors = await asyncio.gather(*waiting, return_exceptions=True)

    assert ["no weights"] * 2 == [str(error) for error in errors]
    assert errors[0] is not errors[1]


@pytest.mark.parametrize("is_own", [False, True])
@scenario(run)
async def test_nobody_waits_beyond_the_option_or_a_deadline_of_its_own(is_own: bool) -> None:
    demand = OnDemandLoader(Supervisor().call, 60.0 if is_own else 0.0)
    deadline_ns = time.monotonic_ns() - 1 if is_own else 0

    with pytest.raises(ZmqTritonError) as refused:
        await demand.load("m", deadline_ns)

    timed_out = Unavailable, "timed out waiting for model 'm' to load (the load continues)"
    overdue = "Deadline Exceeded: model 'm' was being loaded (the load continues)"
    expected = (DeadlineExceeded, overdue) if is_own else timed_out
    assert expected == (type(refused.value), refused.value.text)


@scenario(run)
async def test_what_somebody_unloaded_is_asked_of_nobody() -> None:
    catalogue = Catalogue()
    catalogue.demand = OnDemandLoader(Supervisor().call, 60.0)
    unloaded = Reason.of(Kind.UNLOADED, "unloaded")
    left = version_info("left", generation=0, state="UNAVAILABLE", reason=unloaded)
    catalogue.update(left)
    idle = Reason.of(Kind.IDLE, "not loaded: idle", idle_s=1)
    catalogue.update(left._replace(model="idle", reason=idle, is_on_demand=1))

    with pytest.raises(Unavailable) as refused:
        catalogue.find("left", "1")
    with pytest.raises(NotLoaded):
        catalogue.find("idle")
    assert not isinstance(refused.value, NotLoaded)
    assert catalogue.is_ready()


@scenario(run)
async def test_a_model_that_is_nowhere_keeps_its_own_error() -> None:
    supervisor = Supervisor()
    supervisor.answer.set_result(False)
    catalogue = Catalogue()
    catalogue.demand = OnDemandLoader(supervisor.call, 60.0)

    with pytest.raises(NotLoaded) as missing:
        await attempt(lambda: catalogue.find("nobody"))

    assert "Request for unknown model: 'nobody' is not found" == missing.value.text
    assert InvalidArgument.http_status == missing.value.http_status


@scenario(run)
async def test_who_leaves_in_the_moment_of_the_load_is_not_asked_for_any_more() -> None:
    """Over HTTP the body is gone with its client."""
    supervisor = Supervisor()
    demand = OnDemandLoader(supervisor.call, 60.0)
    targets: list[Any] = []

    def find(*target: str) -> None:
        targets.append(target)
        raise NotLoaded(Unavailable("not loaded"), "m", demand)

    gateway: Any = FakeGateway()
    gateway.catalogue.find = find
    fields = SimpleNamespace(header=lambda name: None, spelled_headers=list)
    head = InferenceHead(("m", ""), "/v2/models/m/infer", fields, 0, 0)
    exchange = HttpInference(Inference(gateway), head)
    exchange.begin(b"")
    loading = exchange._task
    assert loading is not None
    await asyncio.sleep(0)
    supervisor.answer.set_result(True)
    while not loading.done():
        await asyncio.sleep(0)

    exchange.cancel()
    for _ in range(5):
        await asyncio.sleep(0)

    assert [("m", "")] == targets


@scenario(run)
async def test_without_the_option_nobody_waits() -> None:
    assert of(OnDemand(), Supervisor().call) is None


def test_requests_wait_for_models_that_move_also_while_these_load() -> None:
    catalogue = Catalogue()
    catalogue.demand = OnDemandLoader(lambda verb, arguments: asyncio.sleep(0), 60.0)
    catalogue.apply(version_info("m")._replace(state="LOADING", generation=0))
    with pytest.raises(Unavailable):
        catalogue.find("m", "1")

    catalogue.apply(RepositoryState(0, 1))
    for name in ("m", "nobody"):
        with pytest.raises(NotLoaded):
            catalogue.find(name)
    assert not catalogue.is_ready()

    catalogue.apply(RepositoryState(0))
    catalogue.apply(version_info("m"))
    assert "m" == catalogue.find("m").name
    assert catalogue.is_ready()
