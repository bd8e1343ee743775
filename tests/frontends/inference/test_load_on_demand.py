"""Loads that requests ask for, and figures of a model's load."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.frontends.fake_gateway import version_info
from tests.frontends.gateway.awaited import AwaitedSink
from tests.frontends.http_api.fakes import FakeGateway
from tests.supervisor.settings import frontend_settings
from tests.support.scenarios import scenario
from tests.support.waiting import loop_turns
from zmqtriton_floor.errors import DeadlineExceeded, InvalidArgument, Unavailable, ZmqTritonError
from zmqtriton_floor.reasons import Kind, Reason
from zmqtriton_floor.settings.frontends import Access, Restriction
from zmqtriton_floor.wire import RepositoryState
from zmqtriton_frontends.entrance.ask import Ask
from zmqtriton_frontends.gateway.model_settings import apply_settings
from zmqtriton_frontends.gateway.pending import Pending
from zmqtriton_frontends.http_api.inference.infer import HttpEntrance
from zmqtriton_frontends.inference.catalogue import Catalogue
from zmqtriton_frontends.inference.load_metrics import (
    of_model,
    of_server,
    utilization,
    write,
    write_binary,
)
from zmqtriton_frontends.inference.load_on_demand import NotLoaded, OnDemandLoader

# ---------------------------------------------------------------------- load on demand
# Clients in a frontend that wait for a model to be loaded.


class Supervisor:
    """Answers when the test lets it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.demand = OnDemandLoader(self.call, 60.0)
        self.catalogue = Catalogue()
        self.catalogue.demand = self.demand

    async def call(self, verb: str, arguments: dict[str, Any]) -> bool:
        self.calls.append((verb, arguments))
        return await asyncio.shield(self.answer)


@scenario(asyncio.run)
async def test_those_who_wait_share_one_call_and_who_leaves_costs_the_others_nothing() -> None:
    supervisor = Supervisor()
    waiting = [asyncio.ensure_future(supervisor.demand.load("m")) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)

    supervisor.answer.set_result(True)
    await asyncio.gather(*waiting[1:])

    assert [("demand", {"model": "m"})] == supervisor.calls
    assert waiting[0].cancelled()


@scenario(asyncio.run)
async def test_a_failure_is_told_to_each_as_an_error_of_its_own() -> None:
    supervisor = Supervisor()
    waiting = [asyncio.ensure_future(supervisor.demand.load("m")) for _ in range(2)]
    await asyncio.sleep(0)

    supervisor.answer.set_exception(Unavailable("no weights"))
    errors = await asyncio.gather(*waiting, return_exceptions=True)

    assert ["no weights"] * 2 == [str(error) for error in errors]
    assert errors[0] is not errors[1]


@pytest.mark.parametrize("is_own", [False, True])
@scenario(asyncio.run)
async def test_nobody_waits_beyond_the_option_or_a_deadline_of_its_own(is_own: bool) -> None:
    demand = OnDemandLoader(Supervisor().call, 60.0 if is_own else 0.0)
    deadline_ns = time.monotonic_ns() - 1 if is_own else 0

    with pytest.raises(ZmqTritonError) as refused:
        await demand.load("m", deadline_ns)

    timed_out = Unavailable, "timed out waiting for model 'm' to load (the load continues)"
    overdue = "Deadline Exceeded: model 'm' was being loaded (the load continues)"
    expected = (DeadlineExceeded, overdue) if is_own else timed_out
    assert expected == (type(refused.value), refused.value.text)


@scenario(asyncio.run)
async def test_what_somebody_unloaded_is_asked_of_nobody() -> None:
    catalogue = Supervisor().catalogue
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


@scenario(asyncio.run)
async def test_a_model_that_is_nowhere_keeps_its_own_error() -> None:
    supervisor = Supervisor()
    supervisor.answer.set_result(False)

    with pytest.raises(NotLoaded) as missing:
        await supervisor.catalogue.attempt(lambda: supervisor.catalogue.find("nobody"))

    assert "Request for unknown model: 'nobody' is not found" == missing.value.text
    assert InvalidArgument.http_status == missing.value.http_status


@scenario(asyncio.run)
async def test_who_leaves_in_the_moment_of_the_load_is_not_asked_for_any_more() -> None:
    """Over HTTP the body is gone with its client."""
    supervisor = Supervisor()
    targets: list[Any] = []

    def find(*target: str) -> None:
        targets.append(target)
        raise NotLoaded(Unavailable("not loaded"), "m", supervisor.demand)

    gateway: Any = FakeGateway()
    gateway.catalogue.find = find
    read: Any = None  # the model is not found
    pending = Pending(gateway, AwaitedSink())
    HttpEntrance(gateway).begin(Ask(("m", ""), read), pending)
    # nothing is sent that would tell that it waits
    loading = pending._task
    assert loading is not None
    await asyncio.sleep(0)
    supervisor.answer.set_result(True)
    while not loading.done():
        await asyncio.sleep(0)

    pending.cancel()
    await loop_turns(5)

    assert [("m", "")] == targets


@scenario(asyncio.run)
async def test_without_the_option_nobody_waits() -> None:
    catalogue = Catalogue()
    apply_settings(catalogue, frontend_settings("http"), Supervisor().call)

    assert catalogue.demand is None


@pytest.mark.parametrize(
    ("access", "can_name"),
    [
        (Access(), True),
        (Access(tokens="file"), False),
        (Access(restrictions=(Restriction(("inference",), "key", "value"),)), False),
    ],
)
def test_errors_name_other_models_where_everybody_may_see_them(
    access: Access, can_name: bool
) -> None:
    catalogue = Catalogue()
    settings = frontend_settings("http")._replace(access=access)

    apply_settings(catalogue, settings, lambda verb, arguments: asyncio.sleep(0))

    assert can_name == catalogue.can_name_models


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


# ------------------------------------------------------------------------ load metrics
# The forms of ORCA in which the load of a model stands beside an answer.


LOAD = {
    **{"queued": 3, "executing": 1, "unanswered": 4, "limit": 9, "utilization": 0.5},
    **{"instances": {"ready": 1, "all": 2}, "mean_queue_ms": 1.25},
}


NAMED = {
    **{"queued": 3, "executing": 1, "unanswered": 4, "limit": 9},
    **{"mean_queue_ms": 1.25, "instances_ready": 1, "instances": 2},
}


@pytest.mark.row("L05")
def test_as_json() -> None:
    kind, _, text = write("json", LOAD).partition(" ")

    assert "JSON" == kind
    assert {"application_utilization": 0.5, "named_metrics": NAMED} == json.loads(text)


def test_as_text() -> None:
    kind, _, text = write("text", LOAD).partition(" ")

    pairs = dict(pair.split("=") for pair in text.split(", "))
    assert ("TEXT", "0.5") == (kind, pairs.pop("application_utilization"))
    assert {f"named_metrics.{name}": f"{value:g}" for name, value in NAMED.items()} == pairs


def test_as_the_message_of_orca() -> None:
    field = descriptor_pb2.FieldDescriptorProto
    entry = descriptor_pb2.DescriptorProto(
        name="NamedMetricsEntry", options=descriptor_pb2.MessageOptions(map_entry=True)
    )
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=field.TYPE_DOUBLE, label=field.LABEL_OPTIONAL)
    report = descriptor_pb2.DescriptorProto(name="OrcaLoadReport", nested_type=[entry])
    report.field.add(
        name="named_metrics",
        number=8,
        type=field.TYPE_MESSAGE,
        type_name=".OrcaLoadReport.NamedMetricsEntry",
        label=field.LABEL_REPEATED,
    )
    report.field.add(
        name="application_utilization",
        number=9,
        type=field.TYPE_DOUBLE,
        label=field.LABEL_OPTIONAL,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(
        descriptor_pb2.FileDescriptorProto(
            name="orca.proto", syntax="proto3", message_type=[report]
        )
    )
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("OrcaLoadReport"))

    load = message.FromString(write_binary(LOAD))

    assert (NAMED, 0.5) == (dict(load.named_metrics), load.application_utilization)


# -------------------------------------------------------------------------- model load
# The load of a model and of the server, made of the broker's answer.


def entry(**fields: Any) -> dict[str, Any]:
    plain = {"name": "m", "version": 1, "is_ensemble": False, "queued": 0, "executing": 0}
    plain |= {"unanswered": 0, "limit": 0, "ready": 1, "instances": 1, "slots": 1, "busy_slots": 0}
    return {**plain, "requests": 0, "queue_ns": 0, "compute_ns": 0, **fields}


def answer(*entries: dict[str, Any], limit: int = 0, unanswered: int = 0) -> dict[str, Any]:
    return {"loads": list(entries), "unanswered": unanswered, "limit": limit}


def test_versions_of_a_model_are_added_up() -> None:
    one = entry(queued=2, executing=1, unanswered=3, busy_slots=1, requests=1, queue_ns=3_000_000)
    two = entry(version=2, instances=2, requests=3, queue_ns=5_000_000, compute_ns=40_000_000)

    load = of_model([one, two])

    assert (2, 1, 3) == (load["queued"], load["executing"], load["unanswered"])
    assert {"ready": 2, "all": 3} == load["instances"]
    assert (0.5, 2.0, 10.0) == (
        load["utilization"],
        load["mean_queue_ms"],
        load["mean_compute_ms"],
    )


def test_a_limit_is_told_where_every_version_has_one() -> None:
    assert 7 == of_model([entry(limit=3), entry(limit=4)])["limit"]
    assert "limit" not in of_model([entry(limit=3), entry()])


def test_what_was_not_executed_has_no_mean_times() -> None:
    assert "mean_queue_ms" not in of_model([entry()])


def test_a_model_that_is_not_loaded_has_nothing() -> None:
    load = of_model([])

    assert {"ready": 0, "all": 0} == load["instances"]
    assert (0, 0.0) == (load["unanswered"], load["utilization"])


def test_the_server_is_as_full_as_its_fullest_model() -> None:
    idle, half = entry(), entry(slots=2, busy_slots=1, ready=2, instances=2)

    assert 0.5 == utilization(answer(idle, half))
    assert 1.0 == utilization(answer(idle, entry(ready=0, slots=0)))
    assert 0.75 == utilization(answer(idle, half, limit=4, unanswered=3))
    assert 0.0 == utilization(answer())


def test_what_an_ensemble_asks_for_is_counted_once() -> None:
    member = entry(executing=1, unanswered=1, busy_slots=1)
    ensemble = entry(
        **{"name": "e", "is_ensemble": True, "executing": 1, "unanswered": 1, "ready": 0},
        **{"slots": 0, "instances": 0},
    )

    load = of_server(answer(member, ensemble, unanswered=2))

    assert (1, 2) == (load["executing"], load["unanswered"])
    assert ["m", "e"] == [each["name"] for each in load["models"]]
    assert 0.0 == load["models"][1]["utilization"]
