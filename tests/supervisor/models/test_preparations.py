"""Loads that wait; resources of models, and the history of their loads."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from typing import Any

import pytest

from tests.supervisor.settings import settings as server_settings
from tests.supervisor.world import HANGS, LOADS, Call, SupervisorHarness, make_blueprint
from zmqtriton.config.resources import ResourceNeed
from zmqtriton.environments.demand import INTERPRETER, Environment, EnvironmentSpec
from zmqtriton.reading.blueprint import Blueprint, InstanceSlot, LoadOverride, ReadFailure, Scale
from zmqtriton.supervisor.actions import Action, SpawnStub
from zmqtriton.supervisor.models.load_history import LoadHistory
from zmqtriton.supervisor.models.resources import InstanceLimit
from zmqtriton.supervisor.models.version import ServedVersion
from zmqtriton.supervisor.states import ModelState
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError, Unavailable
from zmqtriton_floor.reasons import Kind, Reason
from zmqtriton_floor.settings.broker import RateLimitResource

# ------------------------------------------------------------------------ preparations
# A load that needs an environment waits for the process that prepares it, and for nobody else.


READY = Environment("/env/bin/python", "/env", "/support")


def demanding(name: str, fingerprint: str = "1", versions: tuple[int, ...] = (1,)) -> Blueprint:
    demand = EnvironmentSpec(INTERPRETER, python="/bin/x")
    return dataclasses.replace(make_blueprint(name, fingerprint, versions), environment=demand)


class Watching(SupervisorHarness):
    """Keeps how stubs were started."""

    def _perform(self, action: Action) -> None:
        if isinstance(action, SpawnStub):
            self.started.append((action.model, action.environment))
        super()._perform(action)

    started: list[tuple[str, Environment]]


def world(*models: Blueprint, **policy: object) -> Watching:
    watching = Watching(*models, **policy)
    watching.started = []
    watching.start()
    return watching


def answer(watching: SupervisorHarness, model: str, environment: Environment = READY) -> None:
    message = wire.CallResult(0, 0, "", json.dumps(environment))
    watching.receive(watching.preparation_serials[model], message)


@pytest.fixture
def watched() -> Watching:
    """One whose model needs an environment."""
    return world(demanding("m"))


def test_the_status_shows_what_is_being_prepared(watched: Watching) -> None:
    def preparing() -> list[str]:
        processes = watched.call("status").result["processes"]
        return [p["state"] for p in processes if p["role"] == "environment"]

    assert ["preparing the interpreter /bin/x"] == preparing()
    answer(watched, "m")
    watched.kill_process(watched.preparation_serials["m"], "exited with status 0")
    assert [] == preparing()


def test_a_stub_cannot_say_how_far_it_is() -> None:
    watched = world(demanding("m"), make_blueprint("other"))

    stub = watched.instance("other").serial
    watched.receive(stub, wire.PreparationProgress(0, "Reading x", 5, 20))

    rows = watched.call("status").result["environments"]
    assert ["preparing the interpreter /bin/x"] == [row["step"] for row in rows]


def test_nothing_is_prepared_before_the_broker_could_end_it() -> None:
    """Whoever kills the supervisor at any moment leaves nothing behind that a preparation began."""
    quiet = Watching(demanding("m"))
    quiet.started = []
    quiet.silent = set(range(1000))
    quiet.start()
    broker = quiet.serial("broker")
    quiet.silent = {broker}
    quiet.receive(broker, wire.Synced(quiet.messages_to("broker", wire.Sync)[-1].number))

    assert ["environment"] == [e.role for e in quiet.messages_to("broker", wire.ExpectPeer)][-1:]
    assert [] == quiet.messages_to("environment", wire.Call)
    quiet.receive(broker, wire.Synced(quiet.messages_to("broker", wire.Sync)[-1].number))

    assert ["prepare"] == [call.verb for call in quiet.messages_to("environment", wire.Call)]


def test_a_process_that_dies_without_an_answer_is_the_reason() -> None:
    watched = world(demanding("m"), exit_on_error=False)

    watched.kill_process(watched.preparation_serials["m"], words="out of memory")

    assert watched.index()[0]["reason"] == (
        "Internal: the interpreter /bin/x cannot be prepared (killed by SIGKILL): out of memory"
    )


@pytest.mark.parametrize("is_stubborn", [False, True])
def test_versions_that_go_meanwhile_end_the_process_and_the_load(is_stubborn: bool) -> None:
    watched = world(demanding("m", versions=(1, 2)), control_mode="explicit")
    if is_stubborn:
        watched.stubborn.add("environment")
    load = watched.call("load", {"model": "m"})
    process, model = watched.preparation_serials["m"], watched.core.models["m"]

    model.unload_version(model.versions[1])
    watched.run_until_idle()
    assert process in watched.alive, "version 2 needs it"
    model.unload_version(model.versions[2])
    watched.run_until_idle()

    assert is_stubborn == (process in watched.alive), "it removes what is half made"
    assert "version 2 is at UNAVAILABLE state: unloaded" in load.error[1]
    watched.advance(60.0)
    assert process not in watched.alive
    assert [] == watched.started
    assert {ModelState.UNAVAILABLE} == {version.state for version in model.versions.values()}


def test_the_server_can_stop_meanwhile(watched: Watching) -> None:
    watched.stop()

    assert watched.preparation_serials["m"] not in watched.alive


def test_a_model_that_failed_leaves_no_generation_behind() -> None:
    watched = world(make_blueprint("m", problem="no file"), demanding("n"), exit_on_error=False)

    watched.receive(
        watched.preparation_serials["n"], wire.CallResult(0, InternalError.number, "no uv", "")
    )

    assert {} == watched.core.generations


# ------------------------------------------------------------------------ nested loads
# Calls of models to the supervisor, and loads that others wait for.


def world_of(*models: str, **policy: object) -> SupervisorHarness:
    world = SupervisorHarness(
        *(make_blueprint(name) for name in models), control_mode="explicit", **policy
    )
    world.start()
    world.stub_behaviours = dict.fromkeys(models, HANGS)
    return world


def stub_of(world: SupervisorHarness, model: str) -> int:
    """The serial of its newest, loaded or not."""
    generations = [g for g in world.core.generations.values() if g.blueprint.name == model]
    return generations[-1].instances[0].serial


def asks(world: SupervisorHarness, model: str, for_model: str) -> Call:
    """In its initialize, or later."""
    return world.call_as(stub_of(world, model), "load", {"model": for_model})


def test_who_would_wait_for_itself_is_refused() -> None:
    world = world_of("a", "b", "c")
    world.call("load", {"model": "a"})
    alone = asks(world, "a", "a")
    asks(world, "a", "b")
    asks(world, "b", "c")

    circle = asks(world, "c", "a")

    assert "model 'a' asks for it in its initialize and would wait for itself" in alone.error[1]
    assert "model 'c' asks for it in its initialize and would wait for itself" in circle.error[1]


def test_one_that_died_waits_for_nobody_any_more() -> None:
    world = world_of("a", "b")
    world.call("load", {"model": "a"})
    asks(world, "a", "b")
    world.kill_process(stub_of(world, "a"))

    assert asks(world, "b", "a").answer is None


def test_a_model_that_is_served_may_load_itself_anew() -> None:
    world = world_of("a")
    world.stub_behaviours["a"] = LOADS
    world.call("load", {"model": "a"})

    assert "unchanged" == asks(world, "a", "a").result


def test_ready_is_what_can_execute_now() -> None:
    world = world_of("a", "b")
    world.stub_behaviours["a"] = LOADS
    world.call("load", {"model": "a"})
    world.call("load", {"model": "b"})

    def is_ready(model: str, version: int = -1) -> bool:
        return world.call("ready", {"model": model, "version": version}).result

    assert [True, True, False] == [is_ready("a", version) for version in (-1, 1, 2)]
    assert [False, False] == [is_ready("b"), is_ready("unknown")]

    world.stub_behaviours["a"] = HANGS
    world.kill_process(stub_of(world, "a"))
    assert not is_ready("a")

    world.call("unload", {"model": "a"})
    assert not is_ready("a")
    assert "must be a string" in world.call("ready", {"model": 3}).error[1]


# --------------------------------------------------------------------------- resources
# Loads whose instances could never execute are refused, and what is gone needs nothing.


LIMITED = {"rate_limit": "execution_count", "rate_limit_resource": (RateLimitResource("R", 2, -1),)}


def _needing(name: str, count: int, device: int = 0, *, is_final: bool = True) -> Blueprint:
    demand = ResourceNeed({("R", device): count}, 1).to_json()
    plain = make_blueprint(name)
    finished = plain.finalize_config("")
    finished = replace(finished, slots=tuple(p._replace(resources=demand) for p in finished.slots))
    return replace(
        plain, final_config=finished if is_final else None, finalize_config=lambda reply: finished
    )


def _world(*models: Blueprint, settings: dict[str, Any]) -> SupervisorHarness:
    return SupervisorHarness(
        *models, control_mode="explicit", settings=server_settings(**settings)
    ).start()


def _load(world: SupervisorHarness, name: str) -> str:
    """Why not; "": all is well."""
    call = world.call("load", {"model": name, "parameters": {}})
    assert call.answer is not None
    return str(call.answer.text)


@pytest.mark.row("E38")
@pytest.mark.parametrize("is_final", [True, False])
def test_a_model_that_could_never_execute_is_not_loaded(is_final: bool) -> None:
    world = _world(_needing("m", 2), _needing("n", 3, is_final=is_final), settings=LIMITED)

    assert "" == _load(world, "m")
    assert (
        "load failed for model 'n': version 1 is at UNAVAILABLE state: Invalid argument: Resource "
        'count for "R" is limited to 2 which will prevent scheduling of one or more model '
        "instances, the minimum required count is 3;\n"
    ) == _load(world, "n")
    assert not [name for name in world.stub_names.values() if name.startswith("n") and is_final]


@pytest.mark.row("E38")
def test_what_is_unloaded_does_not_clash_any_more() -> None:
    settings = {"rate_limit": "execution_count"}
    world = _world(_needing("m", 1), _needing("n", 1, device=-1), settings=settings)
    assert "" == _load(world, "m")

    assert 'Resource "R" is present as both global and device-specific' in _load(world, "n")
    world.call("unload", {"model": "m", "unload_dependents": False})

    assert "" == _load(world, "n")


def _grouped(fingerprint: str, *keys: tuple[str, int]) -> Blueprint:
    """It differs in its instances only, each of which needs one of these."""
    plain = make_blueprint("m", fingerprint)
    demands = [ResourceNeed({key: 1}, 1).to_json() for key in keys]
    places = tuple(InstanceSlot(f"m_0_{n}", "CPU", 0, demand) for n, demand in enumerate(demands))
    finished = replace(plain.finalize_config(""), slots=places)
    versions = {
        n: replace(v, fingerprint_without_instances="same") for n, v in plain.versions.items()
    }
    return replace(
        plain,
        versions=versions,
        final_config=finished,
        finalize_config=lambda _: finished,
        first_slot=places[0],
    )


@pytest.mark.row("E38")
@pytest.mark.parametrize(
    ("outcome", "old", "new", "clashes"),
    [
        ("no room", ("OLD", 0), ("R", -1), False),
        (LOADS, ("OLD", 0), ("R", -1), True),
        (LOADS, ("R", -1), ("NEW", 0), False),
    ],
)
def test_after_other_instances_what_is_gone_needs_nothing(
    outcome: str, old: tuple[str, int], new: tuple[str, int], clashes: bool
) -> None:
    settings = {"rate_limit": "execution_count"}
    world = _world(_grouped("1", old), _needing("n", 1, device=0), settings=settings)
    assert "" == _load(world, "m")
    world.stub_behaviours["m"] = outcome
    world.models["m"] = _grouped("2", new)
    assert (outcome == LOADS) is (_load(world, "m") == "")

    text = _load(world, "n")

    assert ('Resource "R" is present as both' in text) is clashes
    assert (text == "") is not clashes
    names = [instance.slot.resources for instance in world.generation("m").instances]
    assert [ResourceNeed({new if outcome == LOADS else old: 1}, 1).to_json()] == names


# ------------------------------------------------------------------- gpu limits
LIMIT = ((0, 0.8), (1, 0.5))


REFUSED = (
    "load failed for model 'm': version 1 is at UNAVAILABLE state: Unavailable: can not create "
    "model '{}': memory limit set for GPU {} has exceeded, model loading is rejected.;\n"
)


def _on(name: str, *devices: int, kind: str = "GPU", is_final: bool = True) -> Blueprint:
    plain = make_blueprint(name)
    places = tuple(InstanceSlot(f"{name}_0", kind, device) for device in devices)
    finished = replace(plain.finalize_config(""), slots=places)
    return replace(
        plain, final_config=finished if is_final else None, finalize_config=lambda reply: finished
    )


class Gpus:
    """GPUs with the share in use of each, and the list of those that were asked."""

    def __init__(self, *models: Blueprint, **used: float) -> None:
        self.used = {int(name[1:]): share for name, share in used.items()}
        self.queries: list[int] = []
        policy = {"settings": server_settings(model_load_gpu_limit=LIMIT), "used_share": self._ask}
        self.world = SupervisorHarness(*models, control_mode="explicit", **policy).start()

    def _ask(self, gpu: int) -> float | None:
        self.queries.append(gpu)
        return self.used.get(gpu)

    def load(self, name: str = "m") -> str:
        """Why not; "": all is well."""
        return _load(self.world, name)


@pytest.mark.row("--model-load-gpu-limit")
def test_a_load_on_a_gpu_that_is_too_full_is_refused_until_it_is_not() -> None:
    gpus = Gpus(_on("m", 0), g0=0.81)

    assert REFUSED.format("m_0", 0) == gpus.load()
    assert [] == list(gpus.world.stub_names.values())

    gpus.used[0] = 0.8
    assert ("", [0, 0]) == (gpus.load(), gpus.queries)


# ------------------------------------------------------------------- instance limit
def test_all_generations_share_the_limit() -> None:
    limit = InstanceLimit(10)
    limit.claim(1, 6)

    with pytest.raises(Unavailable, match=r"allows 10 instances; there are 6, .* needs 5 more"):
        limit.claim(2, 5)
    limit.claim(2, 4)

    limit.release(1)
    limit.claim(2, 10)


def reloaded_twice() -> tuple[SupervisorHarness, Call]:
    """A server with the limit 10 and a model of 4 instances; its first generation still answers."""

    def model(fingerprint: str) -> Blueprint:
        slots = tuple(InstanceSlot(f"m_0_{number}", "CPU", 0) for number in range(4))
        return replace(make_blueprint("m", fingerprint, instances=4), other_slots=slots[1:])

    world = SupervisorHarness(
        model("1"), control_mode="explicit", startup_models=("m",), max_instances=10
    ).start()
    world.is_busy = True
    world.models["m"] = model("2")
    assert world.call("load", {"model": "m"}).result is None
    world.models["m"] = model("3")
    return world, world.call("load", {"model": "m"})


def test_a_reload_waits_for_the_instances_that_an_earlier_one_ends() -> None:
    world, call = reloaded_twice()
    assert call.answer is None
    [old] = world.messages_to("broker", wire.Retire)

    world.is_busy = False
    world.receive(world.serial("broker"), wire.Drained(old.generation, old.serial))
    world.advance(1.0)

    assert call.answer is not None
    assert call.result is None


def test_a_reload_is_refused_in_the_end_if_they_do_not_end() -> None:
    world, call = reloaded_twice()

    world.advance(60.0)

    assert "allows 10 instances; there are 8, and the load needs 4 more" in call.error[1]
    assert world.latest_version_info("m").state == "READY"


def test_an_unload_ends_a_load_that_waits_for_others() -> None:
    world, call = reloaded_twice()

    unload = world.call("unload", {"model": "m"})
    world.is_busy = False
    for old in world.messages_to("broker", wire.Retire):
        world.receive(world.serial("broker"), wire.Drained(old.generation, old.serial))
    world.advance(60.0)

    assert unload.answer is not None
    assert "unloaded" in call.error[1]
    assert not world.living("stub")


# ------------------------------------------------------------------------ load history
# The findings of one model's loads, and their results.


BLUEPRINT = make_blueprint("m", "1", versions=(1, 2))


OTHER = make_blueprint("m", "2", versions=(1, 2))


OVERRIDE = LoadOverride(config='{"max_batch_size": 3}')


ANY_GENERATION: Any = object()


def _versions(*serving: int) -> dict[int, ServedVersion]:
    versions = {number: ServedVersion("m", number) for number in (1, 2)}
    for number in serving:
        versions[number].state = ModelState.READY
        versions[number].generation = ANY_GENERATION
    return versions


def _loaded(blueprint: Blueprint = BLUEPRINT, override: LoadOverride | None = None) -> LoadHistory:
    history = LoadHistory()
    history.record_attempt(blueprint, override)
    history.record_loaded(blueprint)
    return history


def test_a_model_is_current_if_these_files_serve_in_all_versions() -> None:
    history = _loaded()

    assert history.is_current(BLUEPRINT, None, _versions(1, 2))
    assert not history.is_current(BLUEPRINT, None, _versions(1))
    assert not history.is_current(BLUEPRINT, None, {})
    assert not history.is_current(OTHER, None, _versions(1, 2))
    assert not history.is_current(BLUEPRINT, OVERRIDE, _versions(1, 2))
    assert not _loaded(override=OVERRIDE).is_current(BLUEPRINT, None, _versions(1, 2))
    nothing = make_blueprint("m", "3", versions=())
    assert not _loaded(nothing).is_current(nothing, None, {})


def test_after_an_unload_nothing_is_current_no_scale_holds_and_there_is_no_problem() -> None:
    history = _loaded()
    history.record_scale(Scale(3), BLUEPRINT)
    history.record_read_failure(ReadFailure(Reason.of(Kind.OTHER, "no such setting"), "1"))

    history.record_unloaded()

    assert not history.is_current(BLUEPRINT, None, _versions(1, 2))
    assert (None, None) == (history.scale, history.read_problem)
    assert history.was_attempted("1")


def test_an_attempt_is_of_files_or_of_what_came_with_it() -> None:
    assert not LoadHistory().is_from_files
    assert _loaded().is_from_files
    assert not _loaded(override=OVERRIDE).is_from_files
    history = _loaded()

    history.record_gone()

    assert (True, False, False) == (
        history.is_directory_gone,
        history.is_from_files,
        history.was_attempted("1"),
    )


def _lose_process(history: LoadHistory, blueprint: Blueprint, attempts: int = 1) -> None:
    for _ in range(attempts):
        history.record_attempt(blueprint, None)
        history.record_lost_process()


def test_files_are_tried_again_three_times_if_each_time_a_process_was_lost() -> None:
    history, tried = LoadHistory(), []
    for _ in range(5):
        history.record_attempt(BLUEPRINT, None)
        assert history.was_attempted("1")
        history.record_lost_process()
        history.record_lost_process()  # another one of the same attempt
        tried.append(history.was_attempted("1"))

    assert [False, False, False, True, True] == tried


def test_other_files_and_a_success_begin_the_count_anew() -> None:
    history = LoadHistory()
    _lose_process(history, BLUEPRINT, 4)
    assert history.was_attempted("1")

    _lose_process(history, OTHER)
    assert not history.was_attempted("2")

    _lose_process(history, OTHER, 3)
    assert history.was_attempted("2")
    history.record_loaded(OTHER)
    _lose_process(history, OTHER)
    assert not history.was_attempted("2")


def test_what_cannot_be_read_is_told_until_something_can() -> None:
    history, why = LoadHistory(), Reason.of(Kind.OTHER, "no such model")

    history.record_read_failure(ReadFailure(why, "7"))
    assert (why, False) == (history.read_problem, history.is_directory_gone)
    assert history.was_attempted("7")

    history.record_read_failure(ReadFailure(why))
    assert history.is_directory_gone

    history.record_attempt(make_blueprint("m", versions=()), None)
    assert (None, False, True) == (
        history.read_problem,
        history.is_directory_gone,
        history.has_no_version,
    )
    history.record_read_failure(ReadFailure(why, "7"))
    history.record_unchanged(BLUEPRINT)
    assert (None, True) == (history.read_problem, history.was_attempted("1"))


def test_a_number_of_instances_holds_until_other_groups_are_configured() -> None:
    scaled = replace(BLUEPRINT, fingerprint="scaled")
    configured = replace(BLUEPRINT, configured_groups="a", scaled=lambda scale: scaled)
    history = LoadHistory()
    assert configured is history.keep_scale(configured)

    history.record_scale(Scale(3), configured)
    assert scaled is history.keep_scale(configured)

    changed = replace(configured, configured_groups="b")
    assert changed is history.keep_scale(changed)
    assert history.scale is None
    assert configured is history.keep_scale(configured)
