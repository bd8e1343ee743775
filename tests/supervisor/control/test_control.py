from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton.supervisor.control import load_calls
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument


@pytest.fixture
def world() -> SupervisorHarness:
    return SupervisorHarness(
        make_blueprint("m"), make_blueprint("n"), control_mode="explicit", startup_models=("m",)
    ).start()


def test_the_index_of_what_is_ready_leaves_out_the_rest(world: SupervisorHarness) -> None:
    ready = world.call("index", {"ready": True}).result

    assert [{"name": "m", "version": "1", "state": "READY"}] == ready


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "Model name cannot be empty. Please enter a valid name to deploy."),
        ({"model": 3}, "the name of a model must be a string, got an integer"),
        (
            {"model": "../x"},
            "invalid model name '../x', model name must not contain path traversal characters",
        ),
        (
            {"model": ".."},
            "invalid model name '..', model name must not contain path traversal characters",
        ),
        ({"model": "m", "parameters": {"speed": "1"}}, "unrecognized load parameter 'speed'."),
        (
            {"model": "m", "parameters": {"file:1/model.py": "eA=="}},
            "unrecognized load parameter 'file:1/model.py'.",
        ),
        (
            {"model": "m", "parameters": {}, "files": {"refusal": ""}},
            "Load parameter 'config' must be specified for model file override",
        ),
        ({"model": "m", "parameters": {"config": "{}"}, "files": {"refusal": "why"}}, "why"),
        ({"model": "m", "parameters": {"config": "{}"}, "files": "7-" + "0" * 16}, None),
        ({"model": "m", "parameters": {"config": "{}"}, "files": {"staged": "../x"}}, None),
        ({"model": "m", "parameters": []}, None),
        ({"model": "m", "parameters": {"config": 3}}, None),
    ],
)
def test_a_load_with_wrong_arguments_is_refused(
    world: SupervisorHarness, arguments: dict[str, Any], text: str | None
) -> None:
    call = world.call("load", arguments)

    if arguments.get("parameters") == []:
        assert call.result == "unchanged"  # nothing is in it
        return
    code, said = call.error
    assert code == InvalidArgument.number
    assert text is None or said == text


def test_dependents_are_asked_for_with_a_boolean(world: SupervisorHarness) -> None:
    call = world.call("unload", {"model": "m", "unload_dependents": "yes"})

    assert call.error[0] == InvalidArgument.number
    assert "Unable to parse 'unload_dependents'" in call.error[1]


@pytest.mark.parametrize(
    "document", ["", "[]", "3", "{", "[" * 100_000, r'{"model": "\ud800"}', r'{"\ud800": 1}']
)
def test_arguments_that_are_no_object_are_refused(world: SupervisorHarness, document: str) -> None:
    caller = world.core.plan.new_serial()

    world.receive(caller, wire.Call(1, "load", document))

    (answer,) = [m for s, m in world.sent if s == caller]
    assert answer.code == InvalidArgument.number


def test_an_unknown_verb_is_refused(world: SupervisorHarness) -> None:
    code, text = world.call("dance").error
    assert (InvalidArgument.number, "unknown control call 'dance'") == (
        code,
        text.partition(";")[0],
    )


def test_the_code_of_what_serves_is_told_where_it_lies(world: SupervisorHarness) -> None:
    def code(*models: str) -> Any:
        return world.call("code", {"models": models}).result

    place = {"version": 1, "directory": "/models/m", "contents": str(world.generation("m").number)}
    assert {"m": place} == code("m", "n", "nobody")
    world.call("unload", {"model": "m"})
    assert {} == code("m")


def test_a_process_has_its_age_whenever_the_wall_clock_is_set(world: SupervisorHarness) -> None:
    world.clock_step_s = 3600.0

    processes = world.call("status").result["processes"]

    assert {4600.0} == {process["started_s"] for process in processes}
    assert 4600.0 == world.call("identity").result["started_s"]


def test_the_status_tells_the_growth_of_a_process_until_it_is_replaced(
    world: SupervisorHarness,
) -> None:
    def growth() -> Any:
        return world.call("status").result["processes"][-1]["growth"]

    assert growth() is None
    world.receive(world.serial("m_0_0"), wire.MemoryGrowth(256, 100, 900))
    assert {"executions": 256, "before": 100, "after": 900} == growth()

    world.receive(world.serial("m_0_0"), wire.MemoryGrowth(0, 0, 0))
    assert growth() is None
    world.receive(world.serial("m_0_0"), wire.MemoryGrowth(256, 100, 900))
    world.kill_process(world.serial("m_0_0")).tick()
    assert growth() is None


def test_the_status_tells_how_code_differs_from_its_configuration_within_a_bound(
    world: SupervisorHarness,
) -> None:
    for number in range(20):
        world.receive(world.serial("m_0_0"), wire.Mismatch(f"sent {number}"))

    texts = world.call("status").result["processes"][-1]["mismatches"]
    assert [f"sent {number}" for number in range(16)] == list(texts)


def test_what_a_stub_must_not_send_is_logged_once(world: SupervisorHarness) -> None:
    for _ in range(3):
        world.receive(world.serial("m_0_0"), wire.ModelLoaded())

    assert 1 == sum("more of this will only be counted" in line for line in world.log)
    assert 3 == world.call("status").result["malformed"]


def test_the_status_has_every_process_and_what_the_broker_has_counted(
    world: SupervisorHarness,
) -> None:
    world.model_stats = [
        {
            "name": "m",
            "version": "1",
            "execution_count": 4,
            "inference_stats": {"success": {"count": 5, "ns": 1}, "fail": {"count": 6, "ns": 1}},
            "zmqtriton": {
                "pending": 7,
                "unanswered": 2,
                "sequences": 1,
                "last_arrival_ns": 2_500_000_000,
                "busy_ns": 1_500_000_000,
                "direct_responses": 8,
                "brokered_responses": 9,
            },
        }
    ]

    document = world.call("status").result

    assert ["supervisor", "broker", "http-arbiter", "grpc", "metrics", "stub"] == [
        process["role"] for process in document["processes"]
    ]
    stub = document["processes"][-1]
    assert ("m", 1, "m_0_0", "READY", 0, "") == tuple(
        stub[key] for key in ("model", "version", "instance", "state", "restarts", "last_reason")
    )
    numbers: dict[str, Any] = {
        "failures": {},
        "refusals": {},
        "deadlines": 0,
        "queue_ns": 0,
        "compute_ns": 0,
        "executed": 0,
        "inferences": 0,
        "succeeded": 5,
        "failed": 6,
        "faults": 0,
        "success_ns": 1,
        "pending": 7,
        "unanswered": 2,
        "executions": 4,
    }
    numbers |= {"direct_responses": 8, "brokered_responses": 9, "sequences": 1, "busy_s": 1.5}
    assert [{"model": "m", "version": 1, "last_arrival_s": 2.5, **numbers}] == document["counts"]


def test_logs_are_asked_for_by_model_and_number(world: SupervisorHarness) -> None:
    questions: list[tuple[str, int, int]] = []

    def read(model: str, after: int, limit: int) -> dict[str, Any]:
        questions.append((model, after, limit))
        return {"lines": [], "last": 9, "lost": 0}

    world.log_lines = read

    for count in (1, 5):
        assert 9 == world.call("logs", {"model": "m", "after": 3, "lines": count}).result["last"]
    world.call("logs")
    assert [("m", 3, 1), ("m", 3, 5), ("", 0, 100)] == questions
    for wrong in ({"model": 3}, {"after": "3"}, {"lines": 0}, {"lines": True}):
        assert InvalidArgument.number == world.call("logs", wrong).error[0]


@pytest.mark.row("E45")
def test_models_hear_whether_what_they_ask_may_be_looked_up(world: SupervisorHarness) -> None:
    def configure(model: str, **config: Any) -> None:
        generation = world.generation(model)
        assert generation.final_config is not None
        text = json.dumps({"name": model, **config})
        generation.final_config = dataclasses.replace(generation.final_config, config=text)

    world.call("load", {"model": "n"})
    configure("m", ensemble_scheduling={"step": [{"model_name": "n", "model_version": "-1"}]})
    before = world.call("is_hashed", {"model": "m"}).result
    configure("n", response_cache={"enable": True})

    hashed = [world.call("is_hashed", {"model": name}).result for name in ("m", "n", "nobody")]

    assert (False, [True, True, False]) == (before, hashed)


def test_models_hear_whether_another_one_takes_tensors_on_gpus(world: SupervisorHarness) -> None:
    finished = world.generation("m").final_config
    assert finished is not None
    takes = {"parameters": {"FORCE_CPU_ONLY_INPUT_TENSORS": {"string_value": "no"}}}

    before = world.call("takes_gpu", {"model": "m"}).result
    world.generation("m").final_config = dataclasses.replace(finished, config=json.dumps(takes))

    assert [False, True, True, False, False] == [
        before,
        world.call("takes_gpu", {"model": "m"}).result,
        world.call("takes_gpu", {"model": "m", "version": 1}).result,
        world.call("takes_gpu", {"model": "m", "version": 2}).result,
        world.call("takes_gpu", {"model": "nobody"}).result,
    ]
    code, _ = world.call("takes_gpu", {"model": "m", "version": "1"}).error
    assert InvalidArgument.number == code


@pytest.mark.parametrize("binding", [3, 0, -1, "3", True])
def test_only_a_process_that_takes_part_can_bind_a_model(
    world: SupervisorHarness, binding: Any
) -> None:
    code, text = world.call("load", {"model": "n", "binding": binding}).error

    assert InvalidArgument.number == code
    assert "only a process that takes part in the server can bind a model" == text
    assert {"name": "n"} == world.index()[1]


def test_a_model_that_is_bound_comes_with_its_files(
    world: SupervisorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_calls, "GUEST", "grpc")

    call = world.call_as(world.serial("grpc"), "load", {"model": "n", "binding": 0})

    assert (
        InvalidArgument.number,
        "a model that is bound has its files already: leave them out",
    ) == call.error


@pytest.mark.parametrize(
    ("verb", "arguments", "told"),
    [
        pytest.param(
            "scale",
            {"model": "m", "count": 2},
            """scale 'm' {"count": 2} for token 'ci' of 10.0.0.7""",
            marks=pytest.mark.addons,
        ),
        pytest.param(
            "restart",
            {"model": "m"},
            "restart 'm' for token 'ci' of 10.0.0.7",
            marks=pytest.mark.addons,
        ),
        (
            "load",
            {"model": "m", "parameters": {"config": "{}", "file:1/model.py": "secret"}},
            "load 'm' for token 'ci' of 10.0.0.7",
        ),
        (
            "log.settings",
            {"changes": {"log_verbose_level": 1}},
            """log.settings {"changes": {"log_verbose_level": 1}} for token 'ci' of 10.0.0.7""",
        ),
        ("scale", {"model": "m"}, ""),
        ("log.settings", {"changes": {}}, ""),
        ("index", {"ready": False}, ""),
    ],
)
def test_the_log_tells_of_each_change_and_its_client(
    world: SupervisorHarness, verb: str, arguments: dict[str, Any], told: str
) -> None:
    client = "token 'ci' of 10.0.0.7"

    world.receive(world.serial("grpc"), wire.Call(1, verb, json.dumps(arguments), client))

    assert ([f"I {told}"] if told else []) == [line for line in world.log if client in line]
