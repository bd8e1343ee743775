"""The operations of a day: each brings the server from one settled state to another.

An operation makes several calls or changes of files, and whatever is done to the server meanwhile,
it ends in the state that it is for: what a fault has made fail is asked again once it is over.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple

from tests.faults.days.world import FORKED, GUEST, MANY, STAMPED, THREADED, World
from tests.faults.stamps import stamped
from tests.support.journal import journal_inputs
from tests.support.scripted import string_parameter

#: The models that are steered, and those that a drain may take single instances from.
STEERED = (STAMPED, "asking", "tokens", "sequences", FORKED, THREADED, MANY)
_PARALLEL = (STAMPED, "asking", "tokens", FORKED, THREADED, MANY)
_revisions = itertools.count(1)


class Operation(NamedTuple):
    #: Of two at once, each has another one; "" for what is of all.
    model: str
    run: Callable[[World, Random], None]
    modes: frozenset[str] = frozenset({"explicit", "poll"})


def _load(world: World, chance: Random, model: str) -> None:
    """Have the server take what the files say: by a load, or by its next poll."""
    if world.mode == "explicit":
        world.insist("load", chance, {"model": model})


def _end_load(world: World, chance: Random, model: str) -> None:
    """After a poll: nothing of it is under way any more, and nothing has failed."""
    if world.mode == "poll":
        answer = world.insist("reload", chance, {"model": model})
        if answer is not None and answer["failed"]:
            world.break_promise(f"a reload of {model} fails without a fault: {answer['failed']}")


def _scale(world: World, chance: Random, model: str) -> None:
    count = 1 + int(chance.random() * 4)
    world.insist("scale", chance, {"model": model, "count": count})
    world.counts[model] = count


def _ending(world: World, wish: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call that may end the stubs that there are now.

    A call whose answer is lost is made again, and the stubs of the first one are gone by then.
    """
    world.nemesis.note(["stub"], world.server.stub_pids(wish["model"]), wish["model"])
    return wish


def _restart(world: World, chance: Random, model: str) -> None:
    world.insist("restart", chance, lambda: _ending(world, {"model": model}))


# --------------------------------------------------------------------- files


def _change_code(world: World, chance: Random) -> None:
    stamp = world.next_stamp()
    code = world.directory(STAMPED) / str(world.version) / "model.py"
    world.write(code, stamped(code.read_text("utf-8"), stamp))
    world.note(f"the code of {STAMPED} is of state {stamp}")
    _load(world, chance, STAMPED)
    _settle_stamp(world, chance, stamp)


def _settle_stamp(world: World, chance: Random, stamp: int) -> None:
    if world.mode == "poll":
        text = f"what answers is of state {stamp}, as the files say"
        world.await_state(lambda: _answers_with(world, stamp), text)
    _end_load(world, chance, STAMPED)
    world.stamps.settle(stamp)


def _answers_with(world: World, stamp: int) -> bool:
    """Return True if many answers in a row are of this state."""
    return all(_stamp_of_answer(world) == stamp for _ in range(24))


def _stamp_of_answer(world: World) -> int:
    document = {"inputs": journal_inputs("probe", 0)}
    status, answer = world.look(f"/v2/models/{STAMPED}/infer", document)
    outputs = {one["name"]: one["data"][0] for one in answer.get("outputs", [])}
    return int(outputs["STAMP"]) if status == 200 else 0


def _change_configuration(world: World, chance: Random, model: str) -> None:
    revision, path = next(_revisions), world.directory(model) / "config.pbtxt"
    count = 1 + int(chance.random() * 3)
    text = re.sub(r"\nparameters \{ key: \"REVISION.*", "", path.read_text("utf-8"))
    group = f"instance_group [ {{ count: {count} kind: KIND_CPU }} ]"
    text = re.sub(r"instance_group \[.*\]", group, text)
    new = string_parameter("REVISION", str(revision))
    world.write(path, f"{text.rstrip()}\n{new}")
    world.note(f"the configuration of {model} has {count} instances, revision {revision}")
    _load(world, chance, model)
    text = f"the configuration of {model} is that of its files, revision {revision}"
    world.await_state(lambda: _revision(world, model) == str(revision), text)
    _end_load(world, chance, model)
    if count != world.configured[model]:  # it has the last word about the number
        world.counts[model] = world.configured[model] = count


def _revision(world: World, model: str) -> str:
    status, answer = world.look(f"/v2/models/{model}/config")
    parameters = answer.get("parameters", {}) if status == 200 else {}
    return str(parameters.get("REVISION", {}).get("string_value", ""))


def _add_version(world: World, chance: Random) -> None:
    """A higher version takes the place of the one that serves."""
    stamp = world.next_stamp()
    number, old = world.add_version(stamp), world.version
    world.note(f"{STAMPED} has version {number}, of state {stamp}")
    world.version = number
    _load(world, chance, STAMPED)
    _settle_stamp(world, chance, stamp)
    world.remove_version(old)
    _load(world, chance, STAMPED)
    _end_load(world, chance, STAMPED)


def _remove_and_return(world: World, chance: Random) -> None:
    """A model's directory goes, and comes back."""
    directory, away = world.directory(GUEST), world.server.directory / "away"
    world.is_present.widen(False)
    directory.rename(away)
    world.note(f"the directory of {GUEST} is gone")
    if world.await_state(
        lambda: _is_ready(world, GUEST) is False, f"{GUEST} is gone, as its files"
    ):
        world.is_present.settle(False)
    world.is_present.widen(True)
    away.rename(directory)
    world.note(f"the directory of {GUEST} is back")
    world.await_state(lambda: _is_ready(world, GUEST) is True, f"{GUEST} is back, as its files")
    _end_load(world, chance, GUEST)
    world.is_present.settle(True)


def _is_ready(world: World, model: str = "") -> bool | None:
    """None if nobody says."""
    path = f"/v2/models/{model}/ready" if model else "/v2/health/ready"
    return {200: True, 400: False, 404: False}.get(world.server.status(path))


# ------------------------------------------------------------ calls of clients


def _unload_and_load(world: World, chance: Random) -> None:
    world.is_present.widen(False)
    starts = world.starts
    world.insist("unload", chance, {"model": GUEST})
    if starts == world.starts:
        world.is_present.settle(False)
    world.is_present.widen(True)
    world.insist("load", chance, {"model": GUEST})
    world.is_present.settle(True)
    world.counts[GUEST] = world.configured[GUEST]


def _drain_and_unload(world: World, chance: Random) -> None:
    world.is_present.widen(False)
    wish = {"model": GUEST, "then": "unload", "within_s": 0.5}
    world.nemesis.note(["stub"], world.server.stub_pids(GUEST), GUEST)
    world.insist("drain", chance, wish, lambda reason: "not loaded" in reason)
    world.is_present.widen(True)
    world.insist("load", chance, {"model": GUEST})
    world.is_present.settle(True)
    world.counts[GUEST] = world.configured[GUEST]


def _try_version(world: World, chance: Random) -> None:
    """A version is tried beside the other, and promoted or aborted."""
    weight, is_good, starts = 20 + int(chance.random() * 60), chance.random() < 0.5, world.starts
    [old_stamp], stamp = world.stamps.newest, world.next_stamp()
    old, new = world.version, world.add_version(stamp)
    start = {"model": STAMPED, "version": new, "weight": weight, "abort_failures": "off"}
    world.insist(
        "canary.start", chance, start, lambda why: "a canary already" in why or "only one" in why
    )
    phase = ""
    if starts == world.starts:
        world.insist(
            "canary.promote" if is_good else "canary.abort",
            chance,
            {"model": STAMPED},
            lambda why: "has no running canary" in why or "has no canary" in why,
        )
        text = f"the canary of {STAMPED} is over"
        world.await_state(lambda: _canary_phase(world) in ("PROMOTED", "ABORTED", "-"), text)
        phase = _canary_phase(world)
    world.calm.wait()
    if starts != world.starts:  # a new server knows of no canary, and of its end if there was one
        phase = "PROMOTED" if new in _serving_versions(world) else "ABORTED"
    elif phase != ("PROMOTED" if is_good else "ABORTED"):
        world.note(f"the canary has ended otherwise: {phase}")
        world.refusals[f"a canary that ended otherwise: {phase}"] += 1
    world.version = new if phase == "PROMOTED" else old
    world.remove_version(old if phase == "PROMOTED" else new)
    world.insist("load", chance, {"model": STAMPED})
    world.stamps.settle(stamp if phase == "PROMOTED" else old_stamp)


def _serving_versions(world: World) -> list[int]:
    status, index = world.server.request_json("/v2/repository/index", {"ready": True})
    assert status == 200, index
    return [int(entry["version"]) for entry in index if entry["name"] == STAMPED]


def _canary_phase(world: World) -> str:
    """Return "-" where there was none, "" if nobody says."""
    status, answer = world.look(f"/v2/models/{STAMPED}/canary")
    return str(answer["phase"]) if status == 200 else "-" * ("no canary" in str(answer))


def _drain_and_undrain(world: World, chance: Random, model: str = "") -> None:
    """model is "" for the whole server."""
    starts, of = world.starts, {"model": model} if model else {}
    wish: dict[str, Any] = {**of, "within_s": 0.5, "quiet_s": 0.2}
    world.insist("drain", chance, wish)
    if starts == world.starts:
        text = f"{model or 'the server'} drains, so it is not ready"
        world.await_state(lambda: _drains(world, model, starts), text)
    world.insist("undrain", chance, of)
    world.await_state(lambda: _is_ready(world, model) is True, f"{model} is ready again")


def _drains(world: World, model: str, starts: int) -> bool:
    return _is_ready(world, model) is False or starts != world.starts


def _drain_and_restart(world: World, chance: Random, model: str) -> None:
    wish = {"model": model, "then": "restart", "within_s": 1.0}
    world.insist("drain", chance, lambda: _ending(world, wish))


def _drain_instance(world: World, chance: Random, model: str) -> None:
    if world.counts[model] < 2:
        world.insist("scale", chance, {"model": model, "count": 2})
        world.counts[model] = 2
    number = chance.random()

    def drain() -> dict[str, Any]:
        """Name one of those that there are now: a fault may have changed their names."""
        names = world.instance_names(model)
        instance = names[int(number * len(names))] if names else model
        wish = {"model": model, "instance": instance, "then": "restart", "within_s": 0.5}
        return _ending(world, wish)

    world.insist("drain", chance, drain)


def _reload_all(world: World, chance: Random) -> None:
    world.insist("reload", chance, {})


_EXPLICIT, _POLL = frozenset({"explicit"}), frozenset({"poll"})
#: What is done to a model, and to which of them.
_OF_MODELS: dict[str, tuple[Callable[..., None], Sequence[str]]] = {
    "scale {}": (_scale, STEERED),
    "restart {}": (_restart, STEERED),
    "configure {}": (_change_configuration, STEERED),
    "drain and undrain {}": (_drain_and_undrain, STEERED),
    "drain and restart {}": (_drain_and_restart, STEERED),
    "drain an instance of {}": (_drain_instance, _PARALLEL),
}
OPERATIONS: dict[str, Operation] = {
    **{
        name.format(model): Operation(model, partial(run, model=model))
        for name, (run, models) in _OF_MODELS.items()
        for model in models
    },
    "drain and undrain the server": Operation("", _drain_and_undrain),
    "roll": Operation(STAMPED, _change_code),
    "another version": Operation(STAMPED, _add_version),
    "canary": Operation(STAMPED, _try_version, _EXPLICIT),
    "unload and load": Operation(GUEST, _unload_and_load, _EXPLICIT),
    "drain and unload": Operation(GUEST, _drain_and_unload, _EXPLICIT),
    "remove and return": Operation(GUEST, _remove_and_return, _POLL),
    "reload all": Operation("", _reload_all),
}
