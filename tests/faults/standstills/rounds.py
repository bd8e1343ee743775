"""All that could make a server's loops wait, at once.

Nobody reads its log, which is verbose. The files of a repository take 300 ms, then 8 s, for each
open, stat and listing, while models of it load. Clients send configurations that take long to read,
and parts of messages that are announced as too large; a model prints a kilobyte for each request.
Meanwhile a process of another model and the broker are killed, an operator asks for the status, and
honest clients have their answers; in the midst of it the server is told to end.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.faults.attacks.watching import Machine, honest_clients, percentiles
from tests.faults.figures import print_figure
from tests.faults.mixed_clients import RIGHT, Ask, GrpcClient, HttpClient
from tests.faults.standstills.hostile import CONFIGURED, KINDS, PRINTING
from tests.standard.ctl.system.commands import ctl
from tests.support.scripted import add_model
from tests.support.server import MODELS_DIRECTORY, Server, ask_add_sub
from tests.support.slow_files import SlowFiles
from tests.support.waiting import eventually
from tests.support.waits.full_pipe import FullPipe

#: How many servers are tried.
COUNT = 3
DELAYS_S = (0.3, 8.0)
_SLOW_MODELS = ("slow_0", "slow_1")
_HONEST = ((HttpClient, 4), (GrpcClient, 4))
_PAUSE_S = 0.1
#: How long honest clients are measured, alone and beside.
_MEASURED_S = 10.0
#: A server takes an instance that dies more often for one that cannot work.
_REST_S = 2.5
_TIMEOUT_S = 30
#: In milliseconds; of waits, times those that clients have alone.
BOUNDS = {
    "stub of another model killed: answers after": 1000.0,
    "broker killed: answers after": 2000.0,
    "zmqtriton-ctl status answers after": 1000.0,
    "SIGTERM ends the server after": _TIMEOUT_S * 1000.0,
}
_RATIO = 3.0

Figures = dict[str, list[float]]


class Round:
    """One server, from its start to its end."""

    def __init__(self, server: Server, slow: SlowFiles, figures: Figures) -> None:
        self._server = server
        self._slow = slow
        self._figures = figures
        self._is_over = threading.Event()
        self.broken: list[str] = []

    def run(self) -> None:
        server = self._server
        with honest_clients(server, {}, _HONEST, _PAUSE_S) as asks, Machine() as machine:
            alone = self._wait(asks, "alone", machine)
            with self._harm():
                for delay_s in DELAYS_S:
                    self._slow.delay(delay_s)
                    self._slow.await_call()
                    self._beside(asks, f"{delay_s} s a call", machine, alone)
                self._print_turns()
                self._measure("SIGTERM ends the server after", self._stop)

    def _beside(
        self, asks: list[Ask], name: str, machine: Machine, alone: dict[str, float]
    ) -> None:
        for kind, p99 in self._wait(asks, name, machine).items():
            figure = f"p99 of {kind} beside, {name}: times that alone"
            self._figures[figure].append(p99 / alone[kind])
        for role, words in (("stub", "stub of another model"), ("broker", "broker")):
            self._measure(f"{words} killed: answers after", partial(self._kill, role))
            time.sleep(_REST_S)
        self._measure("zmqtriton-ctl status answers after", self._ask_status)

    def _wait(self, asks: list[Ask], name: str, machine: Machine) -> dict[str, float]:
        """Let honest clients ask for a while; return their p99 in milliseconds."""
        begun = time.monotonic()
        time.sleep(_MEASURED_S)
        end = time.monotonic()
        own = [ask for ask in [*asks] if begun <= ask.begun < end]
        late_ms = machine.longest_ms(begun, end)
        p99 = {}
        for kind, _ in _HONEST:
            waits = [ask.wait_s for ask in own if ask.kind is kind]
            p50, p99[kind.__name__], longest = percentiles(waits)
            print(
                f"  {name:14} {kind.__name__:12} p50 {p50:6.1f} p99 {p99[kind.__name__]:7.1f} "
                f"max {longest:7.1f} ms of {len(waits)}; the machine was {late_ms:.0f} ms late",
                flush=True,
            )
        wrong = {ask.outcome for ask in own if ask.outcome != RIGHT}
        self.broken += [f"{name}: an honest client was told {outcome!r}" for outcome in wrong]
        return p99

    def _measure(self, name: str, act: Callable[[], None]) -> None:
        begun = time.monotonic()
        act()
        self._figures[name].append((time.monotonic() - begun) * 1000)

    def _kill(self, role: str) -> None:
        server = self._server
        [pid] = server.stub_pids("add_sub") if role == "stub" else server.pids()[role]
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: ask_add_sub(server) == 200, 120, f"answers after the end of a {role}")

    def _ask_status(self) -> None:
        if ctl(self._server, "status").exit_code:
            self.broken.append("zmqtriton-ctl status has failed")

    def _stop(self) -> None:
        if self._server.stop(4 * _TIMEOUT_S):
            self.broken.append(f"the server ends with {self._server.returncode}")

    def _print_turns(self) -> None:
        """Print the longest turn of each process, which the unread log does not tell."""
        _, status = self._server.request_json("/v2/zmqtriton/status")
        for process in status["processes"]:
            turn: dict[str, Any] | None = process.get("longest_turn")
            if turn is not None:
                times = ", ".join(
                    f"{name} {turn[name]:.3f}" for name in ("cpu_s", "stood_s", "waited_s")
                )
                print(f"  longest turn of {process['role']:10} {times}: {turn['place'][:400]}")

    @contextmanager
    def _harm(self) -> Iterator[None]:
        """Have hostile clients and loads of slow files during the block."""
        server = self._server
        ports = str(server.http_port), str(server.grpc_port)
        module = "tests.faults.standstills.hostile"
        with ExitStack() as stack:
            for kind in KINDS:
                process = subprocess.Popen([sys.executable, "-m", module, kind, *ports])
                stack.enter_context(process)
                stack.callback(process.kill)
            loads = stack.enter_context(ThreadPoolExecutor())
            stack.callback(self._is_over.set)
            for name in _SLOW_MODELS:
                loads.submit(self._load, name)
            yield

    def _load(self, model: str) -> None:
        for verb in itertools.cycle(("load", "unload")):
            if self._is_over.wait(0.05):
                return
            # the server ends, or takes longer than we wait
            with suppress(OSError):
                self._server.control_model(verb, model)


def _make_server(folder: Path, slow: SlowFiles, pipe: FullPipe) -> Server:
    options = [
        "--model-control-mode=explicit",
        "--log-verbose=1",
        f"--exit-timeout-secs={_TIMEOUT_S}",
        *(f"--load-model={name}" for name in ("add_sub", "journal", "identity_fp32", PRINTING)),
        f"--model-repository={slow.place}",
        f"--runtime-directory={folder}/run",
        "--client-memory-byte-size=268435456",
    ]
    server = Server(folder / "s", ["add_sub", "journal"], options=options)
    server.add_model("identity_fp32")
    add_model(server, "scripted", PRINTING)
    server.add_model("add_sub", CONFIGURED)
    server.output = pipe.writing
    return server


def run(rounds: int) -> list[str]:
    """Print the figures; return the promises that were broken."""
    figures: Figures = defaultdict(list)
    broken: list[str] = []
    for number in range(rounds):
        print(f"round {number + 1}", flush=True)
        with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
            folder = Path(directory)
            for name in _SLOW_MODELS:
                shutil.copytree(MODELS_DIRECTORY / "add_sub", folder / "source" / name)
            try:
                slow = stack.enter_context(SlowFiles(folder / "source", folder / "slow"))
            except pytest.skip.Exception as reason:
                print(f"standstills are not tried: {reason}")
                return []
            with _make_server(folder, slow, stack.enter_context(FullPipe())) as server:
                one = Round(server, slow, figures)
                one.run()
                broken += one.broken
    for name, values in figures.items():
        unit = "ms" if name in BOUNDS else "  "
        if not print_figure(name, values, BOUNDS.get(name, _RATIO), unit):
            broken.append(f"missed: {name}")
    return broken
