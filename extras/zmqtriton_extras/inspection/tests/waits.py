"""The longest waits of other models' clients while an operator debugs: a bench, in pairs.

`python -m zmqtriton_extras.inspection.tests.waits [--pairs N] [--seconds S]` serves two models,
puts load on one, and alternates turns in which the other stands in a debugger with turns in which
it does not. It prints the 99th percentile of each pair, and in how many pairs the debugged turn had
the longer one: of N pairs without an effect, half.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import click

from tests.standard.tools.advice.world import BODY, World, code_of
from tests.standard.tools.system import broken_models as broken
from tests.support.server import Server
from zmqtriton_extras.inspection.tests.operators import asked, operator

_CLIENTS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        own = [f"--runtime-directory={directory}/run"]
        server = Server(directory / "server", ["add_sub"], options=own, frontends=())
        World(server, "stops").write(broken.CONFIG, code_of(broken.executing("breakpoint()")))
        World(server, "serves").write(broken.CONFIG, code_of(broken.executing("pass")))
        with server:
            _compare(server, options.pairs, options.seconds)


def _compare(server: Server, pairs: int, seconds: float) -> None:
    differences = []
    for number in range(pairs):
        p99: dict[bool, float] = {}
        # which comes first changes, for a machine that becomes slower or faster
        for is_debugged in (True, False) if number % 2 else (False, True):
            p99[is_debugged] = _turn(server, seconds, is_debugged=is_debugged)
        differences.append(p99[True] - p99[False])
        click.echo(f"p99 {p99[False]:.2f} ms, while one is debugged {p99[True]:.2f} ms")
    longer = sum(one > 0 for one in differences)
    click.echo(
        f"longer while one is debugged in {longer} of {pairs} pairs, "
        f"by {statistics.median(differences):.2f} ms in the median"
    )


def _turn(server: Server, seconds: float, *, is_debugged: bool) -> float:
    """Return the 99th percentile in ms of requests to a model, while another stands or is idle."""
    request: AbstractContextManager[Any] = asked(server, "stops") if is_debugged else nullcontext()
    with request:
        if not is_debugged:
            return _p99(server, seconds)
        with operator(server, "stops", "--pdb") as terminal:
            terminal.wait_for("(Pdb)")
            p99 = _p99(server, seconds)
            terminal.type("continue")
            terminal.wait_for("The model goes on.")
        return p99


def _p99(server: Server, seconds: float) -> float:
    end_s = time.monotonic() + seconds
    waits: list[float] = []

    def ask() -> None:
        while (begun_s := time.monotonic()) < end_s:
            status, _ = server.request_json("/v2/models/serves/infer", BODY)
            assert status == 200
            waits.append(1000 * (time.monotonic() - begun_s))

    clients = [threading.Thread(target=ask) for _ in range(_CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    return statistics.quantiles(waits, n=100)[98]


if __name__ == "__main__":
    main()
