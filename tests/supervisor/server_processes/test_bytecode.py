"""The place of a generation's bytecode: told to its stubs, and gone with the last of them."""

from __future__ import annotations

from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton_floor import wire


def _places(world: SupervisorHarness) -> list[str]:
    return [load.bytecode for load in world.messages_to("stub", wire.LoadModel)]


def test_instances_of_one_generation_share_a_place_and_others_have_their_own() -> None:
    world = SupervisorHarness(
        make_blueprint("m", instances=2), make_blueprint("n"), control_mode="explicit"
    ).start()

    for model in ("m", "n"):
        world.call("load", {"model": model})

    assert _places(world) == ["/run/x/bytecode/1", "/run/x/bytecode/1", "/run/x/bytecode/2"]


def test_the_place_stays_while_a_stub_is_started_again_and_goes_with_the_last() -> None:
    world = SupervisorHarness(make_blueprint("m", instances=2), control_mode="explicit").start()
    world.call("load", {"model": "m"})

    world.kill_process(world.serial("m_0_0")).tick()
    assert {"/run/x/bytecode/1"} == set(_places(world))
    assert [] == world.removed_bytecode

    world.stubborn.add("m_0_1")
    world.call("unload", {"model": "m"})
    assert [] == world.removed_bytecode

    world.kill_process(world.serial("m_0_1"))
    assert ["/run/x/bytecode/1"] == world.removed_bytecode
