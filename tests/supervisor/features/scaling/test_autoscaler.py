"""Models whose instances follow their load, in a world without processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.supervisor.model_directory import ModelDirectory, load
from tests.supervisor.world import HANGS, SupervisorHarness
from zmqtriton.supervisor.features.scaling import autoscaler
from zmqtriton.supervisor.models.memory_measurements import MemoryReport
from zmqtriton_floor.errors import InvalidArgument

pytestmark = pytest.mark.row("L06")


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
        #: How many requests each version has answered that the broker knows.
        self.answered = {"1": 0}
        #: The version that gets the requests.
        self.busy = "1"
        #: The memory of each instance, and what there is for all of them.
        self.mib_each, self.mib = 10, 1 << 20

    def run(self, seconds: float, *, per_second: float = 0.0, waiting: int = 0) -> LoadedWorld:
        """Have requests of 20 ms answered for so long, while so many others wait."""
        for _ in range(int(seconds / 0.25)):
            self.answered[self.busy] += int(per_second / 4)
            self.world.model_stats = [
                self._entry(version, waiting if version == self.busy else 0)
                for version in self.answered
            ]
            used_mib = self.instances * self.mib_each
            self.world.memory_by_model = {"m": used_mib << 20}
            self.world.available_bytes = (self.mib - used_mib) << 20
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


def test_instances_follow_the_load_and_the_log_says_why(served: LoadedWorld) -> None:
    served.run(5, per_second=48, waiting=40)

    assert 6 == served.instances
    assert served.world.has_logged("autoscaling 'm' to")
    assert served.world.has_logged("requests wait about")
    autoscale = served.scale().result["autoscale"]
    assert (1, 6, "") == (autoscale["least"], autoscale["most"], autoscale["obstacle"])

    served.run(15, per_second=4)
    assert 1 == served.instances
    assert "were enough for 10 s" in served.scale().result["autoscale"]["last_change"]


def test_it_begins_within_its_bounds(tmp_path: Path) -> None:
    served = LoadedWorld(tmp_path, autoscaled(min_instances=2))
    assert 1 == served.instances

    served.run(1)

    assert 2 == served.instances


def test_a_model_without_bounds_keeps_what_it_has(tmp_path: Path) -> None:
    served = LoadedWorld(tmp_path, "")

    served.run(5, per_second=48, waiting=40)

    assert 1 == served.instances
    assert "autoscale" not in served.scale().result


def test_memory_bounds_it(served: LoadedWorld) -> None:
    served.mib_each, served.mib = 1024, 4 * 1024

    served.run(2, per_second=48, waiting=40)

    assert 3 == served.instances
    autoscale = served.scale().result["autoscale"]
    assert "each takes 1024 MiB, and too little memory is left" == autoscale["obstacle"]
    served.mib = 30 * 1024
    served.run(35, per_second=48, waiting=40)
    assert 6 == served.instances


def test_so_does_the_budget_of_all_models(tmp_path: Path) -> None:
    served = LoadedWorld(tmp_path, autoscaled(), memory_budget_bytes=2500 << 20)
    served.mib_each = 1024

    served.run(2, per_second=48, waiting=40)

    assert 2 == served.instances


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
    assert "model 'm' is scaled by its load, to 1 - 6 instances; 7 is not among them" == text


def test_a_broker_that_does_not_answer_changes_nothing(served: LoadedWorld) -> None:
    served.world.silent.add(served.world.serial("broker"))

    served.run(5, per_second=48, waiting=40)

    assert 1 == served.instances


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


def test_counts_of_a_version_that_does_not_serve_change_nothing(served: LoadedWorld) -> None:
    served.run(2, per_second=48, waiting=40)
    assert 6 == served.instances

    served.answered, served.busy = {"7": 0}, "7"
    served.run(20)

    assert 6 == served.instances


def test_the_busiest_version_decides(tmp_path: Path) -> None:
    served = LoadedWorld(tmp_path, "version_policy { all {} } " + autoscaled())
    served.directory.add(2)
    load(served.world)

    served.answered["2"] = 0
    served.run(5, per_second=48, waiting=40)
    assert 6 == served.instances
    served.run(15, per_second=4)
    assert 1 == served.instances
    served.busy = "2"
    served.run(5, per_second=48, waiting=40)

    assert 6 == served.instances
    assert "requests wait about" in served.scale().result["autoscale"]["last_change"]


def test_a_model_that_is_loaded_is_not_scaled_meanwhile(served: LoadedWorld) -> None:
    served.run(1)
    served.world.stub_behaviours["m"] = HANGS
    served.directory.add(1, "changed")
    loading = served.world.call("load", {"model": "m", "parameters": {}})

    served.run(5, per_second=48, waiting=40)

    assert loading.answer is None
    assert not served.world.has_logged("autoscaling")


class Measurements:
    """Measurements of memory that are over when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[Callable[[MemoryReport], None]] = []
        monkeypatch.setattr(autoscaler, "measure_memory", self._measure)

    def _measure(self, plan: Any, processes: Any, then: Callable[[MemoryReport], None]) -> None:
        self.begun.append(then)


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch) -> Measurements:
    return Measurements(monkeypatch)


def test_memory_is_measured_once_for_each_change(
    served: LoadedWorld, measurements: Measurements
) -> None:
    served.run(5, per_second=4)
    assert [] == measurements.begun, "it has what it needs"

    served.run(5, per_second=48, waiting=40)

    [measured] = measurements.begun
    assert 1 == served.instances
    measured(MemoryReport({"m": 1 << 20}, 1 << 40))
    served.world.run_until_idle()
    assert 1 < served.instances


def test_after_its_pause_more_instances_are_tried_at_once(
    served: LoadedWorld, measurements: Measurements
) -> None:
    served.run(2, per_second=48, waiting=40)
    measurements.begun.pop()(MemoryReport({"m": 1 << 30}, 0))

    served.run(autoscaler.RETRY_PAUSE_S - autoscaler.INTERVAL_S, per_second=48, waiting=40)
    assert [] == measurements.begun
    served.run(autoscaler.INTERVAL_S, per_second=48, waiting=40)

    assert 1 == len(measurements.begun)
