"""Clients of the model `stamped` at a steady rate, and rewriting it: which state answered what.

with Asking(server.http_port, per_second=100) as asking:
    write_stamp(server, 1)
    load(server)
assert not asking.failed()
"""

from __future__ import annotations

import http.client
import itertools
import json
import re
import time
from pathlib import Path
from typing import NamedTuple

from tests.faults.load import Clients
from tests.support.server import Server

MODEL = "stamped"
_INPUT = {"name": "ID", "datatype": "INT32", "shape": [1, 1], "data": [1]}
BODY = json.dumps({"inputs": [_INPUT]}).encode()


class Answer(NamedTuple):
    """Times are of time.monotonic_ns()."""

    sent_ns: int
    ended_ns: int
    #: 0: the connection broke.
    status: int
    #: What was imported and what was initialized; empty where it is no answer.
    stamps: tuple[int, ...]
    text: str


class SteadyLoad(Clients):
    """So many requests a second from several connections, until the block ends."""

    def __init__(self, port: int, *, per_second: int, clients: int = 8, model: str = MODEL) -> None:
        super().__init__(port, model, clients)
        self.answers: list[Answer] = []
        self._every_s = 1 / per_second
        self._turns = itertools.count()
        self._began_s = time.monotonic()

    def failed(self) -> list[Answer]:
        """Return those that are not wholly of one state."""
        return [a for a in list(self.answers) if a.status != 200 or len(set(a.stamps)) != 1]

    def _ask(self, connection: http.client.HTTPConnection) -> None:
        due_s = self._began_s + next(self._turns) * self._every_s
        if self._is_over.wait(max(0.0, due_s - time.monotonic())):
            return
        sent_ns, stamps = time.monotonic_ns(), tuple[int, ...]()
        status, text = self._post(connection, BODY)
        if status == 200:
            stamps = tuple(output["data"][0] for output in json.loads(text)["outputs"])
        self.answers.append(Answer(sent_ns, time.monotonic_ns(), status, stamps, text))


def model_file(server: Server) -> Path:
    return server.repository / MODEL / "1" / "model.py"


def write_stamp(server: Server, stamp: int) -> None:
    path = model_file(server)
    path.write_text(re.sub(r"(?m)^STAMP = .*$", f"STAMP = {stamp}", path.read_text()))


def control_model(server: Server, what: str, model: str = MODEL) -> tuple[int, str]:
    """Asks to load or unload; the status and the text of an error, or ""."""
    path = f"/v2/repository/models/{model}/{what}"
    status, answer = server.request_json(path, {}, within_s=120.0)
    return status, "" if status == 200 else answer["error"]


def index_entry(server: Server, model: str = MODEL) -> dict[str, str]:
    """The first entry of a model."""
    _, entries = server.request_json("/v2/repository/index", {})
    return next(entry for entry in entries if entry["name"] == model)
