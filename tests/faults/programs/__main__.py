"""`make programs SEED=1 MINUTES=10`: random programs next to an oracle.

A program is data that a seed draws (drawing.py): models that compute with their inputs, pass them
on, call others, hold arrays over later requests, and ensembles of such models. One model
(served/model.py) performs each of them in a real server; the oracle (oracle.py) computes with numpy
alone what the answer must be. Arrays tell which call each of their elements belongs to, so a wrong
one names the call whose bytes it holds. Clients look at their answers again a second, ten calls and
a reload later, after their connection has ended, and in forks; models look at the arrays that they
hold.

`--calls` of all worlds, each of which is a server with programs of its own; `--first=7` begins with
that world and `--worlds=1` runs no other; `--features=http,keeps` has only these kinds of clients
and steps, `--without=guests` all others. The exit status is 1 if any array is wrong, or any request
was not answered within 30 seconds; jobs, which wait for all other requests, have five minutes.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

import zmq
from zmq.utils import garbage

from tests.faults.figures import leaving_nothing
from tests.faults.programs import drawing
from tests.faults.programs.plan import Plan
from tests.faults.programs.report import Report
from tests.faults.programs.ways import WAYS
from tests.faults.programs.world import World
from tests.support.tools import parse_options

#: Kinds of steps and of models, copies of requests, and forks and ends of connections whose answers
#: are kept, next to the ways of clients.
STEPS = (
    "bls",
    "ensembles",
    "keeps",
    "passing",
    "twins",
    "async",
    "decoupled",
    "forks",
    "cache",
    "sequences",
    "bound",
    "captures",
    "canaries",
    "ends",
)
#: Logs of servers with a fault.
_KEPT = Path("build/programs")
FEATURES = (*WAYS, *STEPS)


def _keep_log(world: World) -> None:
    _KEPT.mkdir(parents=True, exist_ok=True)
    log = _KEPT / f"{world.plan.name.replace('/', '-')}.log"
    shutil.copy(world.server.log, log)
    print(f"the log of world {world.plan.name} is {log}", flush=True)


def main() -> int:
    options = parse_options(
        __doc__,
        seed=(1, "of all choices"),
        calls=(20_000, "of all worlds"),
        minutes=(0.0, "after which it ends, if it is not 0"),
        first=(0, "the first world"),
        worlds=(0, "worlds at most, if it is not 0"),
        each=(5_000, "calls of a world"),
        models=(8, "models of a world"),
        clients=(6, "connections of a world"),
        features=("", "kinds of clients and steps, with commas between them; all if empty"),
        without=("", "kinds of clients and steps to leave out"),
        largest=(0, "bytes of an input at most, if it is not 0"),
        looks=(1, "at what a model or a client keeps in memory of the server, at each request"),
        kills=(False, "kill processes of the server"),
        show=(False, "print the programs of each world"),
    )
    chosen = options.features.split(",") if options.features else FEATURES
    features = [name for name in chosen if name not in options.without.split(",")]
    features += ["kills"] * options.kills
    report = Report()
    deadline_s = time.monotonic() + 60 * options.minutes if options.minutes else float("inf")
    number = options.first
    # the threads of libzmq, and pyzmq's for frames that are not copied, stay as long as the process
    zmq.Context.instance().socket(zmq.SUB).close()
    garbage.gc.start()
    with leaving_nothing() as broken:
        while report.calls < options.calls and time.monotonic() < deadline_s:
            if options.worlds and number >= options.first + options.worlds:
                break
            plan = Plan(
                options.seed,
                number,
                min(options.each, options.calls - report.calls),
                features,
                options.models,
                options.clients,
                deadline_s,
                options.largest,
                options.looks,
            )
            if options.show:
                programs = drawing.draw(plan.name, features, plan.models)
                print("\n".join(map(str, programs)), flush=True)
            faults = report.faults
            with tempfile.TemporaryDirectory() as folder:
                world = World(plan, report, Path(folder))
                try:
                    world.run()
                finally:
                    if report.faults > faults:
                        _keep_log(world)
            number += 1
    report.print(options.seed)
    return int(bool(broken) or not report.is_good)


if __name__ == "__main__":
    sys.exit(main())
