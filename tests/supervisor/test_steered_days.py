"""Seeded days of a server that is steered while processes die.

Every call is answered, nothing is lost, and what is left is what was asked for last.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.supervisor.model_directory import PLAIN, ModelDirectory
from tests.supervisor.world import HANGS, LOADS, Call, SupervisorHarness
from zmqtriton.supervisor.states import InstanceState

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
        self._files = ModelDirectory(path, CONFIGS[0])
        self._files.add(2)
        self.world: SupervisorHarness = self._files.serve()
        self.world.explore(seed)
        self.calls: list[tuple[str, Call]] = []
        self._edits = 0
        self._events: dict[Callable[[], None], int] = {
            self._scale: 6,
            self._change_code: 6,
            self._change_configuration: 1,
            self._load: 2,
            self._unload: 1,
            self._start_canary: 3,
            self._end_canary: 3,
            self._kill_stub: 4,
            self._kill_broker: 1,
            self._change_behaviour: 4,
            self._let_time_pass: 6,
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
        self._files.add(self._chance.choice([1, 2]), str(self._edits))
        self._load()

    def _change_configuration(self) -> None:
        self._files.configure(self._chance.choice(CONFIGS))
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

    def _kill_broker(self) -> None:
        for broker in self.world.living("broker"):
            self.world.kill_process(broker)

    def _change_behaviour(self) -> None:
        self.world.stub_behaviours["m"] = self._chance.choice([LOADS, LOADS, HANGS, "no weights"])

    def _let_time_pass(self) -> None:
        self.world.advance(self._chance.choice([0.1, 2.0, 30.0]))

    # --------------------------------------------------------- what must hold

    def _check_promises(self) -> None:
        """Nothing runs that nobody knows of."""
        generations = self.world.core.generations.values()
        assert set(self.world.living("stub")) <= {
            i.serial for g in generations for i in g.instances
        }
        assert self.world.templates <= {one.serial for g in generations for one in g.templates}

    def settle(self) -> None:
        """Let everything end well that is under way."""
        self.world.stub_behaviours["m"] = LOADS
        for serial in self.world.living("stub"):
            instance = self.world.core.events.find_stub(serial)[1]
            if instance is not None and instance.state is InstanceState.LOADING:
                self.world.kill_process(serial)  # it hangs for ever
        self.world.advance(600.0)


@pytest.mark.addons
@pytest.mark.parametrize(
    "seed",
    [
        *range(10),
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
