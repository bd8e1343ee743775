"""Measures a load that rises tenfold and falls, with instances that follow it and without.

    python -m zmqtriton_extras.scaling.tests.autoscale [--save]

A model that takes 20 ms for each request has one to eight instances as its load needs, or always
one, or always eight. Measures and prints; asserts nothing. With --save the figures are kept in
tests/bench/results, and the plot in docs/guides.
"""

from __future__ import annotations

import asyncio
import random
import re
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tests.bench import results
from tests.faults.overload import Clients
from tests.support.server import Server
from tests.support.tools import parse_options
from zmqtriton_extras.bench.results import percentile
from zmqtriton_extras.scaling.tests import autoscale_plot

MODEL = "journal"
MILLISECONDS_EACH = 20
#: Seconds, and requests per second; one instance executes 50.
PHASES = ((10, 16), (15, 160), (40, 16))
_AUTOSCALE = """
parameters { key: "autoscale_max_instances" value { string_value: "8" } }
parameters { key: "autoscale_down_after_seconds" value { string_value: "10" } }
"""
_STAGE_TIMES = "x-stage-times: 1\r\n"
_QUEUE = re.compile(rb"queue;dur=([0-9.]+)")


class Answer(NamedTuple):
    """One request: when it was sent, and how long it waited for an instance."""

    sent_s: float
    queue_ms: float
    is_well: bool


class Load:
    """Requests that arrive by chance, on as many connections as are needed."""

    def __init__(self, server: Server) -> None:
        self.answers: list[Answer] = []
        self.instances: list[tuple[float, int]] = []
        self._server = server
        self._began_s = time.monotonic()

    async def run(self) -> None:
        chance, tasks = random.Random(1), []
        watching = asyncio.create_task(self._watch_instances())
        with closing(Clients(self._server, MODEL, MILLISECONDS_EACH, _STAGE_TIMES)) as clients:
            for seconds, per_second in PHASES:
                due_s = time.monotonic()
                end_s = due_s + seconds
                while due_s < end_s:
                    await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                    tasks.append(asyncio.create_task(self._ask(clients)))
                    due_s += chance.expovariate(per_second)
            await asyncio.gather(*tasks)
        watching.cancel()

    async def _ask(self, clients: Clients) -> None:
        sent_s = time.monotonic() - self._began_s
        answer = await clients.request()
        queue = _QUEUE.search(answer.head)
        waited_ms = float(queue[1]) if queue else 0.0
        self.answers.append(Answer(sent_s, waited_ms, answer.status == 200))

    async def _watch_instances(self) -> None:
        while True:
            pids = await asyncio.to_thread(self._server.stub_pids, MODEL)
            self.instances.append((time.monotonic() - self._began_s, len(pids)))
            await asyncio.sleep(0.5)


class Run(NamedTuple):
    """The outcome of one way to choose the number of instances."""

    name: str
    #: By second: the queue time that one request in a hundred exceeds.
    queue_p99_ms: list[tuple[int, float]]
    instances: list[tuple[float, int]]
    all_p99_ms: float
    instance_seconds: float
    failed: int


def measure(name: str, config: str) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "s", [MODEL])
        path = server.repository / MODEL / "config.pbtxt"
        # a batch of 8 would be executed in 8 times the time of one
        text = path.read_text().replace("max_batch_size: 8", "max_batch_size: 1")
        path.write_text(re.sub(r"instance_group.*", config, text))
        with server:
            load = Load(server)
            asyncio.run(load.run())
    by_second: dict[int, list[float]] = {}
    for answer in load.answers:
        by_second.setdefault(int(answer.sent_s), []).append(answer.queue_ms)
    spans = zip(load.instances, load.instances[1:], strict=False)
    return Run(
        name,
        [(second, _p99(waits)) for second, waits in sorted(by_second.items())],
        load.instances,
        _p99([answer.queue_ms for answer in load.answers]),
        sum(count * (later_s - at_s) for (at_s, count), (later_s, _) in spans),
        sum(not answer.is_well for answer in load.answers),
    )


def _p99(values: list[float]) -> float:
    return percentile(sorted(values), 99)


def main() -> None:
    options = parse_options(__doc__, save=(False, "keep the figures and draw the plot"))
    runs = [
        measure(name, config)
        for name, config in (
            ("1 to 8", f"instance_group [ {{ count: 1 }} ]{_AUTOSCALE}"),
            ("always 1", "instance_group [ { count: 1 } ]"),
            ("always 8", "instance_group [ { count: 8 } ]"),
        )
    ]
    for run in runs:
        print(
            f"{run.name:10} queue p99 {run.all_p99_ms:8.1f} ms  "
            f"{run.instance_seconds:6.0f} seconds of instances  {run.failed} failed"
        )
    if options.save:
        results.save("autoscale", [run._asdict() for run in runs])
        autoscale_plot.draw([(r.name, r.queue_p99_ms, r.instances) for r in runs])


if __name__ == "__main__":
    main()
