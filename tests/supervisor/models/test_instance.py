"""Instances, and their groups."""

from __future__ import annotations

import dataclasses
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from tests.floor.reasons import because, text_of
from tests.supervisor.world import LOADS, SupervisorHarness, make_blueprint
from zmqtriton.environments.demand import SERVER_ENVIRONMENT
from zmqtriton.host.capacity import ProcessorUse
from zmqtriton.reading.blueprint import Blueprint, FinalConfig, InstanceSlot
from zmqtriton.supervisor import states
from zmqtriton.supervisor.actions import Action, Assignment, Log, Send, Signal, Template
from zmqtriton.supervisor.backoff import MAX_DEATHS
from zmqtriton.supervisor.finalize_turns import FinalizeTurns
from zmqtriton.supervisor.models.instance import FINALIZE_WITHIN_S, StubPlace
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.states import InstanceState
from zmqtriton_floor import wire

# ---------------------------------------------------------------------------- instance


class Bench:
    """An instance whose timers work."""

    def __init__(self, retry_after_s: float = 0.0, template: Template | None = None) -> None:
        self.plan = Plan()
        server: Any = SimpleNamespace(max_finalizing=1, processor_use=lambda pid: ProcessorUse())
        owner: Any = SimpleNamespace(
            blueprint=dataclasses.replace(make_blueprint("m"), retry_after_s=retry_after_s),
            version=1,
            environment=SERVER_ENVIRONMENT,
            finalize_turns=FinalizeTurns(self.plan, server),
            handle=lambda instance, event: instance.handle(event),
            choose_template=lambda *_: template,
            choose_spare=lambda *_: 0,
            place=lambda instance: Assignment(),
        )
        self.instance = StubPlace(self.plan, InstanceSlot("m_0_0", "CPU", 0), owner)

    def handle(self, *events: states.Event) -> list[Action]:
        for event in events:
            self.instance.handle(event)
        return self.take()

    def take(self) -> list[Action]:
        """Return the actions to be performed, but for the log."""
        return [action for action in self.plan.take_actions() if not isinstance(action, Log)]

    def load(self) -> list[Action]:
        return self.handle(
            states.ProcessStarted(42), states.InstanceConfigCompleted("{}"), states.InstanceLoaded()
        )

    def serve(self) -> Bench:
        """Have it started and loaded."""
        self.handle(states.StartRequested())
        self.load()
        return self

    def advance(self, seconds: float) -> list[Action]:
        self.plan.advance_to(self.plan.now_s + seconds)
        return self.take()

    def die(self, reason: str = "killed by SIGKILL") -> list[Action]:
        exited = states.ProcessExited(because(reason), had_begun=True)
        return self.handle(exited) + self.advance(0.0)

    def die_too_often(self) -> None:
        """Have it die and come back as often as it may."""
        for _ in range(MAX_DEATHS):
            self.die()
            self.advance(self.pause_s() or 0.0)
            self.load()

    def pause_s(self) -> float | None:
        """Until the next thing that it does by itself."""
        due_s = self.plan.next_deadline_s()
        return None if due_s is None else round(due_s - self.plan.now_s, 3)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize(
    ("kind", "place"), [("CPU", "CPU"), ("GPU", "GPU 1"), ("MODEL", "model-specified devices")]
)
def test_a_verbose_line_says_where_an_instance_is_created(
    bench: Bench, kind: str, place: str
) -> None:
    bench.instance.slot = InstanceSlot("m_0_0", kind, 1)

    bench.instance.handle(states.StartRequested())

    lines = [action for action in bench.plan.take_actions() if isinstance(action, Log)]
    text = f"Creating instance m_0_0 on {place} using artifact 'model.py'"
    assert [("V", text)] == [(line.level, line.text) for line in lines[1:]]


@pytest.fixture
def given_up() -> Bench:
    """One that is tried again 40 seconds after each of its deaths."""
    bench = Bench(retry_after_s=40.0).serve()
    bench.die_too_often()
    bench.die()
    return bench


def test_one_that_comes_up_and_has_not_worked_yet_is_still_on_probation(given_up: Bench) -> None:
    given_up.advance(40.0)
    given_up.load()

    given_up.die()

    assert InstanceState.FAILED is given_up.instance.state
    assert 40.0 == given_up.pause_s()


def test_a_death_while_loading_shows_its_last_words(bench: Bench) -> None:
    bench.handle(states.StartRequested(), states.ProcessStarted(42))

    bench.handle(states.ProcessExited(because("exited with status 3"), "lacks the module 'zmq'"))

    assert text_of(bench.instance.death_reason) == "exited with status 3: lacks the module 'zmq'"


def test_a_stop_before_the_process_is_there_kills_it_when_it_comes(bench: Bench) -> None:
    bench.handle(states.StartRequested())

    early = bench.handle(states.StopRequested())
    todo = bench.handle(states.ProcessStarted(42))

    assert early == []
    assert [Signal(1, signal.SIGKILL, group=True)] == todo


LOAD = wire.LoadModel("template", "m", 1, "CPU", 0, "/m", "/m/1/model.py", "{}", 0)


def test_a_thread_is_asked_to_end_and_its_process_killed_only_if_it_does_not() -> None:
    bench = Bench(template=Template(5, LOAD, has_threads=True))
    bench.handle(states.StartRequested())
    bench.handle(states.ProcessStarted(42))

    actions = bench.handle(states.StopRequested())

    serial = bench.instance.serial
    assert [Send(serial, wire.Finalize())] == actions
    assert [Signal(serial, int(signal.SIGKILL), group=True)] == bench.advance(FINALIZE_WITHIN_S)


# --------------------------------------------------------------------- instance groups
# Other instance groups for a model that serves, without loading it anew.


LOAD_M = {"model": "m", "parameters": {}}


def grouped(
    *places: InstanceSlot,
    fingerprint: str = "1",
    substance: str = "same",
    versions: tuple[int, ...] = (1,),
) -> Blueprint:
    """With these instances, and else what the substance says."""
    finished = FinalConfig(f'{{"name": "m", "places": {len(places)}}}', b"proto", places)
    model = make_blueprint("m", fingerprint, versions, finish=lambda reply: finished)
    of = {
        n: dataclasses.replace(v, fingerprint_without_instances=f"{substance} {n}")
        for n, v in model.versions.items()
    }
    return dataclasses.replace(model, versions=of, first_slot=places[0])


def cpus(count: int, group: str = "m_0") -> tuple[InstanceSlot, ...]:
    return tuple(InstanceSlot(f"{group}_{number}", "CPU", 0) for number in range(count))


def serving(*places: InstanceSlot) -> SupervisorHarness:
    world = SupervisorHarness(grouped(*places), control_mode="explicit", startup_models=("*",))
    return world.start()


@pytest.fixture
def world() -> SupervisorHarness:
    """A model with one instance."""
    return serving(*cpus(1))


def load(world: SupervisorHarness, model: Blueprint) -> object:
    world.models["m"] = model
    return world.call("load", LOAD_M).result


def serials(world: SupervisorHarness) -> list[int]:
    return sorted(instance.serial for instance in world.generation("m").instances)


@pytest.mark.row("F11")
def test_more_instances_join_those_that_there_are(world: SupervisorHarness) -> None:
    number, old = world.generation("m").number, serials(world)

    assert load(world, grouped(*cpus(3), fingerprint="2")) is None

    assert number == world.generation("m").number
    assert old == serials(world)[:1]
    assert 3 == world.latest_version_info("m").ready_instances
    assert '{"name": "m", "places": 3}' == world.latest_version_info("m").config
    assert 3 == len(world.messages_to("broker", wire.AttachInstance))
    assert [number, number] == [
        serve.generation for serve in world.messages_to("broker", wire.AddGeneration)
    ]


@pytest.mark.row("F11")
def test_fewer_instances_leave_when_they_have_answered_what_they_have() -> None:
    world = serving(*cpus(3))
    first, *others = serials(world)
    world.is_busy = True

    assert load(world, grouped(*cpus(1), fingerprint="2")) is None
    assert 1 == world.latest_version_info("m").ready_instances
    assert others == [retire.serial for retire in world.messages_to("broker", wire.Retire)]
    assert {first, *others} <= world.alive, "they answer what they have"

    broker = world.serial("broker")
    for serial in others:
        world.receive(broker, wire.Drained(1, serial))
    assert [first] == serials(world)
    assert not set(others) & world.alive
    assert not world.has_logged("has died")


@pytest.mark.row("F11")
def test_another_name_starts_nobody_anew() -> None:
    world = serving(*cpus(2))
    before = serials(world)

    assert load(world, grouped(*cpus(2, "other"), fingerprint="2")) is None

    assert before == serials(world)
    assert ["other_0", "other_1"] == [instance.name for instance in world.generation("m").instances]


@pytest.mark.row("F11")
def test_one_that_cannot_be_started_changes_nothing(world: SupervisorHarness) -> None:
    before = serials(world)
    world.stub_behaviours["m"] = "no room"
    world.models["m"] = grouped(*cpus(3), fingerprint="2")

    code, text = world.call("load", LOAD_M).error

    assert (4, True) == (code, "no room" in text)
    assert before == serials(world)
    assert '{"name": "m", "places": 1}' == world.latest_version_info("m").config
    assert "READY" == world.latest_version_info("m").state
    world.stub_behaviours["m"] = LOADS
    assert world.call("load", LOAD_M).result is None
    assert 3 == len(serials(world))


@pytest.mark.row("F11")
def test_a_version_more_or_less_leaves_the_others_alone(world: SupervisorHarness) -> None:
    before = serials(world)

    assert load(world, grouped(*cpus(1), fingerprint="2", versions=(1, 2))) is None
    assert before == serials(world)
    assert "READY" == world.latest_version_info("m", 2).state

    assert load(world, grouped(*cpus(1), fingerprint="3", versions=(1,))) is None
    assert before == serials(world)
    assert "UNAVAILABLE" == world.latest_version_info("m", 2).state


@pytest.mark.row("F11")
def test_anything_else_is_a_load_anew(world: SupervisorHarness) -> None:
    before = serials(world)

    assert load(world, grouped(*cpus(2), fingerprint="2", substance="other")) is None

    assert not set(before) & set(serials(world))
