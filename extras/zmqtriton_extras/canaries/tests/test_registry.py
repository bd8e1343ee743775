"""Canaries from their begin to their end: what serves, who is told, and when."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.supervisor.model_directory import PLAIN, ModelDirectory, load
from tests.supervisor.take_overs import TakeOver
from tests.supervisor.world import SupervisorHarness
from zmqtriton_extras.canaries.tests.told import (
    count,
    parameters,
    serving,
    start_canary,
    status,
    told_split,
)
from zmqtriton_floor import wire
from zmqtriton_floor.errors import AlreadyExists, InvalidArgument, NotFound
from zmqtriton_floor.routing import ALL

OVER = wire.TrafficSplit("m", 0, 0, 0)


@pytest.fixture
def repository(tmp_path: Path) -> ModelDirectory:
    return ModelDirectory(tmp_path)


@pytest.fixture
def world(repository: ModelDirectory) -> SupervisorHarness:
    """Version 1 serves, and version 2 lies beside it."""
    world = repository.serve()
    repository.add(2)
    return world


def order_told(world: SupervisorHarness, role: str = "grpc") -> list[str]:
    """Return what processes of a role were told of divisions and versions, in short."""
    kinds = (wire.TrafficSplit, wire.VersionInfo)
    messages = [m for s, m in world.sent if world.roles.get(s) == role and isinstance(m, kinds)]
    return [
        f"{m.stable}/{m.tried} {m.weight}"
        if isinstance(m, wire.TrafficSplit)
        else f"{m.version} {m.state}"
        for m in messages
    ]


def test_the_division_is_known_before_the_canary_serves_and_gets_its_share_after(
    world: SupervisorHarness,
) -> None:
    before = len(order_told(world))

    canary = start_canary(world, weight=10, header="X-Try: 1", shadow="5%", tolerance=0.01)

    assert [news for news in order_told(world)[before:] if news != "1 LOADING"] == [
        "1/2 0",
        "2 LOADING",
        "1 READY",
        "2 READY",
        "1/2 1000",
    ]
    split = wire.TrafficSplit("m", 1, 2, 1000, "x-try", "1", 500, "0.01")
    assert split == told_split(world) == told_split(world, "broker")
    assert (canary["phase"], canary["stable"], canary["canary"]) == ("RUNNING", 1, 2)
    assert serving(world) == [1, 2]


@pytest.mark.parametrize("is_early", [True, False])
def test_a_server_that_takes_over_has_the_canary(
    repository: ModelDirectory, world: SupervisorHarness, is_early: bool
) -> None:
    pair = TakeOver(world, repository.server())
    if is_early:
        start_canary(world, weight=10, header="X-Try: 1", shadow="5%", promote_after="60")
    pair.start()
    pair.hear()
    if not is_early:
        arguments = {"model": "m", "version": "2", "weight": 10, "header": "X-Try: 1"}
        world.call("canary.start", arguments)
    assert serving(pair.new) == [2]

    pair.exchange()

    assert serving(pair.new) == [1, 2]
    split = [m for m in pair.new.messages_to("grpc", wire.TrafficSplit) if m.weight]
    assert split[-1].weight == 1000
    assert split[-1] in world.messages_to("grpc", wire.TrafficSplit)
    assert pair.new.has_logged("version 2 of model 'm' is tried beside version 1")


def test_the_stable_version_keeps_its_processes(world: SupervisorHarness) -> None:
    before = world.generation("m")

    start_canary(world)

    assert before is world.generation("m")


def test_a_model_of_sequences_keeps_its_processes_too(tmp_path: Path) -> None:
    repository = ModelDirectory(tmp_path, f"sequence_batching {{ }} {PLAIN}")
    world = repository.serve()
    before = world.generation("m")
    repository.add(2)

    start_canary(world)

    assert before is world.generation("m")


@pytest.mark.row("L16")
def test_a_promoted_canary_serves_alone_once_everybody_sends_to_it(
    world: SupervisorHarness,
) -> None:
    start_canary(world)
    grpc = world.serial("grpc")
    world.silent.add(grpc)

    promoting = world.call("canary.promote", {"model": "m"})
    assert told_split(world).weight == ALL
    assert serving(world) == [1, 2]
    assert promoting.answer is None

    world.silent.clear()
    question = [m for s, m in world.sent if s == grpc and isinstance(m, wire.Sync)][-1]
    world.receive(grpc, wire.Synced(question.number))
    assert promoting.result["phase"] == "PROMOTING"
    assert status(world)["phase"] == "PROMOTED"
    assert serving(world) == [2]
    assert OVER == told_split(world) == told_split(world, "broker")


def test_who_starts_one_is_answered_if_it_is_promoted_before_all_know(
    world: SupervisorHarness,
) -> None:
    world.silent.add(grpc := world.serial("grpc"))
    starting = world.call("canary.start", {"model": "m", "version": 2, "weight": 10})
    while status(world)["phase"] != "RUNNING":
        world.receive(grpc, wire.Synced(world.messages_to("grpc", wire.Sync)[-1].number))
    promoting = world.call("canary.promote", {"model": "m"})
    assert starting.answer is None

    world.kill_process(grpc)

    assert starting.result["canary"] == promoting.result["canary"] == 2


@pytest.mark.row("L16")
def test_an_aborted_canary_goes_and_the_stable_version_serves_on(world: SupervisorHarness) -> None:
    start_canary(world)
    before = world.generation("m")

    canary = world.call("canary.abort", {"model": "m"}).result

    assert (canary["reason"], canary["is_automatic"]) == ("an operator has aborted it", False)
    assert status(world)["phase"] == "ABORTED"
    assert serving(world) == [1]
    assert before is world.generation("m")
    assert told_split(world) == OVER


def test_the_old_version_answers_what_it_has_before_the_division_ends(
    world: SupervisorHarness,
) -> None:
    start_canary(world)
    world.is_busy = True

    world.call("canary.promote", {"model": "m"})
    assert status(world)["phase"] == "PROMOTING"
    assert told_split(world)[1:4] == (1, 2, ALL)

    retired = world.messages_to("broker", wire.Retire)[-1]
    world.receive(world.serial("broker"), wire.Drained(retired.generation))
    assert status(world)["phase"] == "PROMOTED"


def test_a_load_keeps_both_versions_and_later_loads_the_one_that_was_decided_for(
    repository: ModelDirectory, world: SupervisorHarness
) -> None:
    start_canary(world)
    repository.add(1, "changed")
    load(world)
    assert serving(world) == [1, 2]

    world.call("canary.abort", {"model": "m"})
    repository.add(1, "changed again")
    load(world)
    assert serving(world) == [1]

    repository.add(2, "repaired")
    load(world)
    assert serving(world) == [2]


def test_an_aborted_version_can_be_tried_again(world: SupervisorHarness) -> None:
    start_canary(world)
    world.call("canary.abort", {"model": "m"})

    start_canary(world)

    assert serving(world) == [1, 2]
    assert status(world)["phase"] == "RUNNING"


def test_a_lower_version_that_is_promoted_stays_in_the_place_of_the_higher_one(
    tmp_path: Path,
) -> None:
    repository = ModelDirectory(tmp_path)
    repository.add(2)
    world = repository.serve()
    assert serving(world) == [2]

    start_canary(world, version=1)
    world.call("canary.promote", {"model": "m"})
    assert serving(world) == [1]

    repository.configure(f'{PLAIN} parameters {{ key: "x" value {{ string_value: "y" }} }}')
    load(world)
    assert serving(world) == [1]


def test_a_version_that_the_policy_wants_serves_on_for_those_who_name_it(tmp_path: Path) -> None:
    repository = ModelDirectory(tmp_path, f"version_policy {{ all {{ }} }} {PLAIN}")
    world = repository.serve()
    repository.add(2)
    start_canary(world)

    world.call("canary.promote", {"model": "m"})

    assert serving(world) == [1, 2]
    assert told_split(world) == OVER
    assert status(world)["phase"] == "PROMOTED"


def test_a_version_that_served_already_can_be_tried_and_is_left_out_when_aborted(
    tmp_path: Path,
) -> None:
    repository = ModelDirectory(tmp_path, f"version_policy {{ all {{ }} }} {PLAIN}")
    repository.add(2)
    world = repository.serve()
    start_canary(world)
    world.call("canary.abort", {"model": "m"})
    assert serving(world) == [1]

    repository.add(1, "changed")
    load(world)

    assert serving(world) == [1]


def test_settings_change_while_it_runs(world: SupervisorHarness) -> None:
    start_canary(world, weight=10, header="X-Try")

    canary = world.call("canary.change", {"model": "m", "weight": "50%"}).result

    assert (canary["weight"], canary["header"]) == (50, "x-try")
    assert wire.TrafficSplit("m", 1, 2, 5000, "x-try", "") == told_split(world)


def test_new_brokers_and_frontends_are_told(world: SupervisorHarness) -> None:
    start_canary(world)
    split = told_split(world)

    world.kill_process(world.serial("broker")).advance(1.0)
    assert split in [m for s, m in world.sent if s == world.serial("broker")]

    world.kill_process(world.serial("grpc")).advance(1.0)
    new = [m for s, m in world.sent if s == world.serial("grpc")]
    assert new.index(split) < min(new.index(m) for m in new if isinstance(m, wire.VersionInfo))


# ---------------------------------------------------------------- automatic ends


@pytest.mark.row("L16")
def test_a_canary_that_fails_more_often_is_aborted_with_the_reason(
    world: SupervisorHarness,
) -> None:
    count(world, (1, 100, 1, 10.0), (2, 0, 0, 0.0))
    start_canary(world, weight=10, min_requests=20)

    count(world, (1, 200, 2, 10.0), (2, 15, 4, 10.0))
    world.advance(2.0)
    assert status(world)["phase"] == "RUNNING"

    count(world, (1, 300, 3, 10.0), (2, 16, 4, 10.0))
    world.advance(2.0)
    canary = status(world)
    assert (canary["phase"], canary["is_automatic"]) == ("ABORTED", True)
    assert canary["reason"].startswith("4 of 20 requests failed, 20.0 % against 1.0 %")
    assert world.has_logged("W version 2, the canary of model 'm', is aborted: 4 of 20")
    assert serving(world) == [1]


def test_a_slow_canary_is_aborted(world: SupervisorHarness) -> None:
    count(world, (1, 0, 0, 0.0), (2, 0, 0, 0.0))
    start_canary(world, weight=10, abort_latency="2x", latency="request mean", min_requests=10)

    count(world, (1, 100, 0, 10.0), (2, 50, 0, 25.0))
    world.advance(2.0)

    assert "25.00 ms against 10.00 ms" in status(world)["reason"]


def test_a_canary_that_waits_in_the_queue_and_computes_as_fast_is_not_slow(
    world: SupervisorHarness,
) -> None:
    count(world, (1, 0, 0, 0.0), (2, 0, 0, 0.0))
    start_canary(world, weight=10, abort_latency="2x", min_requests=10)

    count(world, (1, 100, 0, 10.0), (2, 50, 0, 90.0), compute_ms={1: 50})
    world.advance(2.0)
    assert status(world)["phase"] == "RUNNING"

    count(world, (1, 200, 0, 10.0), (2, 100, 0, 90.0), compute_ms={1: 94, 9: 6})
    world.advance(2.0)
    assert (
        "90th percentile of the execution time was 9.00 ms against 1.00 ms"
        in (status(world)["reason"])
    )


def test_clients_that_leave_the_canary_count_against_it(world: SupervisorHarness) -> None:
    count(world, (1, 0, 0, 0.0), (2, 0, 0, 0.0))
    start_canary(world, weight=10, min_requests=20)

    count(world, (1, 180, 0, 10.0), (2, 5, 0, 10.0), cancelled=15)
    world.advance(2.0)

    canary = status(world)
    assert canary["reason"].startswith("15 of 20 requests failed (15 left by their clients), 75.0")
    assert canary["counts"]["canary"]["cancelled"] == 15


def test_a_canary_that_hangs_is_aborted_before_a_request_of_it_has_ended(
    world: SupervisorHarness,
) -> None:
    count(world, (1, 0, 0, 0.0), (2, 0, 0, 0.0))
    start_canary(world, weight=10)

    count(world, (1, 100, 0, 10.0), (2, 0, 0, 0.0), executing_s=[(29.0, 29.0)])
    world.advance(2.0)
    assert status(world)["phase"] == "RUNNING"

    count(world, (1, 100, 0, 10.0), (2, 0, 0, 0.0), executing_s=[(31.0, 31.0), (0.0, 0.0)])
    world.advance(2.0)
    assert status(world)["phase"] == "RUNNING"

    count(world, (1, 100, 0, 10.0), (2, 0, 0, 0.0), executing_s=[(33.0, 33.0), (32.0, 31.0)])
    world.advance(2.0)
    assert status(world)["reason"].startswith("it hangs: none of its 2 instances has ended an")


def test_what_an_aborted_version_does_not_end_is_ended(world: SupervisorHarness) -> None:
    start_canary(world, weight=10, abort_within="5s")
    hung = world.generation("m", 2).instances[0].serial
    world.is_busy = True

    world.call("canary.abort", {"model": "m"})
    count(world, (1, 9, 0, 1.0), (2, 9, 0, 1.0), executing_s=[(4.0, 4.0)])
    world.advance(5.0)
    assert status(world)["phase"] == "ABORTING"
    assert hung in world.alive

    count(world, (1, 9, 0, 1.0), (2, 9, 0, 1.0), executing_s=[(6.0, 6.0)])
    world.advance(1.0)
    assert status(world)["phase"] == "ABORTED"
    assert hung not in world.alive
    assert world.has_logged("W version 2 was aborted, and has not ended in 5 s")


@pytest.mark.slow
def test_open_sequences_of_an_aborted_version_go_on(world: SupervisorHarness) -> None:
    start_canary(world, weight=10, abort_within="5s")
    world.is_busy = True

    world.call("canary.abort", {"model": "m"})
    count(world, (1, 9, 0, 1.0), (2, 9, 0, 1.0), executing_s=[(0.0, 0.0)])
    world.advance(3600.0)

    assert status(world)["phase"] == "ABORTING"


def test_a_good_canary_is_promoted_after_its_time(world: SupervisorHarness) -> None:
    count(world, (1, 0, 0, 0.0), (2, 0, 0, 0.0))
    start_canary(world, weight=10, promote_after="1m", min_requests=10)

    world.advance(120.0)
    assert status(world)["phase"] == "RUNNING"

    count(world, (1, 100, 0, 10.0), (2, 50, 0, 10.0))
    world.advance(2.0)
    canary = status(world)
    assert (canary["phase"], canary["is_automatic"]) == ("PROMOTED", True)


def test_a_canary_that_is_far_slower_waits_for_an_operator(world: SupervisorHarness) -> None:
    count(world, (1, 0, 0, 0.0), (2, 0, 0, 0.0))
    start_canary(world, weight=10, promote_after="1m", min_requests=10)

    count(world, (1, 100, 0, 1.0), (2, 50, 0, 120.0), compute_ms={120: 50})
    world.advance(120.0)
    held = status(world)
    world.call("canary.promote", {"model": "m"})
    promoted = status(world)

    slowness = (
        "its 90th percentile of the execution time is 120.00 ms, "
        "120 times that of the stable version"
    )
    assert ("RUNNING", slowness) == (held["phase"], held["slowness"])
    assert len([line for line in world.log if "is not promoted by itself: its" in line]) == 1
    assert ("PROMOTED", f"an operator has promoted it, though {slowness}") == (
        promoted["phase"],
        promoted["reason"],
    )


@pytest.mark.parametrize(("compute_ms", "limit"), [(5, "off"), (120, "500x")])
def test_a_slower_canary_is_promoted_with_words_within_the_limit(
    world: SupervisorHarness, compute_ms: int, limit: str
) -> None:
    count(world, (1, 0, 0, 0.0), (2, 0, 0, 0.0))
    start_canary(world, weight=10, promote_after="1m", min_requests=10, abort_latency=limit)

    count(world, (1, 100, 0, 1.0), (2, 50, 0, 1.0), compute_ms={compute_ms: 50})
    world.advance(120.0)

    canary = status(world)
    assert canary["phase"] == "PROMOTED"
    assert f"{compute_ms} times that of the stable version" in canary["reason"]


def test_a_canary_that_does_not_serve_any_more_is_aborted(
    repository: ModelDirectory, world: SupervisorHarness
) -> None:
    start_canary(world)
    repository.remove(2)

    load(world)

    assert (status(world)["phase"], serving(world)) == ("ABORTED", [1])


def test_unloading_the_model_ends_its_canary(world: SupervisorHarness) -> None:
    start_canary(world)

    assert world.call("unload", {"model": "m"}).result is None

    assert status(world)["phase"] == "ABORTED"
    load(world)
    assert serving(world) == [1]


def test_a_model_whose_directory_goes_takes_its_canary_along(
    repository: ModelDirectory, world: SupervisorHarness
) -> None:
    start_canary(world)
    repository.remove_all()

    world.core.models["m"].poll(0.0)
    world.run_until_idle()
    world.call("unload", {"model": "m"})

    assert world.call("canary.status").result == []
    assert told_split(world, "broker") == OVER


def test_a_server_that_stops_aborts_nothing(world: SupervisorHarness) -> None:
    start_canary(world)

    world.core.stop_requested()
    world.run_until_idle()
    world.advance(60.0)

    assert world.status == 0
    assert not world.has_logged("is aborted")


# -------------------------------------------------------------------- refusals


def test_a_canary_that_cannot_be_loaded_leaves_everything_as_it_was(
    world: SupervisorHarness,
) -> None:
    before = world.generation("m")
    world.stub_behaviours["m_0"] = "no weights"

    code, text = world.call("canary.start", {"model": "m", "version": 2, "weight": 10}).error

    assert InvalidArgument.number == code
    assert "has not begun: " in text
    assert "no weights" in text
    assert serving(world) == [1]
    assert before is world.generation("m")
    assert told_split(world) == OVER


def test_nothing_else_begins_while_a_version_is_tried(
    repository: ModelDirectory, world: SupervisorHarness
) -> None:
    start_canary(world)
    repository.add(3)

    load(world)
    assert serving(world) == [1, 2]

    world.call("canary.abort", {"model": "m"})
    assert serving(world) == [1]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ({"version": 3, "weight": 1}, InvalidArgument, "version 3 is not in the model's directory"),
        ({"version": 1, "weight": 1}, InvalidArgument, "version 1 of model 'm' is the only one"),
        ({"version": 2}, InvalidArgument, "a canary needs a 'weight', a 'header' or a 'shadow'"),
        ({"version": 2, "weight": 101}, InvalidArgument, "'weight' of a canary must be a per"),
        ({"version": 2, "wait": 1}, InvalidArgument, "a canary has no setting 'wait'; there are"),
        ({"weight": 1}, InvalidArgument, "a canary needs a 'version'"),
    ],
)
def test_what_cannot_be_is_refused(
    world: SupervisorHarness, arguments: dict[str, object], code: type[InvalidArgument], text: str
) -> None:
    error = world.call("canary.start", {"model": "m", **arguments}).error

    assert code.number == error[0]
    assert text in error[1]
    assert serving(world) == [1]


def test_copies_of_sequences_are_refused(tmp_path: Path) -> None:
    repository = ModelDirectory(tmp_path, f"sequence_batching {{ }} {PLAIN}")
    world = repository.serve()
    repository.add(2)

    error = world.call("canary.start", {"model": "m", "version": 2, "shadow": 1}).error

    assert "requests of sequences cannot be copied" in error[1]
    assert serving(world) == [1]


def test_a_second_canary_and_an_unknown_one_are_refused(
    repository: ModelDirectory, world: SupervisorHarness
) -> None:
    unknown = NotFound.number, "model 'm' has no running canary; start one first"
    assert unknown == world.call("canary.promote", {"model": "m"}).error
    assert NotFound.number == world.call("canary.status", {"model": "m"}).error[0]
    start_canary(world)
    repository.add(3)

    code, text = world.call("canary.start", {"model": "m", "version": 3, "weight": 1}).error

    assert AlreadyExists.number == code
    assert text == "version 2 of model 'm' is a canary already (RUNNING); promote or abort it first"


# ------------------------------------------------------------------- configured canaries


@pytest.mark.row("L16")
def test_a_version_that_is_added_is_tried_by_a_poll_as_the_parameters_say(tmp_path: Path) -> None:
    repository = ModelDirectory(tmp_path, parameters(version="2", weight="20%"))
    world = repository.serve()
    before = world.generation("m")
    assert serving(world) == [1]

    repository.add(2)
    world.core.models["m"].poll(0.0)
    world.run_until_idle()

    assert serving(world) == [1, 2]
    assert before is world.generation("m")
    assert wire.TrafficSplit("m", 1, 2, 2000) == told_split(world)
    splits = [m for m in world.messages_to("grpc", wire.TrafficSplit)]
    assert splits[0].weight == 0


def test_a_server_begins_with_the_canary(tmp_path: Path) -> None:
    repository = ModelDirectory(tmp_path, parameters(version="2", header="X-Try: yes"))
    repository.add(2)

    world = repository.serve()

    assert serving(world) == [1, 2]
    assert wire.TrafficSplit("m", 1, 2, 0, "x-try", "yes") == told_split(world)


def test_changed_parameters_change_it_and_load_nothing_anew(tmp_path: Path) -> None:
    repository = ModelDirectory(tmp_path, parameters(version="2", weight="20"))
    repository.add(2)
    world = repository.serve()
    before = world.generation("m", 1), world.generation("m", 2)

    repository.configure(parameters(version="2", weight="40"))
    load(world)

    assert told_split(world).weight == 4000
    assert before == (world.generation("m", 1), world.generation("m", 2))


def test_what_an_operator_changed_is_that_of_a_server_that_takes_over(tmp_path: Path) -> None:
    repository = ModelDirectory(tmp_path, parameters(version="2", weight="20"))
    repository.add(2)
    world = repository.serve()
    world.call("canary.change", {"model": "m", "weight": 70})

    pair = TakeOver(world, repository.server())
    pair.start()
    pair.exchange()

    assert told_split(world) == told_split(pair.new)
    assert told_split(pair.new).weight == 7000


def test_without_its_parameters_the_version_policy_decides(tmp_path: Path) -> None:
    repository = ModelDirectory(tmp_path, parameters(version="2", weight="20"))
    repository.add(2)
    world = repository.serve()

    repository.configure(PLAIN)
    load(world)

    assert (status(world)["phase"], serving(world)) == ("PROMOTED", [2])


def test_what_was_aborted_is_not_tried_again_until_it_changes(tmp_path: Path) -> None:
    repository = ModelDirectory(tmp_path, parameters(version="2", weight="20"))
    repository.add(2)
    world = repository.serve()
    world.call("canary.abort", {"model": "m"})

    repository.add(1, "changed")
    load(world)
    assert serving(world) == [1]

    repository.add(2, "repaired")
    load(world)
    assert serving(world) == [1, 2]
    assert status(world)["phase"] == "RUNNING"


def test_what_was_promoted_stays_though_the_parameters_still_name_it(tmp_path: Path) -> None:
    repository = ModelDirectory(tmp_path, parameters(version="2", weight="20"))
    repository.add(2)
    world = repository.serve()
    world.call("canary.promote", {"model": "m"})

    world.core.models["m"].poll(0.0)
    world.run_until_idle()

    assert (status(world)["phase"], serving(world)) == ("PROMOTED", [2])


def test_a_configuration_that_cannot_be_read_is_the_end_of_a_canary(
    repository: ModelDirectory, world: SupervisorHarness
) -> None:
    repository.configure("nonsense {")

    _, text = world.call("canary.start", {"model": "m", "version": 2, "weight": 10}).error

    assert "nonsense" in text
    assert (status(world)["phase"], serving(world)) == ("ABORTED", [1])


def test_parameters_that_cannot_be_are_a_problem_of_the_load(tmp_path: Path) -> None:
    repository = ModelDirectory(tmp_path)
    world = repository.serve()
    repository.configure(parameters(version="2", weight="much"))

    _, text = world.call("load", {"model": "m", "parameters": {}}).error

    assert (
        "canary_weight: 'weight' of a canary must be a percentage from 0 to 100, not 'much'" in text
    )
    assert serving(world) == [1]


# ------------------------------------------------------------------- later servers


OTHER = f'{PLAIN} parameters {{ key: "x" value {{ string_value: "y" }} }}'
FIRST = f"version_policy {{ specific {{ versions: 1 }} }} {PLAIN}"


def abort(repository: ModelDirectory) -> None:
    """Try version 2 on a server, and abort it."""
    world = repository.serve()
    repository.add(2)
    start_canary(world)
    world.call("canary.abort", {"model": "m"})
    assert serving(world) == [1]


def test_an_aborted_version_is_left_out_until_its_files_change(repository: ModelDirectory) -> None:
    abort(repository)

    world = repository.serve()
    assert serving(world) == [1]
    assert world.has_logged("W version 2 of model 'm' is left out until its files change")
    assert world.has_logged("(an operator has aborted it); 'zmqtriton-ctl canary start m 2' tries")

    repository.add(2, "repaired")
    load(world)
    assert serving(world) == [2]
    assert serving(repository.serve()) == [2]


def test_a_version_that_the_counts_have_aborted_is_left_out_too(tmp_path: Path) -> None:
    repository = ModelDirectory(tmp_path, parameters(version="2", weight="20", min_requests="10"))
    repository.add(2)
    world = repository.serve()
    count(world, (1, 100, 0, 1.0), (2, 0, 0, 1.0))
    world.advance(2.0)
    count(world, (1, 200, 0, 1.0), (2, 0, 10, 1.0))
    world.advance(2.0)
    assert status(world)["phase"] == "ABORTED"

    world = repository.serve()

    assert serving(world) == [1]
    assert NotFound.number == world.call("canary.status", {"model": "m"}).error[0]


def test_copies_of_the_files_elsewhere_are_the_same_version(
    repository: ModelDirectory, tmp_path: Path
) -> None:
    abort(repository)
    copied = shutil.copytree(tmp_path, tmp_path / ".elsewhere", copy_function=shutil.copyfile)
    shutil.rmtree(copied / ".state")
    os.rename(tmp_path / ".state", copied / ".state")
    other = ModelDirectory(copied)
    os.utime(copied / "m/2/model.py", (1, 1))

    assert serving(other.serve()) == [1]


def test_an_aborted_version_that_is_tried_again_and_promoted_serves(
    repository: ModelDirectory,
) -> None:
    abort(repository)
    world = repository.serve()
    start_canary(world)

    world.call("canary.promote", {"model": "m"})

    assert [2] == serving(world) == serving(repository.serve())


def test_while_it_is_tried_again_it_is_not_left_out_by_loads(repository: ModelDirectory) -> None:
    abort(repository)
    world = repository.serve()
    start_canary(world)

    repository.configure(OTHER)
    load(world)

    assert serving(world) == [1, 2]


def test_a_promotion_survives_loads_and_servers_against_the_version_policy(tmp_path: Path) -> None:
    repository = ModelDirectory(tmp_path, FIRST)
    world = repository.serve()
    repository.add(2)
    start_canary(world)
    world.call("canary.promote", {"model": "m"})
    before = world.generation("m", 2)

    repository.configure(f'{FIRST} parameters {{ key: "x" value {{ string_value: "y" }} }}')
    load(world)

    assert 2 in serving(world)
    assert before is not world.generation("m", 2)
    assert 2 in serving(repository.serve())


def test_a_new_version_policy_is_newer_than_the_promotion(tmp_path: Path) -> None:
    repository = ModelDirectory(tmp_path)
    world = repository.serve()
    repository.add(2)
    start_canary(world)
    world.call("canary.promote", {"model": "m"})

    repository.configure(FIRST)
    load(world)

    assert [1] == serving(world) == serving(repository.serve())


def test_a_promotion_of_the_only_version_that_the_policy_leaves_serves(tmp_path: Path) -> None:
    policy = f"version_policy {{ specific {{ versions: 2 }} }} {PLAIN}"
    repository = ModelDirectory(tmp_path, policy)
    repository.add(2)
    world = repository.serve()
    start_canary(world, version=1)
    world.call("canary.promote", {"model": "m"})

    repository.add(1)
    load(world)

    assert [1] == serving(world) == serving(repository.serve())


def test_what_never_began_or_was_unloaded_is_no_decision(repository: ModelDirectory) -> None:
    world = repository.serve()
    repository.add(2)
    world.stub_behaviours["m_0"] = "no weights"
    assert world.call("canary.start", {"model": "m", "version": 2, "weight": 10}).error
    assert serving(repository.serve()) == [2]

    world.stub_behaviours.clear()
    start_canary(world)
    world.call("unload", {"model": "m"})
    assert serving(repository.serve()) == [2]


def test_a_decision_that_cannot_be_read_is_reported_and_nothing_else(
    repository: ModelDirectory, tmp_path: Path
) -> None:
    abort(repository)
    (path,) = (tmp_path / ".state/canaries/m").iterdir()
    path.write_text("{}")

    world = repository.serve()

    assert serving(world) == [2]
    assert world.has_logged(
        f"W the decision about a version in '{path}' cannot be read: the file is"
    )
