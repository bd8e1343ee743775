"""Measures what a server of many models, instances, connections, streams or reloads costs.

    python -m tests.bench.growth [--only models] [--reloads 10000] [--save]

Each figure is measured with requests of 16 floats, eight at a time. Those of reloads, of eight
models at once and each with other code, tell what they leave behind, and by how much each process
grows with a reload. Measures and prints; asserts nothing. With --save the figures are kept in
tests/bench/results, and the plot in docs/guides.
"""

from __future__ import annotations

import asyncio
import functools
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import linear_regression
from typing import Any, NamedTuple

import psutil

from tests.bench import clients, cpu, plots, results
from tests.support import leaks
from tests.support.scripted import string_parameter
from tests.support.server import Server
from tests.support.tools import parse_options

_AT_ONCE = 8
_SECONDS, _IDLE_SECONDS = 4.0, 10.0
_STREAMS_PER_CHANNEL = 100
_MODEL = "identity_fp32"
#: So many reloads before each figure, unless the last is another number.
_RELOADS = (10, 100, 1000)
#: So many readings of the memory meanwhile.
_READINGS = 40


class Figure(NamedTuple):
    """The cost of a server of one size."""

    kind: str
    size: int
    #: From the start of the command until it is ready.
    ready_s: float
    #: The memory of all its processes; shared pages count in part.
    memory_mib: float
    #: The CPU that it takes when nobody asks, in percent of a core.
    idle_percent: float
    #: The CPU of all its processes for one request.
    cpu_us: float
    #: From the request to stop until its last process has ended; 0: clients were there.
    stop_s: float = 0.0
    #: The descriptors of all its processes.
    descriptors: int = 0
    #: By role: the growth of its processes' own memory with each reload, in bytes.
    growth: Mapping[str, float] = {}


def _processes(server: Server) -> list[psutil.Process]:
    main = psutil.Process(server.pid)
    return [main, *main.children(recursive=True)]


def _own_kib(server: Server) -> dict[str, int]:
    """Return the memory that processes have taken, by their roles, but for those of models."""
    pids_of = server.pids().items()
    lasting = {role: pids for role, pids in pids_of if role not in ("stub", "template")}
    return {role: sum(cpu.kib(pid, "Anonymous") for pid in pids) for role, pids in lasting.items()}


def _growth(readings: list[tuple[int, dict[str, int]]]) -> dict[str, float]:
    """Return the slopes, in bytes for each reload, once the first half is over."""
    later = readings[len(readings) // 2 :]
    numbers = [number for number, _ in later]
    return {
        role: 1024 * linear_regression(numbers, [kib.get(role, 0) for _, kib in later]).slope
        for role in later[-1][1]
    }


def _hold_streams(pipe: Connection, port: int, streams: int) -> None:
    """Hold gRPC streams open, each of which has had one answer."""
    asyncio.run(_hold(pipe, port, streams))


async def _hold(pipe: Connection, port: int, streams: int) -> None:
    import grpc.aio

    data = clients.grpc_request()
    options = [("grpc.use_local_subchannel_pool", 1)]
    calls = []
    for first in range(0, streams, _STREAMS_PER_CHANNEL):
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)
        method = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        own = [method() for _ in range(min(_STREAMS_PER_CHANNEL, streams - first))]
        for call in own:
            await call.write(data)
            await call.read()
        calls += own
    pipe.send(None)
    await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
    for call in calls:
        call.cancel()


@contextmanager
def _beside(target: Callable[..., None], *arguments: Any) -> Iterator[Connection]:
    """Run a client in a process of its own, so that its CPU is not the server's."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=target, args=(theirs, *arguments))
    process.start()
    theirs.close()
    try:
        ours.recv()
        yield ours
    finally:
        process.join()


def _cpu_s(server: Server) -> dict[str, float]:
    return cpu.of_trees([server.pid])


def _cpu_us(server: Server, connections: int = _AT_ONCE) -> float:
    """Measure eight clients, each of which asks over another one of its connections each time."""
    plan = clients.in_turns(clients.http_binary(server.http_port), connections // _AT_ONCE)
    return clients.measure(plan, _AT_ONCE, _SECONDS, lambda: _cpu_s(server)).cpu_us["all"]


def _measure(
    kind: str, size: int, server: Server, ready_s: float, connections: int = _AT_ONCE
) -> Figure:
    cpu_us = _cpu_us(server, connections)
    before = _cpu_s(server)["all"]
    time.sleep(_IDLE_SECONDS)
    idle = (_cpu_s(server)["all"] - before) / _IDLE_SECONDS * 100
    processes = _processes(server)
    descriptors = sum(process.num_fds() for process in processes)
    memory_mib = cpu.pss_mib(process.pid for process in processes)
    return Figure(kind, size, ready_s, memory_mib, idle, cpu_us, descriptors=descriptors)


@contextmanager
def _server(
    models: int = 1, instances: int = 1, of: str = "processes", options: Sequence[str] = ()
) -> Iterator[tuple[Server, float]]:
    with tempfile.TemporaryDirectory(prefix="growth") as folder:
        server = Server(
            Path(folder) / "s",
            models=[_MODEL],
            options=options,
            ready_within_s=600,
        )
        for number in range(1, models):
            server.add_model(_MODEL, f"model_{number}")
        for config in server.repository.glob("*/config.pbtxt"):
            text = config.read_text().replace("count: 1", f"count: {instances}")
            config.write_text(text + string_parameter("INSTANCES", of))
        before = time.monotonic()
        with server:
            yield server, time.monotonic() - before


def _with_stop(figure: Figure, server: Server) -> Figure:
    before = time.monotonic()
    server.stop(within_s=600)
    return figure._replace(stop_s=time.monotonic() - before)


def _models(size: int) -> Figure:
    with _server(models=size) as (server, ready_s):
        return _with_stop(_measure("models", size, server, ready_s), server)


def _instances(size: int, of: str = "processes") -> Figure:
    with _server(instances=size, of=of) as (server, ready_s):
        return _with_stop(_measure("instances", size, server, ready_s), server)


def _reloads(size: int, of: str) -> Figure:
    options = ["--model-control-mode=explicit", "--load-model=*"]
    with (
        _server(models=_AT_ONCE, instances=2, of=of, options=options) as (server, ready_s),
        ThreadPoolExecutor(_AT_ONCE) as pool,
    ):
        codes = sorted(server.repository.glob("*/1/model.py"))
        text, readings = codes[0].read_text(), []

        def reload(code: Path, numbers: range) -> None:
            for number in numbers:
                code.write_text(f"{text}# {number}\n")
                if error := server.control_model("load", code.parent.parent.name):
                    raise RuntimeError(f"reload {number}: {error}")

        step = max(1, size // _READINGS)
        for begin in range(0, size, step):
            readings.append((begin, _own_kib(server)))
            end = min(size, begin + step)
            numbers = [range(first, end, _AT_ONCE) for first in range(begin, begin + len(codes))]
            list(pool.map(reload, codes, numbers))
        figure = _measure("reloads", size, server, ready_s)
        return _with_stop(figure._replace(growth=_growth(readings)), server)


def _connections(size: int) -> Figure:
    with _server() as (server, ready_s):
        return _measure("connections", size, server, ready_s, connections=size)


def _streams(size: int) -> Figure:
    with _server() as (server, ready_s):
        with _beside(_hold_streams, server.grpc_port, size) as client:
            figure = _measure("streams", size, server, ready_s)
            client.send(None)
        return figure


KINDS: dict[str, tuple[Callable[[int], Figure], tuple[int, ...]]] = {
    "models": (_models, (1, 10, 100, 1000)),
    "instances": (_instances, (1, 4, 16, 32)),
    "connections": (_connections, (8, 104, 1000, 5000)),
    "streams": (_streams, (1, 100, 1000, 10_000)),
    "instances, forks": (functools.partial(_instances, of="forks"), (1, 4, 16, 32)),
    "instances, threads": (functools.partial(_instances, of="threads"), (1, 4, 16, 32)),
    **{
        f"reloads, {of}": (functools.partial(_reloads, of=of), _RELOADS)
        for of in ("processes", "forks", "threads")
    },
}
#: The kinds that the plot shows.
_PLOTTED = ("models", "instances", "connections", "streams")


def main() -> None:
    options = parse_options(
        __doc__,
        only=("", "one of " + ", ".join(KINDS)),
        reloads=(_RELOADS[-1], "in the last figure"),
        save=(False, "keep the figures and draw the plot"),
    )
    leaks.mark_session()
    rows = []
    head = f"{'ready s':>8} {'MiB':>8} {'idle %':>7} {'CPU us per request':>19} {'stop s':>7}"
    print(f"{'':18} {'':>6} {head} descriptors")
    for kind, (measure, sizes) in KINDS.items():
        if sizes is _RELOADS:
            sizes = (*(size for size in sizes if size < options.reloads), options.reloads)
        for size in sizes if options.only in kind else ():
            row = measure(size)._replace(kind=kind)
            rows.append(row._asdict())
            print(
                f"{kind:18} {size:6} {row.ready_s:8.1f} {row.memory_mib:8.0f} "
                f"{row.idle_percent:7.2f} {row.cpu_us:19.1f} {row.stop_s:7.1f} "
                f"{row.descriptors:11}",
                flush=True,
            )
            if row.growth:
                grown = ", ".join(f"{role} {by:.0f}" for role, by in sorted(row.growth.items()))
                print(f"{'':18} bytes for each reload: {grown}", flush=True)
    if options.save:
        results.save("growth", rows)
        plots.draw_growth([row for row in rows if row["kind"] in _PLOTTED])


if __name__ == "__main__":
    main()
