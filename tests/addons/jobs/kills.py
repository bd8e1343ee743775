"""Kills under submissions of jobs: no promised job is lost, and none runs twice where none may.

    python -m tests.addons.jobs.kills --kills 2000

Most kills are of the process of jobs; each tenth is of another process, each fiftieth of the whole
server. Prints what became of the jobs, and exits with 1 if one was lost or ran twice.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from tests.addons.jobs.asking import ENDS, add_journal, ask, submit
from tests.support.journal import executions
from tests.support.server import Server
from tests.support.waiting import eventually

_SUBMITTERS = 3
_OTHERS = ("http", "broker", "stub")
_MODELS = ("journal", "again")
_WITHIN_S = 300.0


class Submitters:
    """Clients that submit jobs one after the other, and note those that were promised."""

    def __init__(self, server: Server) -> None:
        self.promised: dict[str, str] = {}
        self._server = server
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number,)) for number in range(_SUBMITTERS)
        ]

    def _run(self, worker: int) -> None:
        number = 0
        while not self._is_over.is_set():
            number += 1
            name, model = f"{worker} {number}", _MODELS[number % 2]
            try:
                reply = submit(self._server, name, number % 3, model)
            except OSError:
                time.sleep(0.02)  # nobody is there, or it was killed before it promised anything
                continue
            if reply.status == 202:
                self.promised[reply.document["id"]] = name
            time.sleep(0.01)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()


class Killer:
    def __init__(self, server: Server, submitters: Submitters, seed: int) -> None:
        self._server = server
        self._submitters = submitters
        self._chance = random.Random(seed)
        self.kills: Counter[str] = Counter()

    def perform(self) -> None:
        """Kill once, when at least one more job was promised since the last time."""
        before = len(self._submitters.promised)
        eventually(lambda: len(self._submitters.promised) > before, _WITHIN_S)
        time.sleep(self._chance.random() * 0.1)
        number = self.kills.total() + 1
        if number % 50 == 0:
            self._server.kill()
            self._server.process = None
            self._server.start()
            self.kills["supervisor"] += 1
            return
        role = "jobs" if number % 10 else self._chance.choice(_OTHERS)
        for pid in self._server.pids().get(role, []):
            os.kill(pid, signal.SIGKILL)
        self.kills[role] += 1


def _outcomes(server: Server, promised: dict[str, str]) -> dict[str, str]:
    """Return what became of each job, once it has ended."""
    states: dict[str, str] = {}

    def has_ended(job: str) -> bool:
        try:
            reply = ask(server, f"/v2/jobs/{job}")
        except OSError:
            return False
        states[job] = reply.document["state"] if reply.status == 200 else str(reply.status)
        return states[job] in (*ENDS, "404")

    for job in promised:
        eventually(lambda job=job: has_ended(job), _WITHIN_S)  # type: ignore[misc]
    return states


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--until", default="", metavar="HH:MM", help="end then at the latest")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="job-kills-") as place:
        server = Server(Path(place) / "s", options=["--jobs"], frontends=())
        add_journal(server)
        add_journal(server, "again", JOBS_REPEAT="true")
        with server:
            submitters = Submitters(server)
            killer = Killer(server, submitters, options.seed)
            submitters.start()
            try:
                while killer.kills.total() < options.kills:
                    if options.until and time.strftime("%H:%M") >= options.until:
                        break
                    killer.perform()
                    if not killer.kills.total() % 100:
                        _say(f"{dict(killer.kills)}, {len(submitters.promised)} jobs")
            finally:
                submitters.end()
            states = _outcomes(server, submitters.promised)
            counts = executions(server.journal)
            lost = [job for job, state in states.items() if state not in ENDS]
            unexecuted = [
                job
                for job, state in states.items()
                if state == "succeeded" and not counts.get(submitters.promised[job])
            ]
            once = {name for name in submitters.promised.values() if not int(name.split()[1]) % 2}
            twice = [name for name in once if counts.get(name, 0) > 1]
            _say(
                f"kills {dict(killer.kills)}; jobs {len(states)}: {dict(Counter(states.values()))}"
            )
            _say(f"lost {lost}, succeeded without an execution {unexecuted}, twice {twice}")
    return 1 if lost or unexecuted or twice else 0


if __name__ == "__main__":
    sys.exit(main())
