"""Measures what many cores add: the broker's ceiling, frontends, spinning, compiled modules.

    python -m tests.bench.many_cores [--minutes 4] [--only frontends] [--compiled FOLDER]
        [--triton COMMAND] [--json many_cores.json]

Eight instances of a model that gives back its input. Rows come in the order in which they are
wanted, each of as many seconds as the minutes allow. FOLDER is made by tests.bench.compiling, and
COMMAND starts a tritonserver, as for tests/conformance/record.py. Each role's share of a core shows
what is full: a broker at 100 % is the ceiling, or else the clients are. Measures and prints;
asserts nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tests.bench import clients, cpu, results
from tests.bench.peers import triton
from tests.support import leaks
from tests.support.server import MODELS_DIRECTORY, ROOT, Copy
from tests.support.tools import parse_options, serving
from zmqtriton_extras.bench.clients import Clients
from zmqtriton_extras.bench.results import percentile

_INSTANCES, _FRONTENDS, _SPINS_US = 8, (1, 2, 4), (0, 20, 50, 200)
_LOADS, _SPUN_LOADS = (8, 32, 128, 512), (1, 8)
_MODEL = Copy("identity_fp32", edit=("count: 1", f"count: {_INSTANCES}"))
_MAKE_PLAN = {"http": clients.http_binary, "grpc": clients.grpc_unary}
_WARM_S, _START_S = 1.0, 4.0
_CORES = psutil.cpu_count() or 2
#: The ports of a server by protocol, and what reads its CPU.
_Place = tuple[Mapping[str, int], Callable[[], Mapping[str, float]]]


class Part(NamedTuple):
    """A server, its loads, and the row of it that the CPU at rest is measured for, if any."""

    name: str
    place: Callable[[], AbstractContextManager[_Place]]
    #: Protocol and number of clients.
    loads: Sequence[tuple[str, int]]
    rests: bool = False


def seconds_of_row(minutes: float, rows: int, servers: int) -> float:
    """Divide minutes among rows, which are of one second at least and five at most."""
    left_s = 60 * minutes - _START_S * servers
    return min(5.0, max(1.0, left_s / max(1, rows) - _WARM_S))


@contextmanager
def _ours(options: Sequence[str], variables: Mapping[str, str] = {}) -> Iterator[_Place]:
    with serving([_MODEL], options=options, environment=variables) as server:
        ports = {"http": server.http_port, "grpc": server.grpc_port}
        yield ports, partial(cpu.by_role, server)


@contextmanager
def _tritons(command: str) -> Iterator[_Place]:
    with tempfile.TemporaryDirectory() as folder:
        source, target = MODELS_DIRECTORY / "identity_fp32", Path(folder) / "models/identity_fp32"
        (target / "1").mkdir(parents=True)
        config, text = (source / "config.pbtxt").read_text("utf-8"), _MODEL.edit
        (target / "config.pbtxt").write_text(config.replace(*text))
        (target / "1" / "model.py").write_bytes((source / "1" / "model.py").read_bytes())
        with triton(command, target.parent) as (port, pid):
            yield {"http": port}, partial(cpu.of_trees, [pid])


def _measure(place: _Place, protocol: str, count: int, seconds: float) -> dict[str, Any]:
    ports, read = place
    plan = _MAKE_PLAN[protocol](ports[protocol])
    # the server's processes have the other half of the cores
    with Clients(min(count, max(1, _CORES // 2))) as own:
        got, before, after = own.measure(plan, count, seconds=seconds, read=read)
    latencies, answered = sorted(got.latencies) or [0], max(1, len(got.latencies))
    spent = {role: after[role] - before.get(role, 0.0) for role in after}
    return {
        "protocol": protocol,
        "clients": count,
        "failed": got.failures.total(),
        "per_s": answered / got.seconds,
        "p50_ms": percentile(latencies, 50) / 1e3,
        "p99_ms": percentile(latencies, 99) / 1e3,
        "cpu_us": {role: 1e6 * s / answered for role, s in spent.items()},
        "cores": {role: s / got.seconds for role, s in spent.items()},
        "client_cores": got.client_cores,
    }


def _at_rest(place: _Place, seconds: float) -> dict[str, Any]:
    """Return the cores that a server takes when nobody asks."""
    before = place[1]()
    time.sleep(seconds)
    after = place[1]()
    return {"cores": {role: (after[role] - before.get(role, 0.0)) / seconds for role in after}}


def _line(name: str, row: Mapping[str, Any]) -> str:
    """Return a row of a table in Markdown."""
    spent = sorted(row["cores"].items(), key=lambda each: -each[1])
    if "per_s" not in row:
        words = ", ".join(f"{role} {cores:.1%}" for role, cores in spent if cores > 0.001)
        return f"| {name} | at rest | | | | | {words} | |"
    words = ", ".join(
        f"{role} {row['cpu_us'][role]:.0f} ({cores:.0%})" for role, cores in spent if cores > 0.01
    )
    figures = f"{row['per_s']:.0f} | {row['p50_ms']:.2f} | {row['p99_ms']:.2f}"
    busy = f"{row['client_cores']:.0%}" + (f", {row['failed']} failed" if row["failed"] else "")
    return f"| {name} | {row['protocol']} | {row['clients']} | {figures} | {words} | {busy} |"


def _broker_alone(name: str, seconds: float, variables: Mapping[str, str]) -> None:
    """Print the requests that a broker carries for peers that are played to it."""
    print(f"\nthe broker alone, {name}:", flush=True)
    words = ["--frontends", "4", "--stubs", str(_INSTANCES), "--clients", *map(str, _LOADS)]
    command = [sys.executable, "-m", "tools.broker_driver", *words, "--rounds=3"]
    command += [f"--seconds={seconds / 3:.2f}"]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, check=False)


def _build_spinning(folder: Path) -> str:
    """Compile what spins, and return its path; "" without a compiler."""
    source, target = Path(__file__).with_name("spinning.c"), folder / "spinning.so"
    command = ["gcc", "-shared", "-fPIC", "-O2", "-o", str(target), str(source), "-ldl"]
    try:
        subprocess.run(command, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"left out: spinning: {error}", flush=True)
        return ""
    return str(target)


def _parts(options: Any, folder: Path) -> Iterator[Part]:
    """Yield what is wanted most first."""
    both = [(protocol, count) for protocol in _MAKE_PLAN for count in _LOADS]
    http = both[: len(_LOADS)]
    for count in _FRONTENDS:
        words = [f"--http-workers={count}", f"--grpc-processes={count}"]
        yield Part(f"frontends {count}", partial(_ours, words), both)
    two = ["--http-workers=2", "--grpc-processes=2"]
    spinning = _build_spinning(folder)
    for spin_us in _SPINS_US if spinning else ():
        variables = {"LD_PRELOAD": spinning, "SPIN_US": str(spin_us)}
        loads = [("http", count) for count in _SPUN_LOADS]
        yield Part(f"spinning {spin_us} us", partial(_ours, two, variables), loads, rests=True)
    if options.compiled:
        yield Part("compiled", partial(_ours, two, {"PYTHONPATH": options.compiled}), both)
    if options.triton:
        yield Part("Triton", partial(_tritons, options.triton), http)


def main() -> int:
    options = parse_options(
        __doc__,
        minutes=(4.0, "for all"),
        only=("", "parts whose name holds this"),
        compiled=("", "a folder with compiled modules"),
        triton=("", "what starts a tritonserver"),
        json=("many_cores.json", "the file of all figures"),
    )
    leaks.mark_session()
    options.compiled = options.compiled and os.path.abspath(options.compiled)
    begun_s, rows = time.monotonic(), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder:
        parts = [each for each in _parts(options, Path(folder)) if options.only in each.name]
        brokers = {"pure": {}, "compiled": {"PYTHONPATH": options.compiled}}
        brokers = {name: brokers[name] for name in brokers if options.compiled or name == "pure"}
        brokers = brokers if options.only in "broker" else {}
        count = sum(len(part.loads) + part.rests for part in parts) + len(_LOADS) * len(brokers)
        seconds = seconds_of_row(options.minutes, count, len(parts))
        print(f"{results.machine()}\n{count} rows of {seconds:.1f} s", flush=True)
        for name, variables in brokers.items():
            _broker_alone(name, seconds, variables)
        print("\n| server | protocol | clients | per s | p50 ms | p99 ms |", end="")
        print(" CPU us by role (cores) | busiest client |\n|---|---|---|---|---|---|---|---|")
        for part in parts:
            if time.monotonic() - begun_s > 60 * options.minutes:
                print(f"left out, no time is left: {part.name}", flush=True)
                continue
            with part.place() as place:
                steps = [partial(_measure, place, *load, seconds) for load in part.loads]
                for step in [*steps, *[partial(_at_rest, place, seconds)] * part.rests]:
                    rows.append({"part": part.name, **step()})
                    print(_line(part.name, rows[-1]), flush=True)
                    document = {"machine": results.machine(), "rows": rows}
                    Path(options.json).write_text(json.dumps(document, indent=1), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
