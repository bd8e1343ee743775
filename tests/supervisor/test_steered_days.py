"""Seeded days of a server that is steered while processes die.

Every call is answered, nothing is lost, and what is left is what was asked for last. In some days
the repository is polled. Requests may be slow, so that what ends does not end at once, and a
frontend may be slow to hear what serves.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.supervisor.model_directory import PLAIN, ModelDirectory
from tests.supervisor.world import HANGS, LOADS, Call, SupervisorHarness
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.models.instance import StubPlace
from zmqtriton.supervisor.server_processes.acknowledgements import ACKNOWLEDGEMENT_TIMEOUT_S
from zmqtriton.supervisor.states import GenerationState, InstanceState
from zmqtriton_floor import wire

pytestmark = [pytest.mark.row("L06", "L15", "L16"), pytest.mark.slow]

EVENTS = 60
GROUP = "instance_group { count: 2 }"
CONFIGS = (
    f'{PLAIN} {GROUP} parameters {{ key: "INSTANCES" value {{ string_value: "forks" }} }}',
    f"{PLAIN} {GROUP}",
    f"{PLAIN} {GROUP} dynamic_batching {{ }}",
    f"{PLAIN} {GROUP} sequence_batching {{ }}",
    f"{PLAIN} {GROUP} response_cache {{ enable: true }}",
    f"{PLAIN} instance_group {{ count: 1 }}",
)


class SteeredDay:
    def __init__(self, path: Path, seed: int) -> None:
        self._chance = random.Random(seed)
        self.files = ModelDirectory(path, CONFIGS[0])
        self.files.add(2)
        self.world: SupervisorHarness = self.files.serve(
            control_mode="explicit" if seed % 3 else "poll", poll_s=30.0
        )
        self.world.models["m"] = self.files.read()  # which lists it
        self.world.explore(seed)
        self.calls: list[tuple[str, Call]] = []
        self._edits = 0
        #: What ends, each with its places for instances.
        self._ending: dict[Generation, set[StubPlace]] = {}
        #: The generations that a silent frontend sends requests to, and the messages before that.
        self._routed: list[Generation] = []
        self._heard, self._silent_until_s = 0, 0.0
        self._events: dict[Callable[[], None], int] = {
            self._scale: 6,
            self._change_code: 6,
            self._change_configuration: 1,
            self._load: 2,
            self._unload: 1,
            self._start_canary: 3,
            self._end_canary: 3,
            self._kill_stub: 4,
            self._finish_loads: 2,
            self._kill_broker: 1,
            self._change_behaviour: 4,
            self._let_time_pass: 6,
            self._hide_model: 1,
            self._change_requests: 2,
            self._change_frontend: 2,
        }

    def run(self) -> None:
        events, weights = list(self._events), list(self._events.values())
        for _ in range(EVENTS):
            self._chance.choices(events, weights)[0]()
            self._check_promises()

    def _call(self, verb: str, **arguments: object) -> Call:
        call = self.world.call(verb, {"model": "m", **arguments})
        self.calls.append((verb, call))
        return call

    # ------------------------------------------------------------ what happens

    def _scale(self) -> None:
        self._call("scale", count=self._chance.randint(1, 5))

    def _change_code(self) -> None:
        self._edits += 1
        self.files.add(self._chance.choice([1, 2]), str(self._edits))
        self._load()

    def _change_configuration(self) -> None:
        self.files.configure(self._chance.choice(CONFIGS))
        self._load()

    def _load(self) -> None:
        self._call("load", parameters={})

    def _unload(self) -> None:
        self._call("unload")

    def _start_canary(self) -> None:
        version = self._chance.choice([1, 2])
        self._call("canary.start", version=version, weight=self._chance.randint(1, 100))

    def _end_canary(self) -> None:
        self._call(self._chance.choice(["canary.promote", "canary.abort"]))

    def _kill_stub(self) -> None:
        stubs = self.world.living("stub")
        if stubs:
            self.world.kill_process(self._chance.choice(stubs), had_begun=False)

    def _loading(self) -> list[int]:
        generations = self.world.core.generations.values()
        instances = [each for one in generations for each in one.instances]
        return [each.serial for each in instances if each.state is InstanceState.LOADING]

    def _finish_loads(self) -> None:
        for serial in self._loading():
            self.world.finish_load(serial)

    def _kill_broker(self) -> None:
        for broker in self.world.living("broker"):
            self.world.kill_process(broker)

    def _change_behaviour(self) -> None:
        self.world.stub_behaviours["m"] = self._chance.choice([LOADS, LOADS, HANGS, "no weights"])

    def _let_time_pass(self) -> None:
        self.world.advance(self._chance.choice([0.1, 2.0, 30.0]))

    def _hide_model(self) -> None:
        """Its directory goes, or comes back as it was."""
        if self.world.models:
            self.world.models.clear()
        else:
            self.world.models["m"] = self.files.read()

    def _change_requests(self) -> None:
        """They are slow from now on, or those that were are answered."""
        self.world.is_busy = not self.world.is_busy
        for broker in () if self.world.is_busy else self.world.living("broker"):
            for retire in [m for s, m in self.world.sent if s == broker and type(m) is wire.Retire]:
                self.world.receive(broker, wire.Drained(*retire[:2]))
                self.world.receive(broker, wire.Settled(*retire[:2]))

    def _change_frontend(self) -> None:
        """It hears nothing from now on, or is replaced."""
        for silent in [*self.world.silent]:
            self.world.silent.clear()
            self.world.kill_process(silent)
            return
        self.world.silent |= {*self.world.living("grpc")}
        models = self.world.core.models.values()
        self._routed = [each for model in models for each in model.serving_generations]
        self._heard, self._silent_until_s = (
            len(self.world.sent),
            self.world.now_s + ACKNOWLEDGEMENT_TIMEOUT_S,
        )

    # --------------------------------------------------------- what must hold

    def _check_promises(self) -> None:
        """Nothing runs that nobody knows of; what ends gets no instances, and no requests."""
        generations = self.world.core.generations.values()
        assert set(self.world.living("stub")) <= {
            i.serial for g in generations for i in g.instances
        }
        assert self.world.templates <= {one.serial for g in generations for one in g.templates}
        for each in generations:
            if each.state is GenerationState.DRAINING:
                places = {*each.instances}
                assert places <= self._ending.setdefault(each, places)
        if self.world.silent & self.world.alive and self.world.now_s < self._silent_until_s:
            messages = [m for _, m in self.world.sent[self._heard :] if type(m) is wire.Retire]
            retired = {m.generation for m in messages if not m.serial}
            assert not retired & {
                generation.number
                for generation in self._routed
                if not all(each.is_given_up for each in generation.instances)
            }

    def lose_process_of_load(self) -> None:
        """Change the code, and let the first process that loads it be killed."""
        self.world.stub_behaviours["m"] = HANGS
        self._change_code()
        self.world.advance(60.0)
        self.settle()

    def settle(self) -> None:
        """Let everything end well that is under way; those that hang are killed."""
        self.world.stub_behaviours["m"] = LOADS
        for happens, goes_on in (
            (self._hide_model, not self.world.models),
            (self._change_requests, self.world.is_busy),
            (self._change_frontend, self.world.silent),
        ):
            if goes_on:
                happens()
        for serial in self._loading():
            self.world.kill_process(serial)
        self.world.advance(600.0)


@pytest.mark.addons
@pytest.mark.parametrize(
    "seed",
    [
        *range(10),
        5153,  # the others are given up while an instance that is removed has requests
        221,  # a load fails while an unload waits for a frontend, and another unload follows
        *(
            pytest.param(
                seed,
                marks=pytest.mark.long(
                    "supervisor/test_steered_days.py::test_a_day_of_steering_ends_as_was_asked_last"
                ),
            )
            for seed in range(10, 40)
        ),
    ],
)
def test_a_day_of_steering_ends_as_was_asked_last(tmp_path: Path, seed: int) -> None:
    live(tmp_path, seed)


def live(path: Path, seed: int) -> None:
    """Live through a day, and check its end."""
    day = SteeredDay(path, seed)
    day.run()

    day.settle()

    assert not [verb for verb, call in day.calls if call.answer is None]
    day.lose_process_of_load()
    day.world.call("load", {"model": "m", "parameters": {}})
    day.settle()
    last = day.world.call("scale", {"model": "m", "count": 3})
    day.settle()
    assert set(last.result["versions"]) == {
        str(n) for n, v in day.world.core.models["m"].versions.items() if v.is_serving
    }
    for counts in last.result["versions"].values():
        assert {"instances": 3, "ready": 3} == counts
    serving = [v for v in day.world.core.models["m"].versions.values() if v.is_serving]
    assert 3 * len(serving) == len(day.world.living("stub"))
    assert len(serving) == len(day.world.core.generations)
    files = day.files.read().versions
    for number in {version.number for version in serving} & files.keys():  # others were kept
        assert day.world.generation("m", number).blueprint.versions[number] == files[number]
    day.world.stop().advance(60.0)
    assert (0, set()) == (day.world.status, day.world.alive)
