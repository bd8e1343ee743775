"""A server that takes over has what the one before is told, at whatever moment."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from tests.supervisor.control.test_regions import register
from tests.supervisor.settings import failed, then
from tests.supervisor.take_overs import TakeOver
from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton.supervisor.actions import Send
from zmqtriton.supervisor.control.succession import Succession
from zmqtriton.supervisor.control.verbs import ControlCall
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes.service_manager import ServiceManager
from zmqtriton.supervisor.settings import Start
from zmqtriton.supervisor.story import Promise
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unsupported


class Leaving:
    is_stopping = False

    def leave_to_successor(self) -> None:
        raise AssertionError("nobody has asked for that")

    def stop(self, status: int = 0) -> None:
        raise AssertionError("nor for that")


def _succession(plan: Plan, start: Start, beat_s: float | None = None) -> Succession:
    server: Any = SimpleNamespace(summary=str)
    manager = ServiceManager(plan, beat_s, server)
    return Succession(plan, Leaving(), manager, start, (), leaves_models=False)


def test_any_number_of_calls_that_are_refused_at_once_ends_in_order() -> None:
    plan, names, ends = Plan(0.0), list[str](), list[bool]()

    def refuse(verb: str, arguments: dict[str, Any]) -> Promise[Any]:
        names.append(arguments["name"])
        return failed(Unsupported("not here"))

    succession = _succession(plan, Start())
    succession.follow(7)
    then(plan.tell(succession.inherit(refuse)), lambda _: ends.append(True))
    [question] = [each for each in plan.take_actions() if isinstance(each, Send)]
    calls = [("regions.register", {"name": str(number)}) for number in range(2000)]
    succession.take_answer(7, wire.CallResult(question.message.id, 0, "", json.dumps(calls)))
    plan.ready.settle()

    assert [str(number) for number in range(2000)] == names
    assert [True] == ends


@pytest.mark.parametrize(
    ("ours", "beat_s", "theirs", "is_refused"),
    [
        ("a", 1.0, "a", False),
        ("a", 1.0, "b", True),
        ("a", 1.0, None, True),
        pytest.param("a", None, "b", False, id="systemd only began it"),
        pytest.param("", 1.0, "b", False, id="another manager"),
    ],
)
def test_what_systemd_runs_is_replaced_within_its_service(
    ours: str, beat_s: float | None, theirs: str | None, is_refused: bool
) -> None:
    plan = Plan()
    verbs = _succession(plan, Start(invocation=ours, reload="reload it"), beat_s).verbs
    call = ControlCall(7, {"invocation": theirs})

    with pytest.raises(Unsupported, match="reload it") if is_refused else nullcontext():
        verbs["succession.start"].handle(call)

    assert is_refused != bool(plan.take_actions())


def _server() -> SupervisorHarness:
    return SupervisorHarness(
        make_blueprint("m"),
        make_blueprint("n"),
        control_mode="explicit",
        startup_models=("m",),
        allow_client_shm=True,
        frontend_roles=("grpc",),
    )


def take_over() -> TakeOver:
    return TakeOver(_server(), _server())


def regions(world: SupervisorHarness) -> list[str]:
    return [row["name"] for row in world.call("regions.status", {"name": ""}).result]


def told_leave(pair: TakeOver) -> bool:
    return pair.old.has_logged("Another server has taken over")


@pytest.fixture
def pair() -> TakeOver:
    return take_over()


@pytest.mark.addons
def test_files_that_are_read_anew_before_it_asks_are_read_anew(pair: TakeOver) -> None:
    pair.start()
    pair.new.models["m"] = make_blueprint("m", fingerprint="2")
    assert ["m"] == pair.old.call("reload", {"model": "m"}).result["unchanged"]

    pair.exchange()

    assert "2" == pair.new.generation("m").blueprint.fingerprint


def test_what_is_told_after_it_has_asked_is_told_before_the_answer(pair: TakeOver) -> None:
    pair.start()
    pair.hear()

    calls = [register(pair.old, "later"), pair.old.call("load", {"model": "n"})]
    assert [None, None] == [call.answer for call in calls]
    pair.exchange()

    assert ([None, None], ["later"]) == ([call.result for call in calls], regions(pair.new))
    assert {"name": "n", "version": "1", "state": "READY"} in pair.new.index()


@pytest.mark.addons
@pytest.mark.parametrize(
    ("then", "expected"), [("nothing", "draining"), ("unload", "draining"), ("restart", "serving")]
)
def test_a_drain_goes_over_unless_it_ends_what_the_old_server_has(
    pair: TakeOver, then: str, expected: str
) -> None:
    pair.start()
    pair.hear()

    pair.old.call("drain", {"model": "m", "then": then})
    pair.exchange()

    assert expected == pair.new.call("drain.state", {"model": "m"}).result["state"]


def test_a_load_that_was_under_way_when_it_asked_goes_over(pair: TakeOver) -> None:
    pair.old.stub_behaviours["n"] = "hangs"
    call = pair.old.call("load", {"model": "n"})
    pair.start()
    pair.hear()
    assert call.answer is None

    stub = pair.old.serial("n_0_0")
    pair.old.receive(stub, wire.ConfigCompleted(json.dumps({"name": "n"})))
    pair.old.receive(stub, wire.ModelLoaded(0))
    pair.exchange()

    assert {"name": "n", "version": "1", "state": "READY"} in pair.new.index()


def test_regions_are_of_both_until_the_old_server_has_ended(pair: TakeOver) -> None:
    pair.old.has_sequences = True
    pair.run()
    assert told_leave(pair)

    calls = [register(pair.new, "at-new"), register(pair.old, "at-old")]
    pair.exchange()

    assert [None, None] == [call.result for call in calls]
    assert {"at-new", "at-old"} == {*regions(pair.old)} == {*regions(pair.new)}
    pair.end_old()
    assert register(pair.new, "alone").result is None


@pytest.mark.addons
def test_a_change_at_a_server_that_leaves_is_one_of_the_next(pair: TakeOver) -> None:
    pair.old.has_sequences = True
    pair.run()

    calls = [pair.old.call("load", {"model": "n"}), pair.old.call("scale", {"model": "x"})]
    pair.exchange()

    assert calls[0].result is None
    assert "no model 'x'" in calls[1].error[1] or "'x'" in calls[1].error[1]
    assert {"name": "n", "version": "1", "state": "READY"} in pair.new.index()
    assert {"name": "n"} in pair.old.index()


def test_a_load_that_is_under_way_when_the_old_server_leaves_is_one_of_the_next(
    pair: TakeOver,
) -> None:
    pair.old.stub_behaviours["n"] = "hangs"
    call = pair.old.call("load", {"model": "n"})
    pair.run()

    assert call.result is None
    assert {"name": "n", "version": "1", "state": "READY"} in pair.new.index()


@pytest.mark.parametrize("has_asked", [False, True])
def test_a_new_server_that_dies_leaves_nothing_behind(pair: TakeOver, has_asked: bool) -> None:
    pair.start()
    if has_asked:
        pair.hear()
    call = register(pair.old, "r")
    pair.end_new()

    assert call.result is None
    assert register(pair.old, "s").result is None
    assert pair.old.call("unload", {"model": "m"}).result is None


@pytest.mark.parametrize("who", ["old", "new"])
def test_a_server_that_stops_leaves_the_sockets_to_the_other_one(pair: TakeOver, who: str) -> None:
    """Shut down here, a listener would be shut there as well."""
    pair.start()
    stopped, other = (pair.old, pair.new) if who == "old" else (pair.new, pair.old)

    stopped.stop()

    assert [wire.Retire(0, 0, 1)] == stopped.messages_to("grpc", wire.Retire)
    assert [] == other.messages_to("grpc", wire.Retire)


def test_two_servers_do_not_take_over_at_once() -> None:
    _, text = take_over().old.call("succession.sockets").error

    assert "another server is about to take over from it: wait for that one" == text


# ------------------------------------------------------------------- one model after the other


_MOVING, _MOVED = wire.RepositoryState(0, 1), wire.RepositoryState(0)


def take_over_in_mode(mode: str = "explicit", **policy: object) -> TakeOver:
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


@pytest.mark.addons
def test_models_move_when_the_server_before_has_ended() -> None:
    pair = take_over_in_mode()
    assert pair.old.call("load", {"model": "n"}).result is None
    pair.run()

    assert pair.old.has_logged("Another server has taken over")
    assert ([], {_MOVING}) == (serving(pair.new), set(states(pair.new)))
    calls = [pair.new.call("demand", {"model": name}) for name in ("m", "n", "nobody")]
    assert [None] * 3 == [call.answer for call in calls]
    assert not pair.new.core.is_open
    end_old(pair)

    assert [True, True, False] == [call.result for call in calls]
    assert ["m", "n"] == serving(pair.new)
    assert [_MOVING, _MOVED] == list(dict.fromkeys(states(pair.new)))
    assert pair.new.core.is_open


def test_regions_do_not_wait_for_models() -> None:
    pair = take_over_in_mode()
    register(pair.old, "r")
    pair.run()

    assert ["r"] == regions(pair.new)


@pytest.mark.addons
def test_a_model_that_fails_leaves_the_others() -> None:
    pair = take_over_in_mode("none")
    pair.new.stub_behaviours["n"] = "no weights"
    pair.run()
    call = pair.new.call("demand", {"model": "n"})
    end_old(pair)

    assert ["b", "m"] == serving(pair.new)
    assert call.result is False
    assert pair.new.core.is_open


def test_files_that_would_end_with_the_server_before_change_nothing() -> None:
    pair = take_over_in_mode()
    caller = pair.old.serial("grpc")
    files = {"staged": f"{caller}-{0:016x}"}
    arguments = {"model": "b", "parameters": {"config": "{}"}, "files": files}
    assert pair.old.call_as(caller, "load", arguments).result is None
    pair.run()

    assert 1 == pair.new.status
    [complaint] = pair.new.complaints
    assert complaint.endswith("put them into the repository: b")
    assert not pair.old.has_logged("Another server has taken over")
