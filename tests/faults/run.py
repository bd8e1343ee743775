"""`make faults`: kills what can be killed, 20 rounds each, and prints medians and maxima.

Then many streams and many cancelled calls over gRPC. What must hold in each round is asserted; how
long it took is printed, beside its bound.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tests.faults import deaths, grpc_load, overload
from tests.faults.figures import leaving_nothing, print_figure
from tests.faults.load import Load
from tests.faults.standstills import rounds as standstills
from tests.support.scripted import extend_config, string_parameter
from tests.support.tools import parse_options, serving

#: One that dies sooner has not worked, and is not started at once.
_PAUSE_S = 1.5


def _rounds(
    count: int, pause_s: float, bounds: dict[str, float], act: Callable[[], Sequence[float]]
) -> None:
    """Do it so often with pauses; print its figures, which are milliseconds, beside the bounds."""
    rows = []
    for _ in range(count):
        rows.append(act())
        time.sleep(pause_s)
    for (name, bound), values in zip(bounds.items(), zip(*rows, strict=True), strict=True):
        print_figure(name, values, bound)


def _stub_deaths(
    rounds: int, clients: int, pause_s: float, name: str, instances: str = "processes"
) -> None:
    # The model's own initialize is a few milliseconds; what loading costs is counted in.
    bounds = {f"stub killed, {name}: error after": 200.0}
    bounds[f"stub killed, {name}: executing again after"] = 1000.0
    kills = 0

    def kill() -> Sequence[float]:
        nonlocal kills
        death = None
        while death is None:
            kills += 1
            death = deaths.kill_stub(server, load)
            # Below the rate at which an instance counts as a crash loop.
            time.sleep(deaths.PAUSE_S)
        return death

    parameter = string_parameter("INSTANCES", instances)
    with serving(
        ["journal"], prepare=lambda server: extend_config(server, "journal", parameter)
    ) as server:
        with Load(
            server.http_port, clients=clients, milliseconds=deaths.EXECUTION_MS, pause_s=pause_s
        ) as load:
            _rounds(rounds, 0.0, bounds, kill)
        deaths.check_stubs(server, load, rounds, kills)


def _template_deaths(rounds: int) -> None:
    bounds = {
        f"template killed, {moment}: what was asked done after": 2000.0
        for moment in deaths.TEMPLATE_MOMENTS
    }
    with (
        serving(["journal"], options=deaths.TEMPLATE_OPTIONS, prepare=deaths.use_forks) as server,
        deaths.template_kills(server) as kill,
    ):
        _rounds(rounds, 0.0, bounds, kill)


def _supervisor_deaths(rounds: int) -> None:
    def kill() -> Sequence[float]:
        with tempfile.TemporaryDirectory() as folder:
            return deaths.kill_supervisor(Path(folder))

    bounds = {
        "supervisor killed under load: everything gone after": 2000.0,
        "supervisor killed under load: a new start ready after": 60_000.0,
    }
    _rounds(rounds, 0.0, bounds, kill)


def _broker_deaths(rounds: int) -> None:
    bounds = {
        "broker killed: answering again after": 1000.0,
        "broker killed: not ready after": 500.0,
        "broker killed: ready again after": 1000.0,
    }
    with serving(["journal"], prepare=deaths.use_instances) as server:
        stubs = server.stub_pids("journal")
        with deaths.mixed_load(server) as loads:
            _rounds(rounds, _PAUSE_S, bounds, lambda: deaths.kill_broker(server, loads))
        failed = deaths.check_broker(server, loads, stubs, rounds)
    count = len(deaths.answers_of(loads))
    print(f"broker killed: {failed} of {count} requests failed, all while executing")


def _frontend_deaths(rounds: int) -> None:
    kinds = (
        ("http process", deaths.http_worker_pid, 1000.0),
        ("http arbiter", deaths.http_arbiter_pid, 3000.0),
    )
    with serving(["journal"]) as server:
        for name, choose, bound in kinds:
            with Load(server.http_port, clients=4, milliseconds=20) as load:
                kill = partial(deaths.kill_http, server, load, choose)
                bounds = {f"{name} killed: answering again after": bound}
                _rounds(rounds, _PAUSE_S, bounds, lambda kill=kill: (kill(),))  # type: ignore[misc]
            deaths.check_http(server, load, len(load.answers))
        bounds = {"grpc process killed: answering again after": 1000.0}
        _rounds(rounds, _PAUSE_S, bounds, lambda: (deaths.kill_grpc(server),))


def _grpc_load() -> None:
    with serving(grpc_load.MODELS) as server:
        seconds = grpc_load.run_streams(server)
        print(f"{grpc_load.STREAMS} streams of {grpc_load.RESPONSES}: {seconds:.1f} s")
        alone, beside = grpc_load.run_streams_beside_stalled(server)
        print(f"{grpc_load.READERS} streams, one not read: {beside:.1f} s, else {alone:.1f} s")
        ends = grpc_load.cancel_many(server)
        print(f"calls cancelled at any instant, nothing left: {dict(ends)}", flush=True)


def _all_stub_deaths(rounds: int) -> None:
    _stub_deaths(rounds, 1, deaths.EXECUTION_MS / 1000, "half load")
    _stub_deaths(rounds, 8, 0.0, "full load")
    for kind in ("forks", "threads"):
        _stub_deaths(rounds, 8, 0.0, f"full load, {kind}", kind)


def _standstills() -> None:
    # to fill what is free takes the frontends longer than all else that they do here
    os.environ.pop("ZT_POISON", None)
    print("\n".join(standstills.run(standstills.COUNT)))


_PARTS: dict[str, Callable[[int], None]] = {
    "stubs": _all_stub_deaths,
    "templates": _template_deaths,
    "broker": _broker_deaths,
    "frontends": _frontend_deaths,
    "supervisor": _supervisor_deaths,
    "grpc": lambda _: _grpc_load(),
    "overload": lambda _: overload.run(60.0),
    "standstills": lambda _: _standstills(),
}


def main() -> int:
    options = parse_options(
        rounds=(20, "of each kind of death"), only=("", "parts whose names hold this")
    )
    with leaving_nothing() as broken:
        for name, part in _PARTS.items():
            if options.only in name:
                part(options.rounds)
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
