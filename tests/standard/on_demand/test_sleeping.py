"""Under a memory budget models sleep, if they can, before any goes; GPUs have budgets, too."""

from __future__ import annotations

import pytest

from tests.standard.memory.world_memory import WorldMemory
from tests.standard.on_demand.test_on_demand import (
    MIB,
    demanding,
    history,
    stat,
    states,
    use,
    want,
)
from tests.supervisor.world import SupervisorHarness
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError, Unavailable
from zmqtriton_standard.on_demand.evictions import GRACE_S
from zmqtriton_standard.on_demand.loader import IDLE_WITHIN_S, MAX_CHECK_INTERVAL_S, SLEEP_WITHIN_S

#: A model that has no `sleep`.
UNABLE = wire.CallResult(
    0, InternalError.number, "its TritonPythonModel needs a method sleep()", ""
)
BUSY = wire.CallResult(0, Unavailable.number, "it has requests", "")
ASLEEP = wire.CallResult(0, 0, "", "")


class World:
    """A server in which models have 40 MiB each, and 1 MiB when they sleep."""

    def __init__(self, *names: str, budget: int = 100, on_gpu: int | None = None) -> None:
        policy: dict[str, object] = {"model_memory_budget": budget * MIB}
        if on_gpu is not None:
            policy = {"gpu_memory_budget": ((on_gpu, budget * MIB),)}
        self.server: SupervisorHarness = demanding(*names, **policy)
        self.memory = WorldMemory(self.server)
        self._gpu = on_gpu
        self._seen = 0
        for name in names:
            self.resize(name, 40)

    def resize(self, name: str, mib: int) -> None:
        self.memory.by_model[name] = mib * MIB
        if self._gpu is not None:
            self.memory.on_gpus[name] = {self._gpu: mib * MIB}

    def load(self, *names: str) -> None:
        """Load these, each with a request afterwards."""
        for name in names:
            assert want(self.server, name).result is True
            use(self.server, name)
        self.server.advance(GRACE_S)

    def questions(self) -> dict[str, tuple[int, int]]:
        """Return the models that were asked to sleep since the last call."""
        stubs = self.server.stub_names
        calls = [(s, m) for s, m in self.server.sent if isinstance(m, wire.Call) and s in stubs]
        new, self._seen = calls[self._seen :], len(calls)
        assert {"sleep"} >= {call.verb for _, call in new}
        return {stubs[serial].partition("_0_")[0]: (serial, call.id) for serial, call in new}

    def answer(self, name: str, place: tuple[int, int], result: wire.CallResult) -> None:
        serial, number = place
        if result is ASLEEP:
            self.resize(name, 1)
        self.server.receive(serial, result._replace(id=number))


@pytest.mark.row("L07")
@pytest.mark.parametrize("gpu", [None, 0, 1])
def test_a_model_that_can_sleep_makes_room_and_keeps_its_process(gpu: int | None) -> None:
    world = World("a", "b", "c", on_gpu=gpu)
    world.load("a", "b")
    server = world.server

    load = want(server, "c")
    questions = world.questions()

    assert ["a"] == list(questions)
    assert load.answer is None
    world.answer("a", questions["a"], ASLEEP)
    assert load.result is True
    assert {"a": "READY", "b": "READY", "c": "READY"} == states(server)
    assert (1, 0) == (history(server, "a")["sleeps"], history(server, "a")["memory"])
    assert "put to sleep to make room for 'c'" == history(server, "a")["event"]
    assert server.has_logged("put 'a' to sleep: to make room for 'c'")


def test_of_those_that_are_to_make_room_the_ones_that_can_sleep_do_so_first() -> None:
    world = World("a", "b")
    world.load("a", "b")
    world.resize("b", 120)

    world.server.advance(MAX_CHECK_INTERVAL_S)
    questions = world.questions()
    assert ["a", "b"] == list(questions)
    world.answer("a", questions["a"], UNABLE)
    world.answer("b", questions["b"], ASLEEP)

    world.server.advance(60)
    assert {} == world.questions()
    assert {"a": "READY", "b": "READY"} == states(world.server)


def test_a_model_in_use_does_not_sleep_for_one_that_nobody_uses() -> None:
    world = World("a", "b", budget=70)
    world.load("a")
    load = want(world.server, "b")
    world.answer("a", world.questions()["a"], ASLEEP)
    assert load.result is True
    use(world.server, "b")
    world.server.advance(GRACE_S)

    world.resize("a", 40)
    use(world.server, "a")
    world.server.advance(MAX_CHECK_INTERVAL_S)
    world.answer("b", world.questions()["b"], UNABLE)

    assert {"a": "READY", "b": "UNAVAILABLE"} == states(world.server)
    assert {} == world.questions()


def test_a_model_that_does_not_answer_is_unloaded_after_a_while() -> None:
    world = World("a", "b", "c")
    world.load("a", "b")
    load = want(world.server, "c")
    late = world.questions()["a"]

    world.server.advance(SLEEP_WITHIN_S)

    assert load.result is True
    assert "UNAVAILABLE" == states(world.server)["a"]
    world.answer("a", late, ASLEEP)
    assert 0 == history(world.server, "a")["sleeps"]


# -------------------------------------------------------------------------- GPUs


def test_a_load_that_the_gpu_has_no_room_for_is_refused_and_says_why() -> None:
    world = World("a", "b", on_gpu=1, budget=30)
    world.server.call("load", {"model": "a"})
    world.server.model_stats = [stat("a")]

    call = want(world.server, "b")
    world.server.advance(IDLE_WITHIN_S)

    code, text = call.error
    assert Unavailable.number == code
    assert (
        "model 'b' is not loaded: models take 40.0 MiB on GPU 1 of the 30.0 MiB that "
        "--gpu-memory-budget allows, and nothing that could be unloaded is idle"
    ) == text


def test_a_driver_that_does_not_answer_is_told_once() -> None:
    world = World("a", "b", on_gpu=0)
    world.memory.gpu_problem = "nvmlInit_v2 returned 9"
    world.load("a", "b")
    world.server.advance(60)

    assert 1 == world.server.log.count(
        "W --gpu-memory-budget has no effect: nvmlInit_v2 returned 9"
    )
