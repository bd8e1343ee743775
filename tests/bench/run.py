"""`make bench`: requests of several sizes, and the CPU that each role of the server spends on one.

Measures and prints; asserts nothing. CPU seconds are steadier than rates on a busy machine.
`make bench ARGS=--save` keeps the figures in tests/bench/results, with machine and commit, so that
they can be found again; each run prints the ratio to the last figures that were saved.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.bench import clients, cpu, instances, results
from tests.support import leaks
from tests.support.server import ROOT, Server, free_ports
from tests.support.tools import parse_options, serving

WORKLOADS: dict[str, tuple[clients.MakePlan, str, tuple[int, ...]]] = {
    "http json 16 x FP32": (clients.http_json, "http", (1, 8, 32)),
    "http binary 16 x FP32": (clients.http_binary, "http", (1, 8, 32)),
    "grpc 16 x FP32": (clients.grpc_unary, "grpc", (1, 8, 32)),
    "grpc stream 16 x FP32": (clients.grpc_stream, "grpc", (1, 8, 32)),
    "websocket 16 x FP32": (clients.web_socket, "http", (1, 8, 32)),
    "jobs 16 x FP32": (clients.jobs, "http", (1, 8, 32)),
    "python 16 x FP32": (clients.python, "http", (1, 8, 32)),
    "door 16 x FP32": (clients.door, "http", (1, 8, 32)),
    "door 100 tokens": (clients.door_tokens, "http", (1, 8)),
    "bound http 16 x FP32": (
        functools.partial(clients.http_binary, model="bound"),
        "http",
        (1, 8, 32),
    ),
    "bound grpc 16 x FP32": (
        functools.partial(clients.grpc_unary, model="bound"),
        "grpc",
        (1, 8, 32),
    ),
    "http binary 600 KB": (functools.partial(clients.http_binary, floats=150_528), "http", (1, 4)),
    "http binary 4 MB": (functools.partial(clients.http_binary, floats=1 << 20), "http", (1, 4)),
    "http binary 16 MB": (functools.partial(clients.http_binary, floats=1 << 22), "http", (1, 4)),
    "shared memory 600 KB": (clients.http_shared, "http", (1, 4)),
    "shared memory 4 MB": (functools.partial(clients.http_shared, floats=1 << 20), "http", (1, 4)),
    "shared memory 16 MB": (functools.partial(clients.http_shared, floats=1 << 22), "http", (1, 4)),
    "grpc shared memory 600 KB": (clients.grpc_shared, "grpc", (1, 4)),
    "grpc shared memory 4 MB": (
        functools.partial(clients.grpc_shared, floats=1 << 20),
        "grpc",
        (1, 4),
    ),
    "grpc shared memory 16 MB": (
        functools.partial(clients.grpc_shared, floats=1 << 22),
        "grpc",
        (1, 4),
    ),
    "python 600 KB": (functools.partial(clients.python, floats=150_528), "http", (1, 4)),
    "python 16 MB": (functools.partial(clients.python, floats=1 << 22), "http", (1, 4)),
    "door 600 KB": (functools.partial(clients.door, floats=150_528), "http", (1, 4)),
    "door 16 MB": (functools.partial(clients.door, floats=1 << 22), "http", (1, 4)),
    "grpc 600 KB": (functools.partial(clients.grpc_unary, floats=150_528), "grpc", (1, 4)),
    "grpc 4 MB": (functools.partial(clients.grpc_unary, floats=1 << 20), "grpc", (1, 4)),
    "grpc 16 MB": (functools.partial(clients.grpc_unary, floats=1 << 22), "grpc", (1, 4)),
}


def _cpu(server: Server, binder: int) -> dict[str, float]:
    """Return the CPU by role; the process that has bound a model is in the place of its stub."""
    spent = cpu.by_role(server)
    return {**spent, "stub": spent.get("stub", 0.0) + cpu.of_process(binder)}


@contextmanager
def _beside(module: str, port: int) -> Iterator[int]:
    """Run a program of this folder for a port, until its input ends; yield its process."""
    command, pipe = [sys.executable, "-m", f"tests.bench.{module}", str(port)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "serves\n"
        yield process.pid


def _print_echo_server(make_plan: clients.MakePlan, connections: int, seconds: float) -> None:
    """Print what grpc.aio alone costs in this moment, for a workload of gRPC."""
    [port] = free_ports(1)
    with _beside("floor", port) as pid:
        got = clients.measure(
            make_plan(port), connections, seconds, lambda: {"echo": cpu.of_process(pid)}
        )
    print(
        f"{'  grpc.aio that echoes':24} {connections:3} {got.per_s:8.0f} "
        f"{got.p50_ms:7.3f} {got.p99_ms:7.3f}{'':31}{got.cpu_us['echo']:6.1f}",
        flush=True,
    )


def _ratio(last: dict[str, Any] | None, cpu_us: float) -> str:
    return f"  {cpu_us / last['cpu_us']:8.2f}" if last and last["cpu_us"] else ""


def main() -> int:
    options = parse_options(
        seconds=(3.0, "of each row"),
        only=("", "workloads whose name holds this"),
        server=(list[str](), "options of the server, without --"),
        save=(False, "keep the figures with the commit"),
    )
    server_options = ["--zmq-door", "--jobs", *(f"--{option}" for option in options.server)]
    leaks.mark_session()
    roles = ("http", "grpc", "door", "jobs", "broker", "stub", "supervisor")
    print(f"{'workload':24} {'c':>3} {'req/s':>8} {'p50 ms':>7} {'p99 ms':>7}", end="")
    print("   CPU us per request: " + "  ".join(f"{role:>6}" for role in roles), end="")
    print("     all  clients  CPU/last")
    rows = list[dict[str, Any]]()
    last = {f"{row['workload']} {row['connections']}": row for row in results.last("requests")}
    with (
        serving(["identity_fp32", "tokens"], options=server_options) as server,
        _beside("bound", server.http_port) as binder,
    ):
        read_cpu = functools.partial(_cpu, server, binder)
        for name, (make_plan, protocol, counts) in WORKLOADS.items():
            port = server.http_port if protocol == "http" else server.grpc_port
            for connections in counts if options.only in name else ():
                got = clients.measure(make_plan(port), connections, options.seconds, read_cpu)
                spent = got.cpu_us
                print(
                    f"{name:24} {connections:3} {got.per_s:8.0f} {got.p50_ms:7.3f} "
                    f"{got.p99_ms:7.3f}"
                    + " " * 23
                    + "  ".join(f"{spent.get(role, 0):6.1f}" for role in roles)
                    + f"  {sum(spent.values()):6.1f}   {got.client_us:6.1f}"
                    + _ratio(last.get(f"{name} {connections}"), sum(spent.values())),
                    flush=True,
                )
                rows.append(
                    {
                        **{"workload": name, "connections": connections},
                        **{"per_s": round(got.per_s, 1), "p50_ms": round(got.p50_ms, 3)},
                        **{"p99_ms": round(got.p99_ms, 3), "cpu_us": round(sum(spent.values()), 1)},
                        "cpu_us_by_role": {role: round(us, 1) for role, us in spent.items()},
                        "client_us": round(got.client_us, 1),
                    }
                )
                # The floor has no regions of clients.
                if protocol == "grpc" and "shared memory" not in name:
                    _print_echo_server(make_plan, connections, options.seconds)
    kinds = instances.print_throughput() if options.only in "instances" else []
    if options.save:
        results.save("requests", rows)
        if kinds:
            results.save("instances", kinds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
