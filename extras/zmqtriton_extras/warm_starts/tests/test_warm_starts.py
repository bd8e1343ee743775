"""Which environments get a spare process, with which modules, and which instances it forks."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.supervisor.world import HANGS, SupervisorHarness, make_blueprint
from zmqtriton.supervisor import actions
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton_extras.warm_starts import feature
from zmqtriton_extras.warm_starts.feature import ENOUGH_BYTES, QUIET_S, REST_S, SHORT_BYTES
from zmqtriton_extras.warm_starts.mode import AUTO, OFF, ON
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable

pytestmark = pytest.mark.smoke

PACKAGES = "torch torch.nn numbers_"


class World(SupervisorHarness):
    """A server with the models "m" and "n", whose loads take their time and report modules."""

    def __init__(self, mode: str = ON, **blueprint: Any) -> None:
        super().__init__(
            *(replace(make_blueprint(name), **blueprint) for name in "mn"),
            control_mode="explicit",
            warm_starts=mode,
            host_policies=frozenset({"near"}),
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
        return list(json.loads(call.arguments)["modules"])

    def ready(self, seconds: float = 1.5) -> int:
        """The last spare process has imported its packages; return its serial."""
        serial = self.spares()[-1]
        result = {"seconds": seconds, "packages": {"numbers_": 0.1, "torch": 1.4}}
        self.receive(serial, wire.CallResult(0, 0, "", json.dumps(result)))
        return serial

    def refuse(self, reason: str, package: str = "") -> None:
        serial = self.spares()[-1]
        self.receive(serial, wire.CallResult(0, Unavailable.number, reason, package))
        self.kill_process(serial)

    def starts(self) -> dict[str, str]:
        return {row["instance"]: row["text"] for row in self.call("status").result["starts"]}


def importing(mode: str = ON, **blueprint: Any) -> World:
    """Return a server whose spare process imports what the load of "m" has imported."""
    world = World(mode, **blueprint)
    world.load()
    world.advance(QUIET_S)
    return world


def warm(mode: str = ON, **blueprint: Any) -> World:
    """Return a server with a spare process."""
    world = importing(mode, **blueprint)
    world.ready()
    return world


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
    world = importing()
    spare = world.ready()

    world.restart()

    assert "from the spare process" in world.starts()["m_0_0"]
    assert "with torch, numbers_ imported" in world.starts()["m_0_0"]
    [row] = world.call("status").result["spares"]
    assert (True, ["m"]) == (row["is_ready"], row["models"])
    assert spare == world.spawned_with[-1]


@pytest.mark.parametrize(
    ("parameter", "policy", "text"),
    [
        ("all", "far", "from the spare process"),
        ("instance", "far", "without the spare process: its CUDA_VISIBLE_DEVICES is set"),
        ("all", "near", "without the spare process: the host policy near may pin it to cores"),
    ],
)
def test_an_instance_is_not_forked_if_it_would_import_in_other_surroundings(
    parameter: str, policy: str, text: str
) -> None:
    own_gpu = {"parameters": {"CUDA_VISIBLE_DEVICES": {"string_value": parameter}}}
    world = warm(config=json.dumps({"name": "m", **own_gpu}))
    [instance] = next(iter(world.core.generations.values())).instances
    instance.slot = instance.slot._replace(host_policy=policy)

    world.restart()

    assert world.starts()["m_0_0"].startswith(text)
    assert text.startswith("from") == bool(world.spawned_with[-1])


@pytest.mark.parametrize(
    "assignment", [actions.Assignment((1,)), actions.Assignment(variables={"OMP_NUM_THREADS": "1"})]
)
def test_an_instance_with_cores_or_variables_is_not_forked_and_says_so(
    monkeypatch: pytest.MonkeyPatch, assignment: actions.Assignment
) -> None:
    world = warm()
    monkeypatch.setattr(Generation, "place", lambda *_: assignment)

    world.restart()

    text = "without the spare process: its cores or variables are set before its imports"
    assert (0, text) == (world.spawned_with[-1], world.starts()["m_0_0"])


def test_the_template_of_forks_with_variables_is_not_forked_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = warm(instances="forks")
    variables = actions.Assignment((1,), {"OMP_NUM_THREADS": "1"})
    monkeypatch.setattr(Generation, "place", lambda *_: variables)

    world.load("n")

    assert world.starts()["template"].startswith("without the spare process: its cores or")


def test_a_template_that_has_kept_objects_is_no_fork_of_the_spare_process() -> None:
    world = warm(instances="forks")
    world.load("n")
    _, generation = world.core.generations.values()
    assert world.starts()["template"].startswith("from the spare process")

    generation.record_kept(wire.Kept(1, "weights"))
    assert "as a copy of its earlier template" == world.starts()["template"]

    generation.record_kept(wire.Kept(0, "weights changed"))
    assert world.starts()["template"].startswith("from the spare process")


@pytest.mark.parametrize(
    ("modules", "imported"),
    [("pandas torch", [*PACKAGES.split(), "pandas"]), ("torch.nn torch", PACKAGES.split())],
)
def test_only_further_modules_lead_to_another_spare_process(
    modules: str, imported: list[str]
) -> None:
    world = importing()
    first = world.ready()

    world.load("n", modules)
    world.advance(QUIET_S)

    [second] = world.spares()
    assert imported == world.modules_of(second)
    assert (first == second) is ("pandas" not in modules)


def test_a_package_that_makes_it_unfit_is_left_out_of_the_next() -> None:
    world = importing()

    world.refuse("its import starts threads: 'x'", "numbers_")
    world.advance(QUIET_S)

    assert ["torch", "torch.nn"] == world.modules_of(world.spares()[-1])
    world.ready()
    [row] = world.call("status").result["spares"]
    assert {"numbers_": "its import starts threads: 'x'"} == row["left_out"]


@pytest.mark.parametrize(
    ("report", "problem"),
    [
        ("", "it has ended: killed by SIGKILL: Bus error"),
        ("sitecustomize.py has to run in each process",) * 2,
    ],
)
def test_a_spare_process_that_cannot_be_made_is_not_tried_for_ever(
    report: str, problem: str
) -> None:
    world = importing()

    [spare] = world.spares()
    if report:
        world.receive(spare, wire.CallResult(0, Unavailable.number, report, ""))
    world.kill_process(spare, words="Bus error")
    world.advance(100 * QUIET_S)
    world.restart()

    assert [] == world.spares()
    assert f"without a spare process: {problem}" == world.starts()["m_0_0"]


def test_one_that_has_died_is_made_again_after_a_rest() -> None:
    world = importing()
    world.kill_process(world.ready())

    world.advance(QUIET_S)
    assert [] == world.spares()
    world.advance(REST_S)

    assert 1 == len(world.spares())


def test_one_whose_files_have_changed_is_made_anew_at_once() -> None:
    world = warm()
    world.restart()

    world.refuse("the files of its packages have changed")
    assert "the files of its packages have changed" in world.starts()["m_0_0"]
    world.finish_load(world.serial("m_0_0"))
    world.advance(2 * QUIET_S)

    assert 1 == len(world.spares())


@pytest.mark.parametrize("mode", [AUTO, ON])
def test_it_ends_when_memory_is_short_and_comes_again(mode: str) -> None:
    world = warm(mode)

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
@pytest.mark.parametrize("lacks", ["memory", "time"])
def test_only_the_mode_on_has_one_with_less_memory_and_for_quick_imports(
    mode: str, count: int, lacks: str
) -> None:
    world = World(mode)
    world.available -= lacks == "memory"
    world.load()
    world.advance(QUIET_S)

    if world.spares():
        world.ready(seconds=0.1 if lacks == "time" else 1.0)
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
    world = warm()

    world.call("unload", {"model": "m"})
    world.advance(2 * QUIET_S)
    assert 1 == len(world.spares())

    world.advance(feature.UNUSED_S + 2 * QUIET_S)
    assert [] == world.spares()


def test_imports_that_do_not_end_are_given_up() -> None:
    world = importing()

    world.advance(feature.IMPORT_WITHIN_S)

    assert [] == world.spares()


def test_a_server_that_stops_ends_it_first() -> None:
    world = warm()

    world.core.stop_requested()
    world.run_until_idle()

    assert [] == world.spares()
