"""What each process of the server does for one plain request, counted.

    python -m tests.bench.calls [--list broker]

These are the Python functions that it enters, the attributes that it reads or writes, and the
objects that it makes (counting.py). A count is the same on every machine, so a test holds it; a
time is not.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench import clients, counting
from tests.support.server import Server
from tests.support.tools import parse_options
from tests.support.waiting import eventually
from zmqtriton_extras.bench.connections import make_connection

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
_ROUNDS, _REQUESTS = 4, 25
#: Calls, look-ups and objects, by function.
Counts = dict[str, list[float]]
#: Looks at how long the loop's turns took: by the clock, thus more of them the slower a machine is.
_BY_THE_CLOCK = "/loop_turns.py:"


def totals(counts: Counts) -> list[float]:
    """Return calls, look-ups and objects of all functions."""
    return [sum(column) for column in zip(*counts.values(), strict=True)]


class Counter:
    """A server whose processes count, and the counts of each role per request."""

    def __init__(self, server: Server, directory: Path) -> None:
        self.server = server
        self._directory = directory
        pids = server.pids()
        self._pids = {role: pids[role][-1] for role in ROLES}

    def count(self, kind: str) -> dict[str, Counts]:
        """Return the counts of a request, by role and function."""
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
            role: min((counts[role] for counts in rounds), key=lambda counts: totals(counts)[0])
            for role in ROLES
            if role in (protocol, "broker", "stub")
        }
        # what else runs by the clock is in there, too, and rounds to nothing
        return {
            role: {name: [n / _REQUESTS for n in each] for name, each in counts.items()}
            for role, counts in fewest.items()
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

    def _collect(self) -> dict[str, Counts]:
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
    shutil.copy(counting.__file__, directory / "sitecustomize.py")
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
            print(f"{'functions, look-ups, objects':28}{'frontend':20}{'broker':20}stub")
        for kind in KINDS:
            if arguments.only not in kind:
                continue
            counts = counter.count(kind)
            sums = [totals(each) for each in counts.values()]
            if arguments.json:
                print(json.dumps([kind, [sums, [*counts[KINDS[kind][1]]]]]))
                continue
            columns = ["".join(f"{n:6.1f}" for n in each) for each in sums]
            print(f"{kind:26}" + "  ".join(columns), flush=True)
            for name, each in sorted(counts.get(arguments.list, {}).items()):
                if max(each) >= 0.05:
                    row = "".join(f"{n:7.2f}" for n in each)
                    print(f"    {row}  {name.rpartition('/zmqtriton')[2]}")


if __name__ == "__main__":
    main()
