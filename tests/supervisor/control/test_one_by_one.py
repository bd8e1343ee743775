"""Models that do not fit twice move to a server when the one before has ended."""

from __future__ import annotations

from tests.supervisor.take_overs import TakeOver
from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError

_MOVING, _MOVED = wire.RepositoryState(0, 1), wire.RepositoryState(0)


def take_over(mode: str = "explicit", **policy: object) -> TakeOver:
    def server(**more: object) -> SupervisorHarness:
        return SupervisorHarness(
            *map(make_blueprint, "mnb"),
            control_mode=mode,
            startup_models=("m",) if mode == "explicit" else (),
            allow_client_shm=True,
            frontend_roles=("grpc",),
            **more,
        )

    return TakeOver(server(), server(one_by_one=True, **policy))


def states(world: SupervisorHarness) -> list[wire.RepositoryState]:
    return world.messages_to("grpc", wire.RepositoryState)


def serving(world: SupervisorHarness) -> list[str]:
    return sorted(name for name, model in world.core.models.items() if model.serving_configs)


def end_old(pair: TakeOver) -> None:
    pair.end_old()
    pair.exchange()
    pair.new.advance(1.0)


def test_models_move_when_the_server_before_has_ended() -> None:
    pair = take_over()
    assert pair.old.call("load", {"model": "n"}).result is None
    pair.start()
    pair.exchange()

    assert pair.old.has_logged("Another server has taken over")
    assert [[], [_MOVING]] == [serving(pair.new), states(pair.new)]
    calls = [pair.new.call("demand", {"model": name}) for name in ("m", "n", "nobody")]
    assert [None] * 3 == [call.answer for call in calls]
    assert not pair.new.core.is_open
    end_old(pair)

    assert [True, True, False] == [call.result for call in calls]
    assert ["m", "n"] == serving(pair.new)
    assert [_MOVING, _MOVED] == states(pair.new)
    assert pair.new.core.is_open


def test_regions_do_not_wait_for_models() -> None:
    pair = take_over()
    arguments = {"name": "r", "key": "/k", "offset": 0, "byte_size": 64}
    pair.old.call_as(pair.old.serial("grpc"), "regions.register", arguments)
    pair.start()
    pair.exchange()

    assert ["r"] == [row["name"] for row in pair.new.call("regions.status", {"name": ""}).result]


def test_a_model_that_fails_leaves_the_others() -> None:
    pair = take_over("none")
    pair.new.stub_behaviours["n"] = "no weights"
    pair.start()
    pair.exchange()
    call = pair.new.call("demand", {"model": "n"})
    end_old(pair)

    assert ["b", "m"] == serving(pair.new)
    assert call.result is False
    assert pair.new.core.is_open


def test_a_repository_that_is_not_there_changes_nothing() -> None:
    pair = take_over(exit_on_error=False)
    pair.new.listing_error = InternalError("failed to stat file /models")
    pair.start()
    pair.exchange()

    assert 1 == pair.new.status
    assert not pair.old.has_logged("Another server has taken over")


def test_files_that_would_end_with_the_server_before_change_nothing() -> None:
    pair = take_over()
    caller = pair.old.serial("grpc")
    files = {"staged": f"{caller}-{0:016x}"}
    arguments = {"model": "b", "parameters": {"config": "{}"}, "files": files}
    assert pair.old.call_as(caller, "load", arguments).result is None
    pair.start()
    pair.exchange()

    assert 1 == pair.new.status
    [complaint] = pair.new.complaints
    assert complaint.endswith("put them into the repository: b")
    assert not pair.old.has_logged("Another server has taken over")
