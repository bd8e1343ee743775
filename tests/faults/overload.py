"""`make faults ARGS=--only=overload`: ten times what a model can do, and what comes of it.

An open loop, unlike the load of benchmarks: requests leave when their time has come, whether others
are answered or not, and each answer's status and head count. Prints goodput, what refusals cost
their clients, and how soon all is well again; R-19 in full.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import closing
from typing import NamedTuple

from tests.bench import clients as load
from tests.faults.attacks.watching import percentiles
from tests.support.journal import journal_inputs
from tests.support.scripted import string_parameter
from tests.support.server import Copy, Server
from tests.support.tools import serving

#: And how many milliseconds an execution takes.
_MODELS = {"of_5_ms": 5, "of_50_ms": 50}
#: What waits beside those that execute, for each instance.
_WAITING = 4
_STEP_S = 0.001
#: Each has a connection, and a process may have a thousand files. Where the machine is so busy that
#: more are under way, the loop waits; models have refused the rest long before.
_MAX_UNDER_WAY = 500


class Answer(NamedTuple):
    status: int
    seconds: float
    #: In lower case.
    head: bytes

    @property
    def has_retry_after(self) -> bool:
        return b"retry-after" in self.head


def slow_model(name: str, instances: int) -> Copy:
    """Return a model that sleeps as long as each request says."""
    limit = string_parameter("max_requests", str(instances * (1 + _WAITING)))
    return Copy("journal", name, limit, ("count: 1", f"count: {instances}"))


def body(milliseconds: int) -> bytes:
    return json.dumps({"inputs": journal_inputs("x", milliseconds)}).encode()


class Clients:
    """Connections to one model; a request takes an idle one, or opens another."""

    def __init__(self, server: Server, model: str, milliseconds: int, more: str = "") -> None:
        """`more` is for the head of each request."""
        request = body(milliseconds)
        head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nhost: localhost\r\n{more}"
        self._request = f"{head}content-length: {len(request)}\r\n\r\n".encode() + request
        self._port = server.http_port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.answers: list[Answer] = []

    async def request(self) -> Answer:
        if self._idle:
            reader, writer = self._idle.pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        begun_s = time.monotonic()
        writer.write(self._request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
        answer = Answer(int(head[9:12]), time.monotonic() - begun_s, head)
        self.answers.append(answer)
        self._idle.append((reader, writer))
        return answer

    async def flood(self, rate: float, seconds: float) -> list[Answer]:
        """So many a second, and what they are answered."""
        self.answers = []
        started_s = time.monotonic()
        under_way: set[asyncio.Task[Answer]] = set()
        sent = 0
        while (passed_s := time.monotonic() - started_s) < seconds:
            while sent < rate * passed_s and len(under_way) < _MAX_UNDER_WAY:
                sent += 1
                task = asyncio.create_task(self.request())
                under_way.add(task)
                task.add_done_callback(under_way.discard)
            await asyncio.sleep(_STEP_S)
        await asyncio.gather(*under_way)
        assert sent == len(self.answers), "some have failed"
        return self.answers

    async def seconds_to_recover(self, usual_s: float) -> float:
        """Seconds until a request takes no more than twice as long as usual."""
        started_s = time.monotonic()
        while (await self.request()).seconds > 2 * usual_s + 0.02:
            assert time.monotonic() < started_s + 60, "it does not recover"
        return time.monotonic() - started_s

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()


async def _measure(server: Server, model: str, ms: int, capacity: float, seconds: float) -> None:
    with closing(Clients(server, model, ms)) as asking:
        usual_s = (await asking.request()).seconds
        answers = await asking.flood(10 * capacity, seconds)
        within_s = await asking.seconds_to_recover(usual_s)
    good = [a for a in answers if a.status == 200]
    refused = [a for a in answers if a.status == 503]
    p50, p99, longest = percentiles([a.seconds for a in refused])
    others = len(answers) - len(good) - len(refused)
    print(
        f"{model:10} capacity {capacity:6.0f}/s  asked {len(answers) / seconds:6.0f}/s  "
        f"goodput {len(good) / seconds / capacity:4.0%}  "
        f"503: {len(refused)} in ms p50 {p50:.1f} p99 {p99:.1f} max {longest:.1f}  "
        f"Retry-After {all(a.has_retry_after for a in refused)}  "
        f"others {others}  200 p99 {percentiles([a.seconds for a in good])[1]:.0f} ms  "
        f"usual again after {within_s:.2f} s",
        flush=True,
    )


def run(seconds: float) -> None:
    """Prints a line for each model."""
    with serving(prepare=_add_models) as server:
        for name, ms in _MODELS.items():
            plan = load.http(server.http_port, body(ms), name)
            capacity = load.measure(plan, 4, min(5.0, seconds)).per_s
            asyncio.run(_measure(server, name, ms, capacity, seconds))


def _add_models(server: Server) -> None:
    for name in _MODELS:
        server.add_models([slow_model(name, 2)])
