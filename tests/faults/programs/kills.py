"""Kills of a server's processes at random moments, and the proof that it serves again."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress

from tests.faults.programs.report import Report
from tests.support.server import Server

#: Seconds between two kills: stubs that die more often are not started at once.
_PAUSE_S = (2.0, 5.0)
#: How often each role is drawn.
_ROLES = {"stub": 5, "broker": 2, "http": 2, "grpc": 2, "fork-server": 1, "template": 1}


class Killer:
    """Kills one process after the other."""

    def __init__(self, server: Server, report: Report, chance: random.Random) -> None:
        self._server = server
        self._report = report
        self._chance = chance
        self._next_s = 0.0
        self._rest()

    def _rest(self) -> None:
        self._next_s = time.monotonic() + self._chance.uniform(*_PAUSE_S)

    def turn(self) -> None:
        """Kill a process if it is time."""
        if time.monotonic() < self._next_s:
            return
        pids = self._server.pids()
        roles = [role for role in _ROLES if pids.get(role)]
        if not roles:  # the only one has just been killed
            return
        [role] = self._chance.choices(roles, [_ROLES[role] for role in roles])
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(self._chance.choice(pids[role]), signal.SIGKILL)
            self._report.kills[role] += 1
        self._rest()
