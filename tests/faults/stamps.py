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
import threading
import time
from pathlib import Path
from typing import NamedTuple

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


class SteadyLoad:
    """So many requests a second from several connections, until the block ends."""

    def __init__(self, port: int, *, per_second: int, clients: int = 8, model: str = MODEL) -> None:
        self.answers: list[Answer] = []
        self._port = port
        self._path = f"/v2/models/{model}/infer"
        self._clients = clients
        self._every_s = 1 / per_second
        self._turns = itertools.count()
        self._began_s = 0.0
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(clients)]

    def __enter__(self) -> SteadyLoad:
        self._began_s = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a request got no answer"

    def failed(self) -> list[Answer]:
        """Return those that are not wholly of one state."""
        return [a for a in list(self.answers) if a.status != 200 or len(set(a.stamps)) != 1]

    def _ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=50)
        while not self._is_over.is_set():
            due_s = self._began_s + next(self._turns) * self._every_s
            if self._is_over.wait(max(0.0, due_s - time.monotonic())):
                break
            sent_ns = time.monotonic_ns()
            stamps: tuple[int, ...] = ()
            try:
                connection.request("POST", self._path, BODY)
                answer = connection.getresponse()
                status, text = answer.status, answer.read().decode()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                status, text = 0, repr(error)
            if status == 200:
                stamps = tuple(output["data"][0] for output in json.loads(text)["outputs"])
            self.answers.append(Answer(sent_ns, time.monotonic_ns(), status, stamps, text))
        connection.close()


def model_file(server: Server) -> Path:
    return server.repository / MODEL / "1" / "model.py"


def write_stamp(server: Server, stamp: int) -> None:
    path = model_file(server)
    path.write_text(re.sub(r"(?m)^STAMP = .*$", f"STAMP = {stamp}", path.read_text()))


def control_model(server: Server, what: str, model: str = MODEL) -> tuple[int, str]:
    """Asks to load or unload; the status and the text of an error, or ""."""
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=120)
    try:
        connection.request("POST", f"/v2/repository/models/{model}/{what}", "{}")
        answer = connection.getresponse()
        text = answer.read().decode()
        return answer.status, json.loads(text)["error"] if answer.status != 200 else ""
    finally:
        connection.close()


def index_entry(server: Server, model: str = MODEL) -> dict[str, str]:
    """The first entry of a model."""
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    try:
        connection.request("POST", "/v2/repository/index", "{}")
        entries = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    own_entry: dict[str, str] = next(entry for entry in entries if entry["name"] == model)
    return own_entry
