"""Which environments get a spare process, with which modules, and which instances it forks."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.supervisor.world import HANGS, SupervisorHarness, make_blueprint
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable
from zmqtriton_standard.warm_starts import feature
from zmqtriton_standard.warm_starts.feature import ENOUGH_BYTES, QUIET_S, REST_S, SHORT_BYTES
from zmqtriton_standard.warm_starts.mode import AUTO, OFF, ON

PACKAGES = "torch torch.nn numbers_"


class World(SupervisorHarness):
    """A server with the models "m" and "n", whose loads take their time and report modules."""

    def __init__(self, mode: str = ON, **blueprint: Any) -> None:
        super().__init__(
            *(replace(make_blueprint(name), **blueprint) for name in "mn"),
            control_mode="explicit",
            warm_starts=mode,
            stubs={"m": HANGS, "n": HANGS},
        )
        self.available = ENOUGH_BYTES
        self.answer_in_background = self._answer
        self.start()

    def _answer(self, call: Any) -> Any:
        is_look = getattr(call, "func", None) is feature.measure
        return (self.available, {}) if is_look else call()

    def load(self, model: str = "m", modules: str = PACKAGES, *, took_s: float = 1.0) -> None:
        call = self.call("load", {"model": model})
        serial = self.serial(f"{model}_0_0")
        self.advance(took_s)
        self.receive(serial, wire.ConfigCompleted("{}"))
        self.receive(serial, wire.ModelLoaded(0, modules))
        assert call.answer is not None

    def restart(self) -> None:
        """An instance dies, and the next one begins to load."""
        self.kill_process(self.serial("m_0_0"))
        self.advance(1.0)

    def spares(self) -> list[int]:
        return sorted(serial for serial in self.alive if self.roles[serial] == "spare")

    def modules_of(self, spare: int) -> list[str]:
        [call] = [m for s, m in self.sent if s == spare and isinstance(m, wire.Call)]
        names: list[str] = json.loads(call.arguments)["modules"]
        return names

    def ready(self, seconds: float = 1.5, **packages: float) -> int:
        """The last spare process has imported its packages; return its serial."""
        serial = self.spares()[-1]
        result = {"seconds": seconds, "packages": packages or {"torch": 1.4, "numbers_": 0.1}}
        self.receive(serial, wire.CallResult(0, 0, "", json.dumps(result)))
        return serial

    def refuse(self, reason: str, package: str = "") -> None:
        serial = self.spares()[-1]
        self.receive(serial, wire.CallResult(0, Unavailable.number, reason, package))
        self.kill_process(serial)

    def starts(self) -> dict[str, str]:
        return {row["instance"]: row["text"] for row in self.call("status").result["starts"]}


def test_a_while_after_a_load_a_spare_process_imports_what_it_has_imported() -> None:
    world = World()

    world.load()
    assert [] == world.spares()
    world.advance(QUIET_S)

    [spare] = world.spares()
    assert PACKAGES.split() == world.modules_of(spare)
    rows = world.call("status").result["processes"]
    assert "imports packages" in [row.get("state") for row in rows if row["role"] == "spare"]


def test_the_next_start_is_a_fork_of_it_and_says_so() -> None:
    world = World()
    world.load()
    world.advance(QUIET_S)
    spare = world.ready()

    world.restart()

    assert "from the spare process" in world.starts()["m_0_0"]
    assert "with torch, numbers_ imported" in world.starts()["m_0_0"]
    [row] = world.call("status").result["spares"]
    assert (True, ["m"]) == (row["is_ready"], row["models"])
    assert spare == world.spawned_with[-1]


def test_without_a_spare_process_the_start_says_why() -> None:
    world = World()
    world.load()
    world.advance(QUIET_S)

    world.restart()

    assert "without a spare process: none was ready" == world.starts()["m_0_0"]
    assert 0 == world.spawned_with[-1]


def test_an_instance_that_sets_a_variable_before_its_imports_is_not_forked_from_it() -> None:
    own_gpu = {"parameters": {"CUDA_VISIBLE_DEVICES": {"string_value": "instance"}}}
    world = World(config=json.dumps({"name": "m", **own_gpu}))
    world.load()
    world.advance(QUIET_S)
    world.ready()

    world.restart()

    assert "its CUDA_VISIBLE_DEVICES is set before its imports" in world.starts()["m_0_0"]
    assert 0 == world.spawned_with[-1]


def test_further_modules_lead_to_another_spare_process() -> None:
    world = World()
    world.load()
    world.advance(QUIET_S)
    first = world.ready()

    world.load("n", "pandas torch")
    world.advance(QUIET_S)

    [second] = world.spares()
    assert [*PACKAGES.split(), "pandas"] == world.modules_of(second)
    assert first != second


def test_modules_that_it_has_already_change_nothing() -> None:
    world = World()
    world.load()
    world.advance(QUIET_S)
    spare = world.ready()

    world.load("n", "torch.nn torch")
    world.advance(QUIET_S)

    assert [spare] == world.spares()


def test_a_package_that_makes_it_unfit_is_left_out_of_the_next() -> None:
    world = World()
    world.load()
    world.advance(QUIET_S)

    world.refuse("its import starts threads: 'x'", "numbers_")
    world.advance(QUIET_S)

    assert ["torch", "torch.nn"] == world.modules_of(world.spares()[-1])
    world.ready()
    [row] = world.call("status").result["spares"]
    assert {"numbers_": "its import starts threads: 'x'"} == row["left_out"]


def test_a_spare_process_that_cannot_be_made_is_not_tried_for_ever() -> None:
    world = World()
    world.load()
    world.advance(QUIET_S)

    world.kill_process(world.spares()[-1], words="Bus error")
    world.advance(100 * QUIET_S)
    assert [] == world.spares()

    world.restart()
    assert "it has ended: killed by SIGKILL: Bus error" in world.starts()["m_0_0"]


def test_one_that_has_died_is_made_again_after_a_rest() -> None:
    world = World()
    world.load()
    world.advance(QUIET_S)
    world.kill_process(world.ready())

    world.advance(QUIET_S)
    assert [] == world.spares()
    world.advance(REST_S)

    assert 1 == len(world.spares())


def test_one_whose_files_have_changed_is_made_anew_at_once() -> None:
    world = World()
    world.load()
    world.advance(QUIET_S)
    world.ready()
    world.restart()

    world.refuse("the files of its packages have changed")
    assert "the files of its packages have changed" in world.starts()["m_0_0"]
    world.finish_load(world.serial("m_0_0"))
    world.advance(2 * QUIET_S)

    assert 1 == len(world.spares())


@pytest.mark.parametrize("mode", [AUTO, ON])
def test_it_ends_when_memory_is_short_and_comes_again(mode: str) -> None:
    world = World(mode)
    world.load()
    world.advance(QUIET_S)
    world.ready()

    world.available = SHORT_BYTES - 1
    world.advance(2 * QUIET_S)
    assert [] == world.spares()
    world.restart()
    assert "of memory are available" in world.starts()["m_0_0"]
    world.finish_load(world.serial("m_0_0"))

    world.available = ENOUGH_BYTES
    world.advance(2 * QUIET_S)
    assert 1 == len(world.spares())


@pytest.mark.parametrize(("mode", "count"), [(AUTO, 0), (ON, 1), (OFF, 0)])
def test_with_less_memory_only_the_mode_on_begins_one(mode: str, count: int) -> None:
    world = World(mode)
    world.available = ENOUGH_BYTES - 1
    world.load()

    world.advance(2 * QUIET_S)

    assert count == len(world.spares())


@pytest.mark.parametrize(("mode", "count"), [(AUTO, 0), (ON, 1)])
def test_imports_that_take_little_time_are_not_worth_one(mode: str, count: int) -> None:
    world = World(mode)
    world.load()
    world.advance(QUIET_S)

    world.ready(seconds=0.1)
    world.advance(10 * QUIET_S)

    assert count == len(world.spares())


@pytest.mark.parametrize(("modules", "took_s"), [("", 5.0), (PACKAGES, 0.0)])
def test_a_load_that_is_fast_or_imports_no_package_asks_for_none(
    modules: str, took_s: float
) -> None:
    world = World(AUTO)

    world.load(modules=modules, took_s=took_s)
    world.advance(2 * QUIET_S)

    assert [] == world.spares()


def test_none_is_begun_while_a_model_loads() -> None:
    world = World()
    world.load()
    world.call("load", {"model": "n"})

    world.advance(2 * QUIET_S)
    assert [] == world.spares()

    world.finish_load(world.serial("n_0_0"))
    world.advance(QUIET_S)
    assert 1 == len(world.spares())


def test_an_environment_that_no_model_uses_keeps_its_own_for_a_while() -> None:
    world = World()
    world.load()
    world.advance(QUIET_S)
    world.ready()

    world.call("unload", {"model": "m"})
    world.advance(2 * QUIET_S)
    assert 1 == len(world.spares())

    world.advance(feature.UNUSED_S + 2 * QUIET_S)
    assert [] == world.spares()


def test_imports_that_do_not_end_are_given_up() -> None:
    world = World()
    world.load()
    world.advance(QUIET_S)

    world.advance(feature.IMPORT_WITHIN_S)

    assert [] == world.spares()


def test_a_server_that_stops_ends_it_first() -> None:
    world = World()
    world.load()
    world.advance(QUIET_S)
    world.ready()

    world.core.stop_requested()
    world.run_until_idle()

    assert [] == world.spares()
