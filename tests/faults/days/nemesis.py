"""Does harm to a running server, and notes what that may cost.

Every choice is made by a number of the seed, so that it is the same whatever runs just then.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from tests.faults import failing_calls
from tests.faults.days.judging import MACHINE, STILL, Harm
from tests.faults.deaths import kill_whole
from tests.support.failing import FailingCalls
from tests.support.foreign_sockets import confuse, tear
from tests.support.server import Server

ROLES = ("broker", "http", "grpc", "metrics", "fork-server")
#: The processes of add-ons, which are not found when they stop.
_OF_ADDONS = ("jobs", "routes")
_CONNECTED = ("stub", "http", "grpc", "metrics")
_TORN = " between broker "


class Nemesis:
    def __init__(self, server: Server, calls: FailingCalls, models: Sequence[str]) -> None:
        self._server = server
        self._calls = calls
        self._models = models
        self._chance = random.Random(0)
        self._steered: list[str] = []
        self.harms: list[Harm] = []
        #: What the last fault was, exactly.
        self.detail = ""
        #: Called when the supervisor has been killed, before the next start.
        self.on_death: Callable[[], None] = lambda: None
        self.faults: dict[str, Callable[[], None]] = {
            "tear a connection": lambda: self._break(tear),
            "strange bytes": lambda: self._break(confuse),
            "a failing call": lambda: self._fail(lasts=False),
            "failing calls for a second": lambda: self._fail(lasts=True),
            "no descriptors for a second": self._take_descriptors,
            "a starved processor for a second": self._starve,
        }
        for role in (*ROLES, "template", "stub"):
            name = "a stub" if role == "stub" else role
            self.faults[f"kill {name}"] = self._signals(role, signal.SIGKILL)
            if role not in ("metrics", "fork-server", "template"):
                self.faults[f"stop {name}"] = self._signals(role, signal.SIGSTOP)
        for role in _OF_ADDONS:
            self.faults[f"kill the process of {role}"] = self._signals(role, signal.SIGKILL)
        #: Those that only days of steering have.
        self.further: dict[str, Callable[[], None]] = {"kill supervisor": self._kill_supervisor}
        pause, pauses_s = (signal.SIGSTOP, signal.SIGCONT), (0.05, 0.5, 1.2, 2.5)
        for role in ("supervisor", *_OF_ADDONS, *ROLES, "template", "stub"):
            self.further[f"stop and continue {role}"] = self._signals(
                role, *pause, pauses_s=pauses_s
            )
        end = signal.SIGSTOP, signal.SIGKILL
        for role in (*ROLES, "template", "stub"):
            self.further[f"stop, then kill {role}"] = self._signals(
                role, *end, pauses_s=(0.05, 0.5)
            )

    def do(self, name: str, chance: random.Random, steered: Sequence[str] = ()) -> None:
        """Do it; rather to the models that are steered just now."""
        self._chance, self.detail = chance, ""
        self._steered = [model for model in steered if model in self._models]
        (self.faults.get(name) or self.further[name])()

    def end_harms(self) -> None:
        """The server is whole again: what is asked from now on is not to fail."""
        now_ns = time.monotonic_ns()
        self.harms = [
            harm._replace(ended_ns=now_ns) if harm.ended_ns == STILL else harm
            for harm in self.harms
        ]

    def note(self, roles: Sequence[str], pids: Sequence[int] = (), model: str = "") -> None:
        """Note a harm that begins now; what it is, says `detail`."""
        now_ns, instances = time.monotonic_ns(), max([1, *map(_instances, pids)])
        of = frozenset(roles), frozenset(pids)
        self.harms.append(Harm(now_ns, STILL, self.detail, *of, model, instances))

    # ------------------------------------------------------------- processes

    def _choose(self, numbers: Sequence[int]) -> int:
        """Take one number of the chance, however many there are."""
        number = self._chance.random()
        return sorted(numbers)[int(number * len(numbers))] if numbers else 0

    def _pid(self, role: str) -> int:
        """Return a process of this role, a stub by its model; 0 if there is none."""
        if role == "stub":
            is_near, is_new = self._chance.random() < 0.7, self._chance.random() < 0.5
            models = self._steered if is_near and self._steered else self._models
            pids = self._server.stub_pids(models[int(self._chance.random() * len(models))])
            # the newest is the one that is loading, if any is
            return max(pids) if pids and is_new else self._choose(pids)
        return self._choose(self._server.pids().get(role) or [])

    def _note_process(self, role: str, pid: int) -> None:
        if role != "stub":
            self.note([role])
            return
        model = next((m for m in self._models if pid in self._server.stub_pids(m)), "")
        self.note([role], [pid], model)

    def _signal(self, role: str, pid: int, *numbers: int, pause_s: float = 0.0) -> None:
        names = ", ".join(signal.Signals(number).name for number in numbers)
        self.detail = f"{names} to {role} {pid}" + (f", {pause_s:.2f} s apart" * (len(numbers) > 1))
        if not pid:
            return
        self._note_process(role, pid)
        with suppress(ProcessLookupError):
            for turn, number in enumerate(numbers):
                if turn:
                    time.sleep(pause_s)
                os.kill(pid, number)

    def _signals(
        self, role: str, *numbers: int, pauses_s: Sequence[float] = (0.0,)
    ) -> Callable[[], None]:
        """Return what sends these to a process of the role, one of the pauses apart."""
        return lambda: self._signal(
            role, self._pid(role), *numbers, pause_s=self._chance.choice(pauses_s)
        )

    def _kill_supervisor(self) -> None:
        """Nothing may be left; then the server is started anew over the same files."""
        self.detail = f"SIGKILL to the supervisor {self._server.pids()['supervisor']}, a new start"
        self.note(["supervisor"])
        kill_whole(self._server)
        self.on_death()
        self._server.process = None
        self._server.start()

    # ------------------------------------------------- connections and calls

    def _break(self, how: Callable[[int, int], int]) -> None:
        role = self._chance.choice(_CONNECTED)
        broker, pid = self._pid("broker"), self._pid(role)
        self.detail = f"{how.__name__}{_TORN}{broker} and {role} {pid}"
        if broker and pid:
            # its process is replaced (R-43), and of a frontend with its clients' connections; the
            # broker if it loses another frontend at once
            if role != "stub" and any(h.ended_ns == STILL and _TORN in h.text for h in self.harms):
                self.note(["broker"])
            self._note_process(role, pid)
            with suppress(OSError):
                how(broker, pid)

    def _fail(self, *, lasts: bool) -> None:
        faults = [fault for fault in failing_calls.all_faults() if fault.lasts == lasts]
        fault = self._chance.choice(faults)
        pid = self._pid(fault.role)
        skip = self._chance.choice((0, 1, 5, 20))
        self.detail = f"{fault}, after {skip} calls, in {pid}"
        self.note([MACHINE, "http", "grpc", "broker"])
        self._calls.fail(pid, fault.call, fault.error, skip=skip, times=10**9 if lasts else 1)
        time.sleep(1.0 if lasts else 0.2)
        self._calls.stop()

    def _take_descriptors(self) -> None:
        role = self._chance.choice((*ROLES, "stub", "supervisor"))
        pid = self._pid(role)
        self.detail = f"no descriptors in {role} {pid}"
        self.note([MACHINE, "http", "grpc", "broker"])
        with suppress(psutil.Error, OSError):
            process = psutil.Process(pid)
            before = process.rlimit(resource.RLIMIT_NOFILE)
            used = max(map(int, os.listdir(f"/proc/{pid}/fd")))
            process.rlimit(resource.RLIMIT_NOFILE, (used + 1, before[1]))
            time.sleep(1.0)
            process.rlimit(resource.RLIMIT_NOFILE, before)

    def _starve(self) -> None:
        self.detail = "four busy processes for each core"
        self.note([MACHINE, "http", "grpc", "broker"])
        spinners = [
            subprocess.Popen([sys.executable, "-c", "while True: pass"])
            for _ in range(4 * (os.cpu_count() or 1))
        ]
        time.sleep(1.0)
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def _instances(pid: int) -> int:
    """Return how many instances are threads of a process; 0 for one that is an instance."""
    names = Path(f"/proc/{pid}/task").glob("*/comm")
    with suppress(OSError):
        return sum(name.read_text().startswith("stub ") for name in names) - 1
    return 0
