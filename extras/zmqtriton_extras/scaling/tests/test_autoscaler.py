"""Models whose instances follow their load, in a world without processes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.standard.memory.world_memory import WorldMemory
from tests.supervisor.model_directory import ModelDirectory, load
from tests.supervisor.world import SupervisorHarness
from zmqtriton.supervisor.story import Promise
from zmqtriton_extras.scaling import autoscaler
from zmqtriton_extras.scaling.autoscaler import InstanceTarget, Reading, Workload
from zmqtriton_extras.scaling.limits import AutoscaleLimits
from zmqtriton_extras.scaling.tests.service_station import ServiceStation
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_standard.memory.measurements import HOST, MemoryReport, ModelProcesses, Sizes

pytestmark = pytest.mark.row("L06")

_THREADS = 'parameters { key: "INSTANCES" value { string_value: "threads" } }'


def autoscaled(**values: object) -> str:
    """Return a configuration with these parameters, without their common beginning."""
    settings = {"max_instances": 6, "down_after_seconds": 10, **values}
    parameters = (
        f'parameters {{ key: "autoscale_{name}" value {{ string_value: "{value}" }} }}'
        for name, value in settings.items()
    )
    return " ".join(["instance_group { count: 1 }", *parameters])


class LoadedWorld:
    """A server with the model `m`, whose instances are as busy as a test says."""

    def __init__(self, path: Path, config: str, **policy: object) -> None:
        self.directory = ModelDirectory(path, config)
        self.world: SupervisorHarness = self.directory.serve(**policy)
        self.memory = WorldMemory(self.world)
        #: How many requests each version has answered that the broker knows.
        self.answered = {"1": 0}
        #: The version that gets the requests.
        self.busy = "1"
        #: The memory of each instance, and what there is for all of them.
        self.mib_each, self.mib = 10, 1 << 20
        #: The memory that all instances share.
        self.mib_shared = 0
        #: The memory of each on GPU 1.
        self.gpu_mib_each = 0

    def run(self, seconds: float, *, per_second: float = 0.0, waiting: int = 0) -> LoadedWorld:
        """Have requests of 20 ms answered for so long, while so many others wait."""
        for _ in range(int(seconds / 0.25)):
            self.answered[self.busy] += int(per_second / 4)
            self.world.model_stats = [
                self._entry(version, waiting if version == self.busy else 0)
                for version in self.answered
            ]
            used_mib = self.mib_shared + self.instances * self.mib_each
            self.memory.by_model = {"m": used_mib << 20}
            self.memory.on_gpus = {"m": {1: self.instances * self.gpu_mib_each << 20}}
            self.memory.available_bytes = (self.mib - used_mib) << 20
            self.world.advance(0.25)
        return self

    def _entry(self, version: str, waiting: int) -> dict[str, Any]:
        answered = self.answered[version]
        durations = {"success": {"count": answered}, "fail": {"count": 0}}
        own = {"pending": waiting, "unanswered": waiting, "sequences": 0, "last_arrival_ns": 0}
        own |= {"direct_responses": 0, "brokered_responses": 0, "busy_ns": 20_000_000 * answered}
        counts = {"inference_stats": durations, "execution_count": answered}
        return {"name": "m", "version": version, **counts, "zmqtriton": own}

    @property
    def instances(self) -> int:
        generation = self.world.core.models["m"].versions[1].generation
        present = [] if generation is None else generation.instances
        return sum(not one.is_being_removed for one in present)

    def scale(self, **arguments: object) -> Any:
        return self.world.call("scale", {"model": "m", **arguments})


@pytest.fixture
def served(tmp_path: Path) -> LoadedWorld:
    return LoadedWorld(tmp_path, autoscaled())


def test_so_does_the_budget_of_all_models(tmp_path: Path) -> None:
    served = LoadedWorld(tmp_path, autoscaled(), model_memory_budget=2500 << 20)
    served.mib_each = 1024

    served.run(2, per_second=48, waiting=40)

    assert 2 == served.instances


def test_an_instance_that_is_a_fork_takes_what_is_its_own(served: LoadedWorld) -> None:
    served.memory.of_forks = {"m": 100 << 20}

    _check_memory_stops_at_five(served)


def test_of_threads_a_second_one_shows_what_each_takes(tmp_path: Path) -> None:
    _check_memory_stops_at_five(LoadedWorld(tmp_path, f"{autoscaled()} {_THREADS}"))


def _check_memory_stops_at_five(served: LoadedWorld) -> None:
    """Check that instances of 100 MiB, which share the rest, end where memory does."""
    served.mib_each, served.mib, served.mib_shared = 100, 1600, 1000

    served.run(2, per_second=48, waiting=40)

    autoscale = served.scale().result["autoscale"]
    assert "each takes 100 MiB, and too little memory is left" == autoscale["obstacle"]
    assert 5 == served.instances


def test_of_threads_with_room_for_all_no_more_begin_than_are_needed(tmp_path: Path) -> None:
    served = LoadedWorld(tmp_path, f"{autoscaled()} {_THREADS}")

    served.run(2, per_second=48, waiting=40)

    assert 6 == served.instances


def test_what_cannot_be_started_is_not_tried_again_at_once(served: LoadedWorld) -> None:
    served.run(1, per_second=48)
    served.world.stub_behaviours["m"] = "no more licences"
    started = len(served.world.stub_names)

    served.run(5, per_second=48, waiting=40)

    tried = len(served.world.stub_names) - started
    assert 1 == served.instances
    assert "no more licences" in served.scale().result["autoscale"]["obstacle"]
    served.run(5, per_second=48, waiting=40)
    assert tried == len(served.world.stub_names) - started
    served.world.stub_behaviours["m"] = "loads"
    served.run(35, per_second=48, waiting=40)
    assert 6 == served.instances


def test_an_operator_may_choose_a_number_within_the_bounds(served: LoadedWorld) -> None:
    served.scale(count=4)
    assert 4 == served.instances

    number, text = served.scale(count=7).error

    assert InvalidArgument.number == number
    assert "model 'm' is scaled by its load, to 1 - 6 instances: choose one of these, not 7" == text


def test_an_unloaded_model_is_forgotten(served: LoadedWorld) -> None:
    served.run(2, per_second=48, waiting=40)
    served.world.call("unload", {"model": "m"})

    served.run(2)

    assert served.world.core.plan.next_deadline_s() is None or not served.world.living("stub")
    load(served.world)
    assert 1 == served.instances
    served.run(2, per_second=48, waiting=40)
    assert 6 == served.instances


def test_other_bounds_hold_from_the_next_load(served: LoadedWorld) -> None:
    served.run(2, per_second=48, waiting=40)

    served.directory.configure(autoscaled(max_instances=2))
    load(served.world)
    served.run(2, per_second=48, waiting=40)

    assert 2 == served.instances


class Measurements:
    """Measurements of memory that are over when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[Promise[MemoryReport]] = []
        monkeypatch.setattr(ModelProcesses, "measure", lambda *_: self._begin())

    def _begin(self) -> Promise[MemoryReport]:
        self.begun.append(Promise())
        return self.begun[-1]


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch) -> Measurements:
    return Measurements(monkeypatch)


def test_after_its_pause_more_instances_are_tried_at_once(
    served: LoadedWorld, measurements: Measurements
) -> None:
    served.run(2, per_second=48, waiting=40)
    measurements.begun.pop()(MemoryReport({"m": Sizes({HOST: 1 << 30})}, 0))
    served.world.run_until_idle()

    served.run(autoscaler.RETRY_PAUSE_S - autoscaler.INTERVAL_S, per_second=48, waiting=40)
    assert [] == measurements.begun
    served.run(autoscaler.INTERVAL_S, per_second=48, waiting=40)

    assert 1 == len(measurements.begun)


# ------------------------------------------------------------------- instance target


LIMITS = AutoscaleLimits(1, 8, queue_s=0.05, down_after_s=30.0)


def station(
    limits: AutoscaleLimits = LIMITS, *, seconds_each: float = 0.02, seed: int = 1
) -> ServiceStation:
    return ServiceStation(InstanceTarget(limits), seconds_each=seconds_each, seed=seed)


@pytest.mark.parametrize(
    "seed",
    [
        *range(5),
        *(
            pytest.param(
                seed,
                marks=pytest.mark.long(
                    "extras/scaling/test_autoscaler.py::test_whatever_comes_the_bounds_hold_and_the_load_is_followed"
                ),
            )
            for seed in range(5, 16)
        ),
    ],
)
def test_whatever_comes_the_bounds_hold_and_the_load_is_followed(seed: int) -> None:
    """A day of loads, executions and bounds by chance."""
    chance = random.Random(seed)
    least = chance.randint(1, 3)
    limits = AutoscaleLimits(
        least, least + chance.randint(0, 10), chance.choice([0.005, 0.05, 1]), 10
    )
    seconds_each = chance.choice([0.02, 0.3])
    served = station(limits, seconds_each=seconds_each, seed=seed)
    for _ in range(8):
        busy = chance.choice([0, 0.1, 0.5, 0.9]) * limits.maximum
        served.run(chance.uniform(1, 30), per_second=busy / seconds_each)
        assert limits.minimum <= served.instances <= limits.maximum
    served.run(60, per_second=0.8 * limits.maximum / seconds_each)
    assert served.instances >= 0.8 * limits.maximum
    served.run(60, per_second=0)
    assert limits.minimum == served.instances


def test_counters_that_begin_anew_are_not_taken_for_a_load() -> None:
    load = Workload()
    load.add(Reading(1.0, 1000, 0, 0, 50.0))
    load.add(Reading(2.0, 1100, 0, 0, 52.0))
    estimates = (load.arrival_rate, load.seconds_per_request)

    load.add(Reading(3.0, 5, 2, 0, 0.1))

    assert estimates == (load.arrival_rate, load.seconds_per_request)
    assert pytest.approx((100, 0.02)) == estimates


def test_the_number_is_one_that_takes_a_queue_away_beside_what_arrives() -> None:
    target = InstanceTarget(AutoscaleLimits(1, 100, queue_s=0.05))
    for at_s in (1.0, 2.0):
        reading = Reading(at_s, int(100 * at_s), unanswered=400, waiting=400, busy_s=2 * at_s)
        count = target.decide(reading, 1)

    # 100 a second arrive, each for 20 ms; those that wait are 8 s of work, to be done in 0.5
    assert 2 + 16 <= count <= 24


def test_two_readings_of_one_moment_are_one() -> None:
    load = Workload()
    load.add(Reading(1.0, 1000, 0, 0, 50.0))
    load.add(Reading(1.0, 1100, 3, 2, 52.0))

    assert (0, 2) == (load.arrival_rate, load.waiting)


def test_an_execution_that_takes_many_looks_is_counted_whole() -> None:
    """The broker counts an execution as it goes on, and its request when it ends."""
    load = Workload()
    for look in range(1, 81):
        at_s = look * 0.25
        load.add(Reading(at_s, answered=int(at_s // 5), unanswered=1, waiting=0, busy_s=at_s))

    assert pytest.approx(5, rel=0.1) == load.seconds_per_request
    assert pytest.approx(1) == load.busy_instances
