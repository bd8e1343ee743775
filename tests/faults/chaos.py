"""`make faults SEED=1 MINUTES=20`: a server that is steered while random faults befall it.

Deaths, stops, torn connections, failing system calls, no descriptors and a starved processor,
beside scaling, rolls, canaries, drains, loads and changes of files, against every kind of load, in
an order that the seed decides. The first half is in mode explicit, the second in mode poll.

Each request must have one right outcome, and none may be executed twice. A request may fail if it
was executing on a stub that was ended, or under way in a frontend that was: none that had not
begun. Each operation succeeds, at the latest when the fault is over; afterwards answers are of the
state that the files say, and there are as many instances as were asked for. After each step the
server must be whole again; how long that took is printed. No tensor may be read after its block is
free (ZT_POISON).

`ARGS=--only=broker` tries some of the faults, `--steer=scale` some of the operations
(`--steer=none` none), `--count=2000` as many steps, `--first=37` from that step on, `--mode=poll`
one half, `--pause=5` with as many seconds between two steps. What broke a promise is explained in
build/faults.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.faults.days.clients import make_server, steered_clients
from tests.faults.days.nemesis import Nemesis
from tests.faults.days.operations import OPERATIONS
from tests.faults.days.report import Recovery, Report
from tests.faults.days.steps import Choice, Step, chance_of, choose_step
from tests.faults.days.world import BOUND_S, World
from tests.faults.figures import leaving_nothing
from tests.faults.mixed_clients import Client
from tests.support import poison
from tests.support.failing import FailingCalls
from tests.support.tools import parse_options
from tests.support.waiting import eventually, patience

MODES = ("explicit", "poll")


class Plan(NamedTuple):
    seed: int
    minutes: float
    mode: str = "explicit"
    #: The first step, and how many there are at most.
    first: int = 0
    max_steps: int = 1_000_000
    #: Faults, and operations, whose name contains this.
    only: str = ""
    steer: str = ""
    #: Between two steps, in seconds; some fraction of one if it is 0.
    pause_s: float = 0.0
    #: The share of the steps in which the server is steered.
    steering: float = 0.75
    #: These, in place of those that the seed chooses.
    steps: Sequence[Step] = ()


class Day:
    """Takes the steps one after the other."""

    def __init__(
        self, plan: Plan, world: World, nemesis: Nemesis, clients: Sequence[Client]
    ) -> None:
        self._plan = plan
        self._world = world
        self._nemesis = nemesis
        self._clients = clients
        self.recoveries: list[Recovery] = []
        self.steps: list[Step] = []
        self._choice = Choice(
            plan.seed,
            plan.mode,
            sorted(name for name in nemesis.faults if plan.only in name),
            sorted(name for name in nemesis.further if plan.only in name),
            sorted(
                name
                for name, operation in OPERATIONS.items()
                if plan.steer in name and plan.mode in operation.modes
            ),
            plan.steering,
        )

    def run(self) -> None:
        self._await_all("the start")
        deadline = time.monotonic() + 60 * self._plan.minutes
        for step in self._plan.steps or self._choose_steps():
            if time.monotonic() > deadline:
                break
            self.steps.append(step)
            self._take(step)
            chance = chance_of(self._plan.seed, self._plan.mode, step.number, "pause")
            time.sleep(self._plan.pause_s or chance.uniform(0.2, 1.0))

    def _choose_steps(self) -> Iterator[Step]:
        for number in range(self._plan.first, self._plan.first + self._plan.max_steps):
            yield choose_step(self._choice, number)

    def _take(self, step: Step) -> None:
        world, nemesis, broken = self._world, self._nemesis, len(self._world.broken)
        world.note(str(step))
        world.calm.clear()
        threads = [
            threading.Thread(target=self._operate, args=(step.number, name), daemon=True)
            for name in step.operations
        ]
        for thread in threads:
            thread.start()
        for turn, fault in enumerate(step.faults):
            time.sleep(fault.pause_s)
            chance = chance_of(self._plan.seed, self._plan.mode, step.number, f"fault {turn}")
            nemesis.do(fault.name, chance, [OPERATIONS[name].model for name in step.operations])
            world.note(f"fault: {fault.name}: {nemesis.detail}")
        begun_ns = time.monotonic_ns()
        self._await_all(str(step))
        if step.faults:
            names = " + ".join(fault.name for fault in step.faults)
            whole_ms = (time.monotonic_ns() - begun_ns) / 1e6
            self.recoveries.append(Recovery(names, whole_ms, bool(step.operations), patience()))
        world.note("whole")
        world.await_state(self._is_nobody_stopped, "no process is stopped")
        world.calm.set()
        for name, thread in zip(step.operations, threads, strict=True):
            thread.join(5 * BOUND_S)
            if thread.is_alive():
                world.break_promise(f"{name} never ends")
        world.check()
        self._await_all(f"the end of {step}")
        nemesis.end_harms()
        if len(world.broken) > broken:
            print(f"{step}\n  " + "\n  ".join(world.broken[broken:]), flush=True)

    def _operate(self, number: int, name: str) -> None:
        chance = chance_of(self._plan.seed, self._plan.mode, number, name)
        try:
            OPERATIONS[name].run(self._world, chance)
        except Exception:  # noqa: BLE001 - the day goes on, and the report says so
            self._world.break_promise(f"{name}: {traceback.format_exc()}")

    def _is_nobody_stopped(self) -> bool:
        pids = {pid for pids in self._world.server.pids().values() for pid in pids}
        states = {
            each.info["status"] for each in psutil.process_iter(["status"]) if each.pid in pids
        }
        return psutil.STATUS_STOPPED not in states

    def _await_all(self, when: str) -> None:
        """Wait until every client has been served by what it has asked from now on."""
        since_ns = time.monotonic_ns()
        try:
            eventually(
                lambda: all(client.right_ns > since_ns for client in self._clients),
                BOUND_S,
                f"whole after: {when}",
            )
        except AssertionError as error:
            waiting = [c for c in self._clients if c.right_ns <= since_ns]
            states = "; ".join(f"{c.prefix}: {c.newest} {c.reason}" for c in waiting)
            self._world.break_promise(f"{error}: {states}")


def run(plan: Plan, directory: Path, kept: Path | None = None) -> int:
    """Live through a day in one mode; return how many promises were broken.

    What explains them is copied to the directory `kept`.
    """
    calls = FailingCalls(directory)
    server, counts = make_server(directory / "s", calls, plan.mode)
    nemesis = Nemesis(server, calls, sorted(counts))
    world = World(server, nemesis, counts, plan.mode)
    with server:
        sizes = _sizes(server.pid)
        with steered_clients(world) as clients:
            day = Day(plan, world, nemesis, clients)
            day.run()
            print("supervisor:", sizes, "->", _sizes(server.pid))
        for finding in poison.findings_in(server.log_text()):
            world.break_promise(finding)
        report = Report(world, clients, day.steps, day.recoveries)
        report.print()
        if server.stop(60):
            world.break_promise("the server has not ended in order")
        if report.broken and kept is not None:
            report.keep(kept)
    calls.close()
    return report.broken + (server.returncode != 0)


def _sizes(pid: int) -> str:
    process = psutil.Process(pid)
    return f"{process.memory_info().rss >> 20} MiB, {process.num_fds()} descriptors"


def main() -> int:
    options = parse_options(
        seed=(1, "of all choices"),
        minutes=(20.0, "of all modes"),
        mode=("", "modes whose name holds this"),
        first=(0, "the first step"),
        count=(Plan._field_defaults["max_steps"], "steps at most"),
        only=("", "faults whose name holds this"),
        steer=("", "operations whose name holds this"),
        pause=(0.0, "seconds between two steps"),
    )
    modes = [mode for mode in MODES if options.mode in mode]
    with leaving_nothing() as broken:
        for mode in modes:
            print(f"== mode {mode}, seed {options.seed}", flush=True)
            plan = Plan(
                options.seed,
                options.minutes / len(modes),
                mode,
                options.first,
                options.count,
                options.only,
                options.steer,
                options.pause,
            )
            kept = Path("build/faults", f"{options.seed}-{mode}")
            with tempfile.TemporaryDirectory() as directory:
                broken += [mode] * run(plan, Path(directory), kept)
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
