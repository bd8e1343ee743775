"""Loads, reloads and unloads, as the core decides them."""

from __future__ import annotations

import dataclasses
import gc
import json
from types import SimpleNamespace
from typing import Any

import pytest

from tests.floor.reasons import because, text_of
from tests.supervisor.world import HANGS, LOADS, SupervisorHarness, make_blueprint
from zmqtriton.reading.blueprint import FinalConfig, LoadOverride
from zmqtriton.repository.scan import no_version_text
from zmqtriton.supervisor.control import load_calls
from zmqtriton.supervisor.control.load_calls import NOT_EXPLICIT
from zmqtriton.supervisor.models.load import Load
from zmqtriton.supervisor.models.model_report import is_loaded, table_rows, troubles
from zmqtriton.supervisor.models.new_versions import NewVersions
from zmqtriton.supervisor.models.startup import SETTLE_S, find_gone
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError, InvalidArgument, Unavailable, ZmqTritonError

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


def test_a_model_is_announced_to_the_broker_before_the_frontends(world: SupervisorHarness) -> None:
    order = [
        type(message).__name__
        for serial, message in world.sent
        if isinstance(message, (wire.AddGeneration, wire.AttachInstance))
        or (isinstance(message, wire.VersionInfo) and message.state == "READY")
    ]

    assert ["AddGeneration", "AttachInstance", "VersionInfo"] == order[:3]


def test_a_load_is_answered_when_everybody_has_seen_it(empty: SupervisorHarness) -> None:
    grpc, http = empty.serial("grpc"), empty.fork_http_worker()
    empty.silent = {grpc, http}

    call = empty.call("load", LOAD_M)

    assert call.answer is None
    sync = empty.messages_to("grpc", wire.Sync)[-1]
    empty.receive(grpc, wire.Synced(sync.number))
    assert call.answer is None
    empty.receive(http, wire.Synced(sync.number))
    assert call.result is None


def test_a_frontend_that_dies_counts_as_having_seen(empty: SupervisorHarness) -> None:
    http = empty.fork_http_worker()
    empty.silent = {http}
    call = empty.call("load", LOAD_M)
    assert call.answer is None

    empty.kill_process(http)

    assert call.result is None


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


def test_what_serves_is_given_up_during_a_reload_that_succeeds(world: SupervisorHarness) -> None:
    change(world)
    world.stub_behaviours["m"] = HANGS
    world.call("load", LOAD_M)
    old, new = world.generation("m"), world.serial("m_0_0")
    while world.latest_version_info("m").state == "READY":
        world.kill_process(old.instances[0].serial).advance(2.0)
        if old.instances[0].state.value == "LOADING":
            world.finish_load(old.instances[0].serial)

    world.finish_load(new)

    assert world.latest_version_info("m").state == "READY"
    assert world.generation("m") is not old


def test_all_instances_load_before_the_model_is_ready() -> None:
    world = SupervisorHarness(make_blueprint("m", instances=3), control_mode="none").start()

    assert world.generation("m").readiness.ready_count == 3
    assert len(world.messages_to("broker", wire.AttachInstance)) == 3
    completing = [load.auto_complete for load in world.messages_to("stub", wire.LoadModel)]
    assert [1, wire.CONFIG_IS_FINAL, wire.CONFIG_IS_FINAL] == completing
    assert 1 == len(world.messages_to("stub", wire.Initialize))


def test_one_instance_that_fails_fails_the_load() -> None:
    models = make_blueprint("m", instances=2)
    world = SupervisorHarness(models, control_mode="explicit", stubs={"m": HANGS}).start()
    call = world.call("load", LOAD_M)
    world.receive(world.serial("m_0_0"), wire.ConfigCompleted("{}"))

    world.kill_process(world.serial("m_0_1"), "killed by SIGSEGV")

    assert "Stub process 'm_0_1' is not healthy. (killed by SIGSEGV)" in call.error[1]
    assert world.living("stub") == []


def test_a_wrong_completion_fails_the_load_with_its_reason() -> None:
    def refuse(reply: str) -> FinalConfig:
        raise InvalidArgument("model input must specify 'dims' for m")

    world = SupervisorHarness(make_blueprint("m", finish=refuse), control_mode="explicit").start()

    call = world.call("load", LOAD_M)

    assert "Invalid argument: model input must specify 'dims' for m" in call.error[1]
    assert world.living("stub") == []


def test_versions_load_independently() -> None:
    world = SupervisorHarness(make_blueprint("m", versions=(1, 3)), control_mode="none").start()

    assert world.latest_version_info("m", 1).state == "READY"
    assert world.latest_version_info("m", 3).state == "READY"
    assert (
        world.latest_version_info("m", 1).generation != world.latest_version_info("m", 3).generation
    )


def test_a_version_that_is_not_wanted_any_more_is_unloaded_after_the_new_one_serves(
    world: SupervisorHarness,
) -> None:
    world.models["m"] = make_blueprint("m", "2", versions=(2,))

    world.call("load", LOAD_M)

    assert world.latest_version_info("m", 2).state == "READY"
    news = world.latest_version_info("m", 1)
    assert ("UNAVAILABLE", "unloaded") == (news.state, text_of(news.reason))
    assert len(world.living("stub")) == 1


def test_a_model_without_a_version_says_so() -> None:
    world = SupervisorHarness(make_blueprint("m", versions=()), control_mode="explicit").start()

    assert "at least one version must be available" in world.call("load", LOAD_M).error[1]
    assert table_rows(world.core.models["m"]) == [
        ("m", "-", "Not loaded: No model version was found")
    ]


def test_an_unknown_model_cannot_be_loaded() -> None:
    world = explicit()

    call = world.call("load", LOAD_M)

    text = "failed to load 'm', failed to poll from model repository"
    reason = "No model repository has a directory of this name"
    assert call.error == (InternalError.number, f"{text}. {reason}")
    assert world.index() == []


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


def test_a_version_that_is_unloaded_takes_requests_until_all_frontends_know(
    world: SupervisorHarness,
) -> None:
    frontend = world.serial("grpc")
    world.silent.add(frontend)

    call = world.call("unload", {"model": "m"})
    assert [] == world.messages_to("broker", wire.Retire)
    question = world.messages_to("grpc", wire.Sync)[-1]
    world.receive(frontend, wire.Synced(question.number))

    assert 1 == len(world.messages_to("broker", wire.Retire))
    assert call.result is None


def test_an_unknown_model_can_be_unloaded() -> None:
    assert explicit().call("unload", {"model": "nobody"}).result is None


def test_an_unload_cancels_a_load_that_hangs(empty: SupervisorHarness) -> None:
    empty.stub_behaviours["m"] = HANGS
    load = empty.call("load", LOAD_M)

    assert empty.call("unload", {"model": "m"}).result is None
    assert load.error[0] == Unavailable.number
    assert empty.living("stub") == []
    assert text_of(empty.latest_version_info("m").reason) == "unloaded"


def test_a_load_during_an_unload_does_not_wait_for_it(world: SupervisorHarness) -> None:
    world.is_busy = True
    old = world.generation("m")
    world.call("unload", {"model": "m"})

    assert world.call("load", LOAD_M).result is None
    assert world.latest_version_info("m").state == "READY"
    world.receive(world.serial("broker"), wire.Drained(old.number))
    assert ("READY", 1) == (world.latest_version_info("m").state, len(world.living("stub")))


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


def test_a_failed_start_up_model_is_allowed_if_so_wanted() -> None:
    policy = {"control_mode": "none", "exit_on_error": False, "stubs": {"bad": "no"}}

    world = SupervisorHarness(make_blueprint("good"), make_blueprint("bad"), **policy).start()

    assert world.status is None
    assert len(world.messages_to("grpc", wire.Listen)) == 1


@pytest.mark.parametrize("mode", ["none", "poll"])
def test_models_are_not_controlled_where_the_repository_rules(mode: str) -> None:
    world = SupervisorHarness(make_blueprint("m"), control_mode=mode).start()

    text = f"{NOT_EXPLICIT}. Start the server with --model-control-mode=explicit"
    assert world.call("load", LOAD_M).error == (Unavailable.number, text)
    assert world.call("unload", {"model": "m"}).error == (Unavailable.number, text)


@pytest.mark.parametrize("verb", ["load", "unload"])
def test_a_service_of_the_server_loads_for_itself_all_the_same(
    monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr(load_calls, "LOCAL_SERVICES", {"grpc"})
    world = SupervisorHarness(make_blueprint("m"), control_mode="none").start()

    def is_refused(role: str, of_service: object) -> bool:
        arguments = {"model": "m", "of_service": of_service}
        answer = world.call_as(world.serial(role), verb, arguments).answer
        return answer is not None and answer.text.startswith(NOT_EXPLICIT)

    assert [True, True, True] == [
        is_refused(*asking) for asking in (("grpc", False), ("grpc", "true"), ("metrics", True))
    ]
    assert not is_refused("grpc", True)


def test_a_poll_does_not_miss_what_has_come_with_its_files() -> None:
    served: Any = SimpleNamespace(is_directory_gone=False, override=LoadOverride("{}", "/staged"))
    missed: Any = SimpleNamespace(is_directory_gone=False, override=LoadOverride("{}"))
    models: dict[str, Any] = {
        "of a guest": SimpleNamespace(guests={7}, history=missed),
        "of a call": SimpleNamespace(guests=set(), history=served),
        "listed": SimpleNamespace(guests=set(), history=missed),
        "gone": SimpleNamespace(guests=set(), history=missed),
    }

    assert [models["gone"]] == find_gone(models, ["listed"])


def test_polls_load_what_is_new_and_changed_and_unload_what_is_gone() -> None:
    world = SupervisorHarness(
        make_blueprint("a"), make_blueprint("b"), control_mode="poll", poll_s=15.0
    ).start()
    old = world.generation("a")
    change(world, "a")
    del world.models["b"]
    world.models["c"] = make_blueprint("c")

    world.advance(15.0 + SETTLE_S)

    assert world.generation("a") is not old
    assert sorted(world.core.models) == ["a", "c"]
    assert [wire.ForgetModel("b")] == world.messages_to("grpc", wire.ForgetModel)
    assert world.latest_version_info("c").state == "READY"
    assert "V Polling model repository" in world.log


def test_a_poll_does_not_try_again_what_has_failed_and_has_not_changed() -> None:
    policy = {"control_mode": "poll", "poll_s": 1.0, "exit_on_error": False}
    world = SupervisorHarness(make_blueprint("m"), stubs={"m": "no"}, **policy).start()

    world.advance(10.0)

    assert len([line for line in world.log if line == "I loading: m:1"]) == 1
    change(world)
    world.stub_behaviours["m"] = LOADS
    world.advance(1.0 + SETTLE_S)
    assert world.latest_version_info("m").state == "READY"


def lose_a_loading_stub(world: SupervisorHarness) -> None:
    """Kill the newest stub, which is loading."""
    world.kill_process(world.living("stub")[-1], had_begun=False)


def test_a_poll_tries_again_what_has_failed_because_a_process_was_lost() -> None:
    world = SupervisorHarness(make_blueprint("m"), control_mode="poll", poll_s=1.0).start()
    change(world)
    world.stub_behaviours["m"] = HANGS
    world.advance(1.0 + SETTLE_S)
    lose_a_loading_stub(world)
    assert world.has_logged("killed by SIGKILL")
    first = world.generation("m").number

    world.stub_behaviours["m"] = LOADS
    world.advance(1.0 + SETTLE_S)

    assert ("READY", None) == world.latest_version_info("m")[3:5]
    assert first != world.generation("m").number


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


def test_what_is_deleted_while_it_is_waited_for_is_forgotten() -> None:
    world = SupervisorHarness(control_mode="poll", poll_s=2.0).start()
    world.models["m"] = make_blueprint("m")
    world.advance(2.5)
    del world.models["m"]

    world.advance(10.0)

    assert {} == world.core.models
    assert not world.has_logged("loading: m:1")


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


def test_a_model_without_versions_is_known_until_it_is_unloaded(empty: SupervisorHarness) -> None:
    empty.models["m"] = make_blueprint("m", versions=())

    call = empty.call("load", LOAD_M)

    text = f"load failed for model 'm': {no_version_text('m')}\n"
    assert (InvalidArgument.number, text) == call.error
    assert "UNAVAILABLE" == empty.latest_version_info("m", 0).state

    empty.call("unload", {"model": "m"})

    assert [wire.ForgetModel("m")] == empty.messages_to("grpc", wire.ForgetModel)


def test_a_model_without_versions_is_refused_when_frontends_know_it(
    empty: SupervisorHarness,
) -> None:
    empty.models["m"] = make_blueprint("m", versions=())
    empty.silent.add(empty.serial("grpc"))

    call = empty.call("load", LOAD_M)
    assert call.answer is None, "a client could ask a frontend that has not heard of it"
    empty.kill_process(empty.serial("grpc"))
    empty.run_until_idle()

    assert call.error[0] == InvalidArgument.number


@pytest.mark.parametrize("largest", [None, "8"])
def test_the_largest_batch_of_the_command_line_is_logged_where_it_is_given(
    largest: str | None,
) -> None:
    settings = {} if largest is None else {"default-max-batch-size": largest}
    blueprint = dataclasses.replace(make_blueprint("m"), backend_settings=json.dumps(settings))

    world = SupervisorHarness(blueprint).start()

    text = "Adding default backend config setting: default-max-batch-size,"
    assert [f"V {text}8"] * (largest is not None) == [row for row in world.log if text in row]


def test_loads_that_have_ended_are_not_kept(world: SupervisorHarness) -> None:
    for number in range(20):
        change(world, fingerprint=f"again {number}")
        assert world.call("load", LOAD_M).result is None
        world.sent.clear()

    gc.collect()
    assert len([one for one in gc.get_objects() if isinstance(one, Load)]) < 5


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

    loads = world.messages_to("stub", wire.LoadModel)
    assert [("m_0_0", 1), ("m_0_1", 0), ("m_0_2", 0)] == [
        (one.instance, one.auto_complete) for one in loads
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


def test_a_load_that_takes_too_long_ends_and_says_where_it_was() -> None:
    world = bounded(stubs={"m": HANGS})
    call = world.call("load", LOAD_M)
    serial = world.serial("m_0_0")
    world.advance(1.9)
    assert call.answer is None

    world.advance(0.1)
    assert call.answer is None, "it is asked where it is"
    world.kill_process(serial, "killed by SIGABRT", "Aborted, At: model.py(5): initialize")

    took = "loading took longer than max_load_seconds (2): Aborted, At: model.py(5): initialize"
    assert took in call.error[1]


def test_one_that_does_not_say_where_it_hangs_is_killed() -> None:
    world = bounded(stubs={"m": HANGS})
    call = world.call("load", LOAD_M)

    world.advance(3.5)

    assert "loading took longer than max_load_seconds (2)" in call.error[1]


def test_a_load_in_time_is_not_bounded_afterwards() -> None:
    world = bounded(startup_models=("*",))
    before = world.instance("m").serial

    world.advance(100.0)

    assert before == world.instance("m").serial
    assert "READY" == world.latest_version_info("m").state


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


def test_a_version_that_still_loads_is_not_ready_for_that_cause() -> None:
    world = explicit("m", stubs={"m": HANGS})
    world.call("load", LOAD_M)

    cause = {"model": "m", "version": "1", "what": "version", "cause": "LOADING"}
    assert [cause] == list(troubles(world.core.models["m"]))


# ------------------------------------------------------------------- overtaken loads


@pytest.mark.parametrize("override", [None, LoadOverride('{"backend": "python"}', "")])
def test_what_an_ended_load_had_asked_for_is_not_taken_for_the_next_ones(
    override: LoadOverride | None,
) -> None:
    world = SupervisorHarness(make_blueprint("m"), control_mode="explicit").start()
    answers: list[Any] = []

    # All in one turn: nothing is read before the last of them.
    world.core.load("m", None).then(answers.append)
    world.core.models["m"].unload()
    world.core.load("m", override).then(answers.append)
    world.run_until_idle()

    assert [True, False] == [error is not None for error in answers]
    assert ["READY"] == [v.state.value for v in world.core.models["m"].versions.values()]


def test_an_error_of_the_server_s_own_ends_one_load_and_not_the_next(
    empty: SupervisorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[ZmqTritonError | None] = []
    with monkeypatch.context() as broken:
        broken.setattr(NewVersions, "choose", lambda *_, **__: 1 // 0)
        empty.core.load("m", None).then(answers.append)
        with pytest.raises(ZeroDivisionError):
            empty.run_until_idle()

    [error] = answers
    assert error is not None
    assert "an error of the server's own" in error.text
    call = empty.call("load", LOAD_M)
    empty.finish_load(empty.serial("m_0_0"))
    assert call.result is None
