"""kill -9 of the process that a model's instances are forks of, at each moment of its life.

Nobody's request fails by it: instances live on, and those that were to come are forked from the
next one. A load that it was for fails with the reason, and succeeds when it is asked for again.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from tests.faults.load import Load
from tests.faults.steering import steer
from tests.support.scripted import extend_config, string_parameter
from tests.support.server import Server
from tests.support.waiting import eventually

MODEL = "journal"
OPTIONS = ("--model-control-mode=explicit", f"--load-model={MODEL}")
_INSTANCES = 2
_WITHIN_S = 60.0
#: What a load says whose template was killed.
_REASON = "the template that it is forked from: killed by SIGKILL"


def use_forks(server: Server) -> None:
    """Have the model's instances be forks; its import lasts long enough to be met."""
    extend_config(server, MODEL, string_parameter("INSTANCES", "forks"))
    code = server.repository / MODEL / "1" / "model.py"
    code.write_text(f"{code.read_text()}\ntime.sleep(0.1)\n")


def _scale(server: Server, count: int) -> None:
    steer(server, "scale", {"count": count}, MODEL)


def _template(server: Server) -> int:
    """Return the process of the template; one that was killed comes again with the next fork."""
    if not server.pids().get("template"):
        for count in (_INSTANCES + 1, _INSTANCES):
            _scale(server, count)
    [pid] = server.pids()["template"]
    return pid


def _another(server: Server, before: int) -> int:
    return next((pid for pid in server.pids().get("template", []) if pid != before), 0)


def _while_idle(server: Server, _: random.Random) -> float:
    os.kill(_template(server), signal.SIGKILL)
    killed_s = time.monotonic()
    _scale(server, _INSTANCES + 1)
    return killed_s


def _once_asked(server: Server, chance: random.Random) -> float:
    """It has the request, and has not read it."""
    template = _template(server)
    os.kill(template, signal.SIGSTOP)
    with _beside(lambda: _scale(server, _INSTANCES + 1)):
        time.sleep(chance.uniform(0.02, 0.2))
        os.kill(template, signal.SIGKILL)
        return time.monotonic()


def _while_it_forks(server: Server, chance: random.Random) -> float:
    template = _template(server)
    with _beside(lambda: _scale(server, _INSTANCES + 1)):
        time.sleep(chance.uniform(0.0, 0.02))
        os.kill(template, signal.SIGKILL)
        return time.monotonic()


def _while_it_loads(server: Server, chance: random.Random) -> float:
    before, code = _template(server), server.repository / MODEL / "1" / "model.py"
    code.write_text(f"{code.read_text()}\n")
    with _beside(lambda: server.control_model("load", MODEL)) as load:
        template = eventually(lambda: _another(server, before), _WITHIN_S, "a template")
        time.sleep(chance.uniform(0.0, 0.5))
        os.kill(template, signal.SIGKILL)
        killed_s = time.monotonic()
    error = load.result()
    assert not error or _REASON in error, error
    assert server.control_model("load", MODEL) == ""
    return killed_s


@contextmanager
def _beside(ask: Callable[[], str | None]) -> Iterator[Future[str | None]]:
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(ask)
        yield future
        future.result(_WITHIN_S)


MOMENTS: dict[str, Callable[[Server, random.Random], float]] = {
    "idle": _while_idle,
    "asked for a fork": _once_asked,
    "forking": _while_it_forks,
    "loading": _while_it_loads,
}


def _done_ms(server: Server, moment: str, chance: random.Random) -> float:
    """Kill it; return the time until what was asked meanwhile, or is asked then, is done."""
    killed_s = MOMENTS[moment](server, chance)
    done_s = time.monotonic()
    _scale(server, _INSTANCES)
    eventually(lambda: len(server.stub_pids(MODEL)) == _INSTANCES, _WITHIN_S, "two instances")
    return 1000 * (done_s - killed_s)


@contextmanager
def harmless(server: Server, seed: int = 1) -> Iterator[Callable[[], tuple[float, ...]]]:
    """Yield what kills it at each moment, under a load of which nothing fails."""
    _scale(server, _INSTANCES)
    chance = random.Random(seed)
    with Load(server.http_port, clients=4, milliseconds=5) as load:
        yield lambda: tuple(_done_ms(server, moment, chance) for moment in MOMENTS)
    failed = [outcome for outcome in load.outcomes if not outcome.is_right]
    assert not failed, failed[:3]
