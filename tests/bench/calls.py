"""Python functions that each process of the server calls for one plain request, counted.

    python -m tests.bench.calls [--list broker]

A count is the same on every machine, so a test holds it; a time is not. Each process gets a
`sitecustomize` that counts between two signals.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench import clients
from tests.support.server import Server
from tests.support.tools import parse_options
from tests.support.waiting import eventually
from zmqtriton_extras.bench.connections import make_connection

COUNTING = """
import json, os, signal, sys
counts = {}
def profile(frame, event, argument):
    if event == "call":
        code = frame.f_code
        counts[code] = counts.get(code, 0) + 1
def begin(number, frame):
    counts.clear()
    sys.setprofile(profile)
def end(number, frame):
    sys.setprofile(None)
    named = {}
    for code, count in counts.items():
        if code not in (end.__code__, begin.__code__):
            name = f"{code.co_filename}:{code.co_qualname if hasattr(code, 'co_qualname') else code.co_name}"
            named[name] = named.get(name, 0) + count
    path = os.path.join(os.environ["ZT_CALLS"], str(os.getpid()))
    with open(path + ".new", "w") as file:
        json.dump(named, file)
    os.rename(path + ".new", path)
signal.signal(signal.SIGRTMIN, begin)
signal.signal(signal.SIGRTMIN + 1, end)
"""  # noqa: E501
ROLES = ("http", "grpc", "broker", "stub")
KINDS: dict[str, tuple[clients.MakePlan, str]] = {
    "http binary": (clients.http_binary, "http"),
    "http json": (clients.http_json, "http"),
    "grpc unary": (clients.grpc_unary, "grpc"),
    "grpc stream": (clients.grpc_stream, "grpc"),
    "http binary 600 KB": (functools.partial(clients.http_binary, floats=150_528), "http"),
    "grpc 600 KB": (functools.partial(clients.grpc_unary, floats=150_528), "grpc"),
    "shared memory 600 KB": (clients.http_shared, "http"),
    "grpc shared memory 600 KB": (clients.grpc_shared, "grpc"),
}
_WARM = 300
#: Of the rounds that one counts in which the machine had the least to do elsewhere: a process that
#: comes late wakes more often than a request needs.
_ROUNDS, _REQUESTS = 8, 50
#: Looks at how long the loop's turns took: by the clock, thus more of them the slower a machine is.
_BY_THE_CLOCK = "/loop_turns.py:"


class Counter:
    """A server whose processes count, and the counts of each role per request."""

    def __init__(self, server: Server, directory: Path) -> None:
        self.server = server
        self._directory = directory
        pids = server.pids()
        self._pids = {role: pids[role][-1] for role in ROLES}

    def count(self, kind: str) -> dict[str, dict[str, float]]:
        """Return calls per request, by role and function."""
        make_plan, protocol = KINDS[kind]
        server = self.server
        port = server.http_port if protocol == "http" else server.grpc_port
        connection = make_connection(make_plan(port))
        for _ in range(_WARM):
            connection.ask()
        rounds = []
        for _ in range(_ROUNDS):
            self._signal(signal.SIGRTMIN)
            for _ in range(_REQUESTS):
                connection.ask()
            rounds.append(self._collect())
        connection.close()
        fewest = {
            role: min((counts[role] for counts in rounds), key=lambda calls: sum(calls.values()))
            for role in ROLES
            if role in (protocol, "broker", "stub")
        }
        # what else runs by the clock is in there, too, and rounds to nothing
        return {
            role: {name: count / _REQUESTS for name, count in calls.items()}
            for role, calls in fewest.items()
        }

    def entered(self, role: str, ask: Callable[[], object]) -> list[list[str]]:
        """Return the functions that each process of a role enters for a request, in order."""
        ask()
        self._pids = {str(pid): pid for pid in self.server.pids()[role]}
        self._signal(signal.SIGRTMIN)
        ask()
        return [[*counts] for counts in self._collect().values()]

    def _signal(self, number: int) -> None:
        for pid in self._pids.values():
            os.kill(pid, number)

    def _collect(self) -> dict[str, dict[str, int]]:
        paths = {role: self._directory / str(pid) for role, pid in self._pids.items()}
        for path in paths.values():
            path.unlink(missing_ok=True)
        self._signal(signal.SIGRTMIN + 1)
        counts = {}
        for role, path in paths.items():
            eventually(path.exists, 30, f"the counts of {role}")
            counted = json.loads(path.read_text())
            counts[role] = {name: n for name, n in counted.items() if _BY_THE_CLOCK not in name}
        return counts


@contextlib.contextmanager
def counting_server(directory: Path, *models: str) -> Iterator[Counter]:
    counts = directory / "counts"
    counts.mkdir()
    (directory / "sitecustomize.py").write_text(COUNTING)
    path = os.pathsep.join([str(directory), *filter(None, [os.environ.get("PYTHONPATH")])])
    server = Server(
        directory / "s",
        models=models or ["identity_fp32"],
        # a request that is no job pays nothing for them
        options=["--jobs"],
        environment={"PYTHONPATH": path, "ZT_CALLS": str(counts)},
    )
    with server:
        yield Counter(server, counts)


def main() -> None:
    arguments = parse_options(
        __doc__,
        list=("", "show the functions of this role"),
        only=("", "kinds of requests whose name holds this"),
        json=(False, "print totals and functions of the frontend, a line for each kind"),
    )
    with (
        tempfile.TemporaryDirectory(prefix="calls") as directory,
        counting_server(Path(directory)) as counter,
    ):
        if not arguments.json:
            print(f"{'Python calls per request':24} frontend  broker    stub")
        for kind in KINDS:
            if arguments.only not in kind:
                continue
            counts = counter.count(kind)
            totals = [sum(calls.values()) for calls in counts.values()]
            if arguments.json:
                print(json.dumps([kind, [totals, [*counts[KINDS[kind][1]]]]]))
                continue
            print(f"{kind:24}" + "".join(f"{total:8.1f}" for total in totals), flush=True)
            for name, count in sorted(counts.get(arguments.list, {}).items()):
                if count >= 0.05:
                    print(f"    {count:6.2f}  {name.rpartition('/zmqtriton')[2]}")


if __name__ == "__main__":
    main()
