"""Many streams of one model beside LitServe's continuous batching, and a thread per request.

A step of N streams takes 10 ms and 0.1 ms for each of them; a thread per request makes steps of its
stream alone, one at a time, as a device does. `python -m
zmqtriton_extras.functions.tests.bench_streams --litserve PYTHON` prints a table; PYTHON has
LitServe installed. Of the first it also prints after how many steps a newcomer has its first piece,
and what one client that reads nothing costs the others. It needs a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.support.scraping import sum_series
from tests.support.server import Server, free_ports, is_open
from tests.support.waiting import eventually

STREAMS, PIECES = 64, 400
#: Duration of a step with all streams.
STEP_S = 0.01 + 0.0001 * STREAMS
#: Pieces per second that the steps allow.
ALLOWED = STREAMS / STEP_S
NEWCOMERS = 20
#: Size of a piece for a client that reads nothing, which is to be behind soon.
_LARGE_BYTES = 200_000

OURS = """
import time
from typing import List, Optional
from zmqtriton import End, model

@model(streams=64)
class Bench:
    def admit(self, pieces: int, size: int = 5) -> list:
        return [pieces, "piece".ljust(size)]

    def step(self, states: list) -> List[Optional[str]]:
        time.sleep(0.01 + 0.0001 * len(states))
        for state in states:
            state[0] -= 1
        return [state[1] if state[0] else End(state[1]) for state in states]
"""
THREADS = """
import threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    device = threading.Lock()

    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "pieces", "data_type": "TYPE_INT64", "dims": [1]})
        config.add_output({"name": "output", "data_type": "TYPE_STRING", "dims": [1]})
        config.set_model_transaction_policy({"decoupled": True})
        return config

    def execute(self, requests):
        for request in requests:
            pieces = pb_utils.get_input_tensor_by_name(request, "pieces").as_numpy()[0]
            arguments = (request.get_response_sender(), int(pieces))
            threading.Thread(target=self.stream, args=arguments).start()

    def stream(self, sender, pieces):
        for _ in range(pieces):
            with self.device:
                time.sleep(0.0101)
            text = np.array([b"piece"], np.object_)
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("output", text)]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
LITSERVE = """
import sys, time
import litserve
from litserve.loops.continuous_batching_loop import ContinuousBatchingLoop, Output
from litserve.utils import LitAPIStatus

class Bench(litserve.LitAPI):
    def setup(self, device):
        self.active = {}

    def add_request(self, uid, request):
        self.active[uid] = request["pieces"]

    def has_active_requests(self):
        return bool(self.active)

    def has_capacity(self):
        return len(self.active) < 64

    def step(self, previous):
        time.sleep(0.01 + 0.0001 * len(self.active))
        outputs = []
        for uid in list(self.active):
            outputs.append(Output(uid, "piece", LitAPIStatus.OK))
            self.active[uid] -= 1
            if not self.active[uid]:
                outputs.append(Output(uid, "", LitAPIStatus.FINISH_STREAMING))
                del self.active[uid]
        return outputs

    def encode_response(self, output):
        return {"output": output}

if __name__ == "__main__":
    api = Bench(max_batch_size=64, stream=True, loop=ContinuousBatchingLoop())
    litserve.LitServer(api, accelerator="cpu", workers_per_device=1).run(
        port=int(sys.argv[1]), generate_client_file=False, log_level="warning"
    )
"""


class Result(NamedTuple):
    name: str
    pieces_per_s: float
    gap_p99_ms: float
    cpu_s: float

    def row(self) -> str:
        share = self.pieces_per_s / ALLOWED
        return (
            f"| {self.name} | {self.pieces_per_s:,.0f} | {share:.0%} | {self.gap_p99_ms:.1f} ms "
            f"| {1e6 * self.cpu_s / self.pieces_per_s:.0f} µs |"
        )


async def _ask(
    port: int, path: str, **inputs: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps(inputs).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return reader, writer


async def _read(port: int, path: str, pieces: int) -> list[float]:
    """Return the times at which the pieces of a stream came."""
    reader, writer = await _ask(port, path, pieces=pieces)
    times: list[float] = []
    line = b""
    while len(times) < pieces:
        last, line = line, await reader.readline()
        if not line:
            raise RuntimeError(f"{path} ended after {len(times)} pieces with {last!r}")
        times += [time.perf_counter()] * line.count(b"piece")
    writer.close()
    return times


async def _measure(name: str, port: int, path: str, pid: int, pieces: int) -> Result:
    await _read(port, path, 2)  # connections, imports, caches
    before_s, begun_s = cpu_of(pid), time.perf_counter()
    streams = await asyncio.gather(*[_read(port, path, pieces) for _ in range(STREAMS)])
    took_s = time.perf_counter() - begun_s
    gaps = sorted(b - a for times in streams for a, b in pairwise(times))
    cpu_s = (cpu_of(pid) - before_s) / took_s
    return Result(name, STREAMS * pieces / took_s, 1e3 * gaps[int(0.99 * len(gaps))], cpu_s)


async def _rate(port: int, path: str, streams: int) -> float:
    begun_s = time.perf_counter()
    await asyncio.gather(*[_read(port, path, PIECES) for _ in range(streams)])
    return streams * PIECES / (time.perf_counter() - begun_s)


async def _newcomer_steps(port: int, path: str) -> float:
    """Return the median number of steps until a newcomer among others has its first piece."""
    others = [asyncio.create_task(_read(port, path, 40 * NEWCOMERS)) for _ in range(STREAMS - 1)]
    await asyncio.sleep(40 * STEP_S)
    took_s = []
    moments = random.Random(NEWCOMERS)
    for _ in range(NEWCOMERS):
        await asyncio.sleep(STEP_S * moments.random())  # the one before has ended with a step
        begun_s = time.perf_counter()
        took_s.append((await _read(port, path, 1))[0] - begun_s)
    for other in others:
        other.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    return sorted(took_s)[NEWCOMERS // 2] / STEP_S


async def _cost_of_one(server: Server, path: str) -> float:
    """Return by which part the others are slower while one client reads nothing."""
    port = server.http_port
    alone = await _rate(port, path, STREAMS - 1)
    _, writer = await _ask(port, path, pieces=10**6, size=_LARGE_BYTES)
    is_behind = lambda: sum_series(server, "streams", state="behind", model="bench")  # noqa: E731
    await asyncio.to_thread(eventually, is_behind, 60, "it is behind")
    beside = await _rate(port, path, STREAMS - 1)
    writer.close()
    return 1 - beside / alone


def cpu_of(pid: int) -> float:
    """Return the CPU time of a process and its children that live, in seconds."""
    parents: dict[int, list[int]] = {}
    times: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
            times[int(entry.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    family = [pid]
    for one in family:
        family += parents.get(one, [])
    return sum(times.get(one, 0.0) for one in family)


@contextmanager
def litserve(python: str, directory: Path) -> Iterator[tuple[int, int]]:
    file = directory / "bench.py"
    file.write_text(LITSERVE)
    [port] = free_ports(1)
    with (directory / "log").open("w") as log:
        process = subprocess.Popen([python, str(file), str(port)], stdout=log, stderr=log)
    try:
        eventually(lambda: is_open(port), 120, "LitServe")
        time.sleep(3)  # its worker has no sign that it is there
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--litserve", metavar="PYTHON", default="", help="a Python with LitServe")
    arguments = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as place:
        server = Server(Path(place) / "server", frontends=("metrics",))
        server.write_model("bench", "", OURS)
        server.write_model("threads", "", THREADS)
        with server:
            for name, model, pieces in (
                ("@model(streams=64)", "bench", PIECES),
                ("a thread per request", "threads", PIECES // 40),
            ):
                path = f"/v2/models/{model}/generate_stream"
                measured = _measure(name, server.http_port, path, server.pid, pieces)
                results.append(asyncio.run(measured))
            path = "/v2/models/bench/generate_stream"
            steps = asyncio.run(_newcomer_steps(server.http_port, path))
            cost = asyncio.run(_cost_of_one(server, path))
        if arguments.litserve:
            with litserve(arguments.litserve, Path(place)) as (port, pid):
                results.append(asyncio.run(_measure("LitServe", port, "/predict", pid, PIECES)))
    load = f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    sys.stdout.write(f"{STREAMS} streams; load {load}; the steps allow {ALLOWED:,.0f} a second\n\n")
    sys.stdout.write("| | Pieces per second | Of what steps allow | p99 of gaps | CPU a piece |\n")
    sys.stdout.write("|---|---|---|---|---|\n")
    sys.stdout.writelines(f"{result.row()}\n" for result in results)
    sys.stdout.write(f"\nA newcomer has its first piece after {steps:.1f} steps (median). ")
    sys.stdout.write(f"One of {STREAMS} that reads nothing costs the others {cost:.1%}.\n")


if __name__ == "__main__":
    main()
