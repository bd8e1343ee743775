"""A model with many streams on a real server: its journal of steps, and clients of it."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.server import Server
from tests.support.waiting import eventually

#: A step waits while the file `hold` is there, has no pieces while `idle` is, and ends all streams
#: once `stop` is. Pieces are "NAME STEP", and as long as `size` says.
MODEL = """
import json, os, time
from typing import List, Optional
from zmqtriton import End, Failed, Full, Refused, model

PLACE = {place!r}
HOLD, STOP, IDLE = (os.path.join(PLACE, name) for name in ("hold", "stop", "idle"))
WORD = "old"

def note(**row):
    row["pid"] = os.getpid()
    with open(os.path.join(PLACE, "journal"), "a") as journal:
        journal.write(json.dumps(row) + chr(10))

@model(streams={streams}, budget={budget})
class Count:
    def __init__(self):
        self.steps = 0

    def cost(self, name: str, pieces: int = 0, size: int = 0) -> int:
        return 1

    def admit(self, name: str, pieces: int = 0, size: int = 0) -> dict:
        note(admitted=name)
        return {{"name": name, "left": pieces, "size": size}}

    def step(self, states: list) -> List[Optional[str]]:
        self.steps += 1
        note(step=self.steps, names=[state["name"] for state in states], own=id(self))
        time.sleep(0.002)
        if os.path.exists(HOLD):
            note(held=self.steps, own=id(self))
            while os.path.exists(HOLD):
                time.sleep(0.005)
        if os.path.exists(IDLE):
            return [None] * len(states)
        return [self.next(state, place) for place, state in enumerate(states)]

    def next(self, state, place):
        if state["name"].startswith("fails"):
            return Failed(place, "this stream alone")
        text = f"{{state['name']}} {{self.steps}} {{WORD}}".ljust(state["size"])
        state["left"] -= 1
        return End(text) if not state["left"] or os.path.exists(STOP) else text

    def leave(self, state):
        note(left=state["name"])

    def sleep(self):
        note(rests="sleep")

    def wake_up(self):
        note(rests="wake_up")
"""


class Journal:
    """The journal of a model, and the files that hold and stop it."""

    def __init__(self, place: Path) -> None:
        place.mkdir(exist_ok=True)
        place.chmod(0o777)
        self.place = place

    def source(self, streams: int = 64, budget: int = 0) -> str:
        return MODEL.format(place=str(self.place), streams=streams, budget=budget)

    def rows(self) -> list[dict[str, Any]]:
        path = self.place / "journal"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line[-1] == "\n"]

    def steps(self, since: int = 0) -> dict[int, list[str]]:
        """Return the names of each step after the one with this number."""
        rows = [row for row in self.rows() if row.get("step", 0) > since]
        return {row["step"]: row["names"] for row in rows}

    def has(self, **row: str) -> bool:
        return any(row.items() <= each.items() for each in self.rows())

    def hold(self, *names: str) -> int:
        """Hold the model in a step that has these streams, at least; return its number."""

        def has_all() -> bool:
            steps = self.steps()
            return bool(steps) and {*names} <= {*steps[max(steps)]}

        def held() -> list[int]:
            return [row["held"] for row in self.rows() if "held" in row]

        eventually(has_all, 60, f"a step with {names}")
        count = len(held())
        (self.place / "hold").touch()
        eventually(lambda: len(held()) > count, 60, "it is held")
        return held()[-1]

    def hold_instances(self, names: set[str]) -> None:
        """Hold each instance in a step, once all together have these streams; they were idle."""

        def newest(kind: str) -> dict[tuple[int, int], dict[str, Any]]:
            return {(row["pid"], row["own"]): row for row in self.rows() if kind in row}

        def has_all() -> bool:
            return names <= {name for row in newest("step").values() for name in row["names"]}

        def is_held() -> bool:
            steps, held = newest("step"), newest("held")
            return all(key in held and held[key]["held"] == steps[key]["step"] for key in steps)

        eventually(has_all, 60, f"steps with {names}")
        (self.place / "hold").touch()
        eventually(is_held, 60, "they are held")
        (self.place / "idle").unlink()

    def let_go(self) -> None:
        (self.place / "hold").unlink()

    def stop(self) -> None:
        (self.place / "stop").touch()
        (self.place / "hold").unlink(missing_ok=True)

    def free(self, *more: str) -> None:
        for name in ("hold", "idle", *more):
            (self.place / name).unlink(missing_ok=True)

    def clear(self) -> None:
        self.free("stop", "journal")


class Client:
    """A stream over HTTP, which reads when it is told to."""

    def __init__(self, server: Server, model: str, name: str, **more: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=240)
        body = json.dumps({"name": name, **more})
        self._connection.request("POST", f"/v2/models/{model}/generate_stream", body)
        self._answer: http.client.HTTPResponse | None = None

    def read(self) -> Iterator[str]:
        """Yield the texts of the stream as they come, and the text of its error."""
        if self._answer is None:
            self._answer = self._connection.getresponse()
        while line := self._answer.readline():
            if line.startswith((b"data: ", b"{")):
                document = json.loads(line.removeprefix(b"data: "))
                yield document["output"].rstrip() if "output" in document else document["error"]

    def leave(self) -> None:
        self._connection.close()
        if self._answer is not None:
            self._answer.close()


class Clients:
    """Clients that read all of their streams, each in its thread."""

    def __init__(self, server: Server, count: int) -> None:
        self._server = server
        self._threads = ThreadPoolExecutor(count)

    def ask(self, model: str, name: str, **more: int) -> Future[list[str]]:
        def read() -> list[str]:
            client = Client(self._server, model, name, **more)
            try:
                return list(client.read())
            finally:
                client.leave()

        return self._threads.submit(read)

    def ask_many(self, model: str, count: int, **more: int) -> dict[str, Future[list[str]]]:
        return {f"n{n}": self.ask(model, f"n{n}", **more) for n in range(count)}

    def close(self) -> None:
        self._threads.shutdown()


@contextmanager
def many_clients(server: Server, journal: Journal, count: int = 70) -> Iterator[Clients]:
    """Clients of a model, whose streams end with the test."""
    journal.clear()
    clients = Clients(server, count)
    try:
        yield clients
    finally:
        journal.stop()
        clients.close()


def executions(server: Server, model: str) -> int:
    """Return the number of executions: each has brought a request into the instance."""
    return int(server.statistics(model)["execution_count"])


def kill(pid: int) -> None:
    os.kill(pid, 9)
