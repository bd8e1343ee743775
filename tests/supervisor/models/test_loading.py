"""Loads, reloads and unloads, as the core decides them."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace
from typing import Any

import pytest

from tests.floor.reasons import because, text_of
from tests.supervisor.world import HANGS, LOADS, SupervisorHarness, make_blueprint
from zmqtriton.reading.blueprint import FinalConfig, LoadOverride
from zmqtriton.repository.scan import no_version_text
from zmqtriton.supervisor.control.load_calls import NOT_EXPLICIT
from zmqtriton.supervisor.models.model import ServedModel
from zmqtriton.supervisor.models.model_report import is_loaded, table_rows
from zmqtriton.supervisor.models.new_versions import NewVersions
from zmqtriton.supervisor.models.startup import SETTLE_S
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument, Unavailable
from zmqtriton_floor.reasons import Kind, Reason

LOAD_M = {"model": "m", "parameters": {}}


def explicit(*models: str, **policy: object) -> SupervisorHarness:
    """A server that has loaded nothing yet."""
    world = SupervisorHarness(
        *(make_blueprint(name) for name in models), control_mode="explicit", **policy
    )
    return world.start()


def change(world: SupervisorHarness, model: str = "m", fingerprint: str = "2") -> None:
    world.models[model] = dataclasses.replace(world.models[model], fingerprint=fingerprint)


@pytest.fixture
def world() -> SupervisorHarness:
    return explicit("m", startup_models=("*",))


@pytest.fixture
def empty() -> SupervisorHarness:
    """A server that has not loaded its model m yet."""
    return explicit("m")


def test_a_frontend_that_never_confirms_does_not_hold_up_a_load_for_ever(
    empty: SupervisorHarness,
) -> None:
    empty.silent = {empty.fork_http_worker()}
    call = empty.call("load", LOAD_M)

    empty.advance(60.0)

    assert call.result is None
    assert empty.has_logged("have not confirmed a change")


@pytest.mark.row("F13")
def test_a_model_that_has_not_changed_is_not_loaded_again_and_that_is_said(
    world: SupervisorHarness,
) -> None:
    before = world.instance("m").serial

    assert world.call("load", LOAD_M).result == "unchanged"
    assert world.instance("m").serial == before
    assert world.has_logged("'m' has not changed since it was loaded; it serves on as it is")


@pytest.mark.row("F10")
def test_a_reload_is_ready_before_the_old_one_is_retired(world: SupervisorHarness) -> None:
    old = world.generation("m")
    change(world)
    world.stub_behaviours["m"] = HANGS

    call = world.call("load", LOAD_M)

    assert call.answer is None
    assert world.generation("m") is old
    assert world.messages_to("broker", wire.Retire) == []
    new_stub = world.serial("m_0_0")
    world.finish_load(new_stub)
    assert call.result is None
    assert world.generation("m") is not old
    assert [wire.Retire(old.number)] == world.messages_to("broker", wire.Retire)
    assert world.living("stub") == [new_stub]


@pytest.mark.row("F10")
def test_a_failed_reload_keeps_what_serves(world: SupervisorHarness) -> None:
    old = world.generation("m")
    change(world)
    world.stub_behaviours["m"] = "ValueError: broken"

    code, text = world.call("load", LOAD_M).error
    assert code == InvalidArgument.number
    assert text == (
        "load failed for model 'm': version 1 is at UNAVAILABLE state: "
        "Internal: ValueError: broken;\n"
    )
    assert world.generation("m") is old
    assert ("READY", 1) == (world.latest_version_info("m").state, len(world.living("stub")))
    world.stub_behaviours["m"] = LOADS
    assert world.call("load", LOAD_M).result is None
    assert world.generation("m").number == 3


def test_a_wrong_completion_fails_the_load_with_its_reason() -> None:
    def refuse(reply: str) -> FinalConfig:
        raise InvalidArgument("model input must specify 'dims' for m")

    world = SupervisorHarness(make_blueprint("m", finish=refuse), control_mode="explicit").start()

    call = world.call("load", LOAD_M)

    assert "Invalid argument: model input must specify 'dims' for m" in call.error[1]
    assert world.living("stub") == []


@pytest.mark.row("F12")
def test_an_unload_is_answered_before_requests_under_way_end(world: SupervisorHarness) -> None:
    world.is_busy = True

    assert world.call("unload", {"model": "m"}).result is None
    assert world.latest_version_info("m").state == "UNLOADING"
    assert world.index()[0]["state"] == "UNLOADING"
    (retired,) = world.messages_to("broker", wire.Retire)
    world.receive(world.serial("broker"), wire.Drained(retired.generation))
    news = world.latest_version_info("m")
    assert ("UNAVAILABLE", "unloaded") == (news.state, text_of(news.reason))
    assert world.living("stub") == []
    assert "I successfully unloaded 'm' version 1" in world.log


@pytest.mark.row("F08")
def test_loads_of_one_model_come_one_after_the_other(empty: SupervisorHarness) -> None:
    empty.stub_behaviours["m"] = HANGS
    first = empty.call("load", LOAD_M)

    second = empty.call("load", LOAD_M)

    stub = empty.serial("m_0_0")
    assert len(empty.living("stub")) == 1
    empty.finish_load(stub)
    assert first.result is None
    assert second.result == "unchanged"
    assert empty.living("stub") == [stub]


@pytest.mark.row("F08", "--model-load-thread-count")
def test_a_model_that_hangs_does_not_hold_up_the_others_for_long() -> None:
    models = map(make_blueprint, ("a", "b", "c"))
    policy = {"control_mode": "none", "load_slots": 1, "stubs": {"a": HANGS}}
    world = SupervisorHarness(*models, **policy).start()
    assert "b" in world.core.models
    assert not world.has_logged("loading: b:1")

    world.advance(31.0)

    assert world.has_logged("successfully loaded 'b'")
    assert world.has_logged("successfully loaded 'c'")


@pytest.mark.row("F09", "--model-load-retry-count")
def test_a_load_is_tried_again_if_so_wanted() -> None:
    world = explicit("m", load_retries=1, stubs={"m": HANGS})
    call = world.call("load", LOAD_M)
    first = world.serial("m_0_0")
    world.stub_behaviours["m"] = LOADS

    world.receive(first, wire.LoadFailed(because("not yet"))).kill_process(
        first, "exited with status 1"
    )

    assert call.result is None
    assert world.latest_version_info("m").state == "READY"


RAISED = {"exception": "E", "message": "no", "file": "a.py", "line": 1, "function": "f"}


@pytest.mark.parametrize(
    ("kind", "values", "believed"),
    [
        (Kind.EXCEPTION, RAISED, Kind.EXCEPTION),
        (Kind.EXCEPTION, {**RAISED, "line": "1"}, Kind.OTHER),
        (Kind.UNLOADED, RAISED, Kind.OTHER),
    ],
)
def test_a_stub_may_say_that_its_model_has_raised_an_exception_and_nothing_else(
    kind: Kind, values: dict[str, Any], believed: Kind
) -> None:
    world = explicit("m", stubs={"m": HANGS})
    world.call("load", LOAD_M)
    stub = world.serial("m_0_0")

    reason = Reason(kind, values, "its text", Reason.of(Kind.SERVER_STOPS, "of something else"))
    world.receive(stub, wire.LoadFailed(reason)).kill_process(stub, "exited with status 1")

    shown: Any = world.latest_version_info("m").reason
    assert believed == shown.innermost.kind


@pytest.mark.row("F15", "F16", "--exit-on-error")
def test_a_failed_start_up_model_ends_the_server() -> None:
    failing = {"bad": "ModuleNotFoundError: No module named 'x'"}

    world = SupervisorHarness(
        make_blueprint("good"), make_blueprint("bad"), control_mode="none", stubs=failing
    ).start()

    (complaint,) = world.complaints
    assert complaint.splitlines() == [
        "error: creating server: Internal - failed to load all models",
        "Not loaded (--exit-on-error=false serves the others):",
        "  bad: Internal: ModuleNotFoundError: No module named 'x'",
    ]
    assert world.status == 1
    assert world.alive == set()
    reason = "UNAVAILABLE: Internal: ModuleNotFoundError: No module named 'x'"
    assert ("bad", "1", reason) in world.tables[0]
    assert (
        "E failed to load 'bad' version 1: Internal: ModuleNotFoundError: No module named 'x'"
        in world.log
    )


def test_a_poll_does_not_miss_what_has_come_with_its_files() -> None:
    served: Any = SimpleNamespace(is_directory_gone=False, override=LoadOverride("{}", "/staged"))
    missed: Any = SimpleNamespace(is_directory_gone=False, override=LoadOverride("{}"))
    models: dict[str, Any] = {
        "of a guest": SimpleNamespace(guests={7}, history=missed),
        "of a call": SimpleNamespace(guests=set(), history=served),
        "listed": SimpleNamespace(guests=set(), history=missed),
        "gone": SimpleNamespace(guests=set(), history=missed),
    }
    for name, model in models.items():
        model.name = name

    gone = [name for name in models if ServedModel.is_gone_from(models[name], ["listed"])]
    assert ["gone"] == gone


def lose_a_loading_stub(world: SupervisorHarness) -> None:
    """Kill the newest stub, which is loading."""
    world.kill_process(world.living("stub")[-1], had_begun=False)


def test_a_poll_does_not_try_for_ever_what_ends_its_processes() -> None:
    world = SupervisorHarness(make_blueprint("m"), control_mode="poll", poll_s=1.0).start()
    change(world)
    world.stub_behaviours["m"] = HANGS
    tries = []

    for _ in range(8):
        world.advance(1.0 + SETTLE_S)
        if len(world.living("stub")) > 1:
            lose_a_loading_stub(world)
        tries.append(world.log.count("I loading: m:1"))

    assert [2, 3, 4, 5, 5, 5, 5, 5] == tries


@pytest.mark.row("F02")
def test_a_poll_waits_until_what_is_being_copied_stays_the_same() -> None:
    world = SupervisorHarness(make_blueprint("good"), control_mode="poll", poll_s=15.0).start()
    world.models["m"] = make_blueprint("m", "half")
    world.advance(15.0 + SETTLE_S / 2)
    assert not world.has_logged("loading: m:1")

    change(world, fingerprint="more")
    world.advance(SETTLE_S)
    assert not world.has_logged("loading: m:1"), "it has changed meanwhile"
    world.advance(SETTLE_S)

    assert "READY" == world.latest_version_info("m").state
    assert "more" == world.generation("m").blueprint.fingerprint


@pytest.mark.row("B17")
@pytest.mark.parametrize(("parallel", "count"), [(True, 3), (False, 1)])
def test_instances_load_together_or_one_after_the_other(parallel: bool, count: int) -> None:
    model = dataclasses.replace(make_blueprint("m", instances=4), can_load_in_parallel=parallel)
    world = SupervisorHarness(model, control_mode="explicit").start()
    load = world.call("load", LOAD_M)
    # From here on their loads end when the test says so.
    world.stub_behaviours["m"] = HANGS
    assert (load.result, world.call("unload", {"model": "m"}).result) == (None, None)

    world.call("load", LOAD_M)
    world.finish_load(world.serial("m_0_0"))

    assert count == len(world.living("stub")) - 1


@pytest.mark.parametrize("verb", ["unload", "load"])
def test_what_is_unloaded_or_replaced_takes_requests_until_all_frontends_know(
    world: SupervisorHarness, verb: str
) -> None:
    world.silent.add(frontend := world.serial("grpc"))
    world.models["m"] = make_blueprint("m", fingerprint="2")

    world.call(verb, {"model": "m", "parameters": {}})
    assert [] == world.messages_to("broker", wire.Retire)
    question = world.messages_to("grpc", wire.Sync)[-1]
    world.receive(frontend, wire.Synced(question.number))

    assert 1 == len(world.messages_to("broker", wire.Retire))


def test_a_model_without_versions_is_known_until_it_is_unloaded(empty: SupervisorHarness) -> None:
    empty.models["m"] = make_blueprint("m", versions=())

    call = empty.call("load", LOAD_M)

    text = f"load failed for model 'm': {no_version_text('m')}\n"
    assert (InvalidArgument.number, text) == call.error
    assert "UNAVAILABLE" == empty.latest_version_info("m", 0).state
    untold = ("m", "-", "Not loaded: No model version was found")
    assert [untold] == table_rows(empty.core.models["m"])

    empty.call("unload", {"model": "m"})

    assert [wire.ForgetModel("m")] == empty.messages_to("grpc", wire.ForgetModel)


@pytest.mark.parametrize("largest", [None, "8"])
def test_the_largest_batch_of_the_command_line_is_logged_where_it_is_given(
    largest: str | None,
) -> None:
    settings = {} if largest is None else {"default-max-batch-size": largest}
    blueprint = dataclasses.replace(make_blueprint("m"), backend_settings=json.dumps(settings))

    world = SupervisorHarness(blueprint).start()

    text = "Adding default backend config setting: default-max-batch-size,"
    assert [f"V {text}8"] * (largest is not None) == [row for row in world.log if text in row]


@pytest.mark.row("F01", "F02")
@pytest.mark.parametrize("policy", [{"control_mode": "none"}, {"control_mode": "poll"}])
def test_nothing_is_looked_at_again_without_polls(policy: dict[str, str]) -> None:
    world = SupervisorHarness(make_blueprint("m"), poll_s=0.0, **policy).start()
    served = world.generation("m")
    change(world)
    world.models["late"] = make_blueprint("late")

    world.advance(1000.0)

    assert served is world.generation("m")
    assert ["m"] == list(world.core.models)
    number, text = world.call("load", LOAD_M).error
    assert Unavailable.number == number
    assert text.startswith(f"{NOT_EXPLICIT}. ")


def test_all_instances_import_while_the_first_is_asked_for_the_configuration() -> None:
    model = make_blueprint("m", instances=3)
    places = model.finalize_config("").slots
    world = SupervisorHarness(
        dataclasses.replace(model, other_slots=places[1:]), control_mode="explicit"
    ).start()
    world.stub_behaviours["m"] = HANGS

    call = world.call("load", LOAD_M)

    assert [("m_0_0", 1), ("m_0_1", 0), ("m_0_2", 0)] == [
        (one.instance, one.auto_complete) for one in world.messages_to("stub", wire.LoadModel)
    ]
    world.receive(world.serial("m_0_1"), wire.ConfigCompleted("{}"))
    assert [] == world.messages_to("stub", wire.Initialize), "it waits for what the first says"
    world.receive(world.serial("m_0_0"), wire.ConfigCompleted("{}"))
    assert 2 == len(world.messages_to("stub", wire.Initialize))
    world.receive(world.serial("m_0_2"), wire.ConfigCompleted("{}"))
    assert 3 == len(world.messages_to("stub", wire.Initialize))
    for place in places:
        world.receive(world.serial(place.name), wire.ModelLoaded())
    assert call.result is None
    assert 3 == world.latest_version_info("m").ready_instances


# ------------------------------------------------------------------- load timeouts


def bounded(**policy: object) -> SupervisorHarness:
    """A server with a model that may load for two seconds, and stubs that do not end."""
    model = dataclasses.replace(make_blueprint("m"), max_load_s=2.0)
    world = SupervisorHarness(model, control_mode="explicit", **policy).start()
    world.stubborn.add("stub")
    return world


def test_one_that_does_not_say_where_it_hangs_is_killed() -> None:
    world = bounded(stubs={"m": HANGS})
    call = world.call("load", LOAD_M)

    world.advance(3.5)

    assert "loading took longer than max_load_seconds (2)" in call.error[1]


def test_the_index_says_why_what_serves_was_not_replaced(world: SupervisorHarness) -> None:
    served = [{"name": "m", "version": "1", "state": "READY"}]
    world.stub_behaviours["m"] = "no luck"
    change(world)
    assert world.call("load", LOAD_M).answer is not None

    (entry,) = world.index()
    assert ("READY", "still served, the last load failed: Internal: no luck") == (
        entry["state"],
        entry["reason"],
    )
    assert is_loaded(world.core.models["m"])

    change(world, fingerprint="1")
    assert "unchanged" == world.call("load", LOAD_M).result
    assert served == world.index(), "what was there is back"


# ------------------------------------------------------------------- overtaken loads


@pytest.mark.parametrize("override", [None, LoadOverride('{"backend": "python"}', "")])
def test_what_an_ended_load_had_asked_for_is_not_taken_for_the_next_ones(
    override: LoadOverride | None,
) -> None:
    world = SupervisorHarness(make_blueprint("m"), control_mode="explicit").start()

    # All in one turn: nothing is read before the last of them.
    first = world.core.load("m", None)
    world.core.models["m"].unload()
    second = world.core.load("m", override)
    world.run_until_idle()

    assert first.error is not None
    assert second.is_over
    assert second.error is None
    assert ["READY"] == [v.state.value for v in world.core.models["m"].versions.values()]


def test_an_error_of_the_server_s_own_ends_one_load_and_not_the_next(
    empty: SupervisorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(NewVersions, "choose", lambda *_, **__: 1 // 0)
        load = empty.core.load("m", None)
        with pytest.raises(ZeroDivisionError):
            empty.run_until_idle()

    assert load.error is not None
    assert "an error of the server's own" in load.error.text
    call = empty.call("load", LOAD_M)
    empty.finish_load(empty.serial("m_0_0"))
    assert call.result is None
