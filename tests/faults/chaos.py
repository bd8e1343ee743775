"""`make faults SEED=1 MINUTES=20`: random faults against every kind of load.

Deaths, stops, torn connections, failing system calls, no descriptors and a starved processor, in
an order that the seed decides. `ARGS=--only=broker` tries some of them, `--count=2000` as many,
`--pause=5` with as many seconds between two. Each request must have one right outcome, none may be
executed twice, and after each fault the server must be whole again; how long that took is printed.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.faults import failing_calls
from tests.faults.broker_death import use_instances
from tests.faults.mixed_clients import MODELS, Client, mixed_clients
from tests.support import leaks
from tests.support.failing import FailingCalls
from tests.support.foreign_sockets import confuse, tear
from tests.support.journal import executions
from tests.support.server import Server
from tests.support.waiting import eventually

_ROLES = ("broker", "http", "grpc", "metrics", "fork-server")
_WHOLE_WITHIN_S = 10.0
_ASKING = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self._ask(request) for request in requests]

    def _ask(self, request):
        asked = pb_utils.InferenceRequest(
            model_name="journal", requested_output_names=["ID"], inputs=request.inputs()
        )
        response = asked.exec()
        if response.has_error():
            return pb_utils.InferenceResponse(error=response.error())
        return pb_utils.InferenceResponse(output_tensors=response.output_tensors())
"""


class Recovery(NamedTuple):
    fault: str
    #: Until every kind of client was answered again.
    whole_ms: float


def make_server(directory: Path, calls: FailingCalls) -> Server:
    server = Server(
        directory,
        models=MODELS,
        environment=calls.environment,
        options=[
            *("--model-control-mode=explicit", "--load-model=*", "--http-workers=2"),
            f"--runtime-directory={directory / 'run'}",
        ],
    )
    use_instances(server)
    config = (server.repository / "journal" / "config.pbtxt").read_text()
    (server.repository / "asking" / "1").mkdir(parents=True)
    (server.repository / "asking" / "config.pbtxt").write_text(config)
    (server.repository / "asking" / "1" / "model.py").write_text(_ASKING)
    return server


class Nemesis:
    """Does harm to a running server."""

    def __init__(self, server: Server, calls: FailingCalls, chance: random.Random) -> None:
        self._server = server
        self._calls = calls
        self._chance = chance
        #: What the last fault was, exactly.
        self.detail = ""
        self.faults: dict[str, Callable[[], None]] = {
            "kill a stub": lambda: self._signal("stub", signal.SIGKILL),
            "stop a stub": lambda: self._signal("stub", signal.SIGSTOP),
            "tear a connection": lambda: self._break(tear),
            "strange bytes": lambda: self._break(confuse),
            "a failing call": lambda: self._fail(lasts=False),
            "failing calls for a second": lambda: self._fail(lasts=True),
            "no descriptors for a second": self._take_descriptors,
            "a starved processor for a second": _starve,
        }
        for role in _ROLES:
            self.faults[f"kill {role}"] = self._signals(role, signal.SIGKILL)
        for role in ("broker", "http", "grpc"):
            self.faults[f"stop {role}"] = self._signals(role, signal.SIGSTOP)

    def _signals(self, role: str, number: int) -> Callable[[], None]:
        return lambda: self._signal(role, number)

    def _pid(self, role: str) -> int:
        return self._chance.choice(sorted(self._server.pids().get(role) or [0]))

    def _signal(self, role: str, number: int) -> None:
        pid = self._pid(role)
        self.detail = f"signal {number} to {role} {pid}"
        if pid:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _break(self, how: Callable[[int, int], int]) -> None:
        broker, role = self._pid("broker"), self._chance.choice(("stub", "http", "grpc", "metrics"))
        pid = self._pid(role)
        self.detail = f"{how.__name__} between broker {broker} and {role} {pid}"
        with suppress(OSError):
            how(broker, pid)

    def _fail(self, *, lasts: bool) -> None:
        faults = [fault for fault in failing_calls.all_faults() if fault.lasts == lasts]
        fault = self._chance.choice(faults)
        pid = self._pid(fault.role)
        skip = self._chance.choice((0, 1, 5, 20))
        self.detail = f"{fault}, after {skip} calls, in {pid}"
        self._calls.fail(pid, fault.call, fault.error, skip=skip, times=10**9 if lasts else 1)
        time.sleep(1.0 if lasts else 0.2)
        self._calls.stop()

    def _take_descriptors(self) -> None:
        role = self._chance.choice((*_ROLES, "stub", "supervisor"))
        pid = self._pid(role)
        self.detail = f"no descriptors in {role} {pid}"
        with suppress(psutil.Error, OSError):
            process = psutil.Process(pid)
            before = process.rlimit(resource.RLIMIT_NOFILE)
            used = max(map(int, os.listdir(f"/proc/{pid}/fd")))
            process.rlimit(resource.RLIMIT_NOFILE, (used + 1, before[1]))
            time.sleep(1.0)
            process.rlimit(resource.RLIMIT_NOFILE, before)


def _starve() -> None:
    spinners = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(4 * (os.cpu_count() or 1))
    ]
    time.sleep(1.0)
    for spinner in spinners:
        spinner.kill()
        spinner.wait()


def _are_all_served(clients: Sequence[Client], since_ns: int) -> bool:
    return all(client.last_right_ns > since_ns for client in clients)


def _await_all(server: Server, clients: Sequence[Client], since_ns: int, fault: str) -> None:
    try:
        eventually(lambda: _are_all_served(clients, since_ns), 120, f"whole after: {fault}")
    except AssertionError:
        for client in clients:
            if client.last_right_ns <= since_ns:
                print(f"{client.prefix} is not served: {client.newest}", flush=True)
        for command in ("status", "stacks journal"):
            ctl = [sys.executable, "-m", "zmqtriton.ctl.main", "--runtime-directory"]
            ctl += [str(server.directory / "run"), *command.split()]
            subprocess.run(ctl, timeout=60, check=False)
        print(f"== log\n{server.log_text()[-20_000:]}", flush=True)
        raise


class Plan(NamedTuple):
    seed: int
    minutes: float
    #: Ends the run earlier.
    most: int = 1_000_000
    #: Faults whose name contains this.
    only: str = ""
    #: Between two faults, in seconds; some fraction of one if it is 0.
    pause_s: float = 0.0


def run(plan: Plan, directory: Path) -> int:
    """Run the faults; return how many promises were broken."""
    chance = random.Random(plan.seed)
    calls = FailingCalls(directory)
    recoveries: list[Recovery] = []
    with make_server(directory / "s", calls) as server:
        assert server.process is not None
        supervisor = server.process.pid
        nemesis = Nemesis(server, calls, chance)
        names = sorted(name for name in nemesis.faults if plan.only in name)
        with mixed_clients(server) as clients:
            begun_ns = time.monotonic_ns()
            _await_all(server, clients, begun_ns, "the start")
            sizes = _sizes(supervisor)
            deadline = time.monotonic() + 60 * plan.minutes
            while time.monotonic() < deadline and len(recoveries) < plan.most:
                name = chance.choice(names)
                nemesis.faults[name]()
                done_ns = time.monotonic_ns()
                _await_all(server, clients, done_ns, f"{name}: {nemesis.detail}")
                recoveries.append(Recovery(name, (time.monotonic_ns() - done_ns) / 1e6))
                time.sleep(plan.pause_s or chance.uniform(0.2, 1.0))
            print("supervisor:", sizes, "->", _sizes(supervisor))
        assert server.process.pid == supervisor
        broken = _judge(server, clients, recoveries)
        assert 0 == server.stop(60), "it ends in order"
    calls.close()
    return broken


def _sizes(pid: int) -> str:
    process = psutil.Process(pid)
    return f"{process.memory_info().rss >> 20} MiB, {process.num_fds()} descriptors"


def _judge(server: Server, clients: Sequence[Client], recoveries: Sequence[Recovery]) -> int:
    executed = executions(server.journal)
    allowed = {own_id: n for client in clients for own_id, n in client.executions_of.items()}
    twice = {own_id: n for own_id, n in executed.items() if n > allowed.get(own_id, 1)}
    wrong = [text for client in clients for text in client.wrong]
    outcomes: dict[str, Counter[str]] = {}
    for client in clients:
        outcomes.setdefault(type(client).__name__, Counter()).update(client.outcomes)
    for kind, counts in outcomes.items():
        print(f"{kind:16} {sum(counts.values()):8} requests: {dict(counts.most_common())}")
    print(f"{'fault':34} {'n':>4} {'min':>8} {'median':>8} {'p99':>8} {'max':>8} ms")
    for name in sorted({recovery.fault for recovery in recoveries}):
        times = sorted(r.whole_ms for r in recoveries if r.fault == name)
        p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
        median = statistics.median(times)
        print(f"{name:34} {len(times):4} {times[0]:8.0f} {median:8.0f} {p99:8.0f} {times[-1]:8.0f}")
    late = [r for r in recoveries if r.whole_ms > _WHOLE_WITHIN_S * 1000]
    print(f"{len(recoveries)} faults; executed twice: {twice or 'none'}; wrong: {wrong or 'none'}")
    print(f"not whole within {_WHOLE_WITHIN_S:.0f} s: {late or 'none'}", flush=True)
    return len(twice) + len(wrong) + len(late)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--count", type=int, default=Plan._field_defaults["most"])
    parser.add_argument("--only", default="")
    parser.add_argument("--pause", type=float, default=0.0)
    arguments = parser.parse_args()
    options = arguments.minutes, arguments.count, arguments.only, arguments.pause
    mark = leaks.mark_session()
    before = leaks.take_snapshot(mark)
    with tempfile.TemporaryDirectory() as directory:
        broken = run(Plan(arguments.seed, *options), Path(directory))
    left = leaks.find_leaks(before, mark)
    print("left behind:", left or "nothing")
    return 1 if left or broken else 0


if __name__ == "__main__":
    sys.exit(main())
