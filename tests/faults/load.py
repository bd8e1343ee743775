"""Closed-loop clients of the model `journal`, or of one like it, each request with its own id."""

from __future__ import annotations

import http.client
import itertools
import json
import threading
import time
from typing import NamedTuple


class Outcome(NamedTuple):
    """The outcome of one request. Times are of time.monotonic_ns()."""

    id: str
    sent_ns: int
    ended_ns: int
    #: 0: the connection broke.
    status: int
    text: str

    @property
    def is_right(self) -> bool:
        """Answered, and with its own bytes."""
        return self.status == 200 and json.loads(self.text)["outputs"][0]["data"] == [self.id]


class Load:
    """A number of clients over HTTP, asking until the block ends."""

    _sessions = itertools.count()

    def __init__(
        self,
        port: int,
        *,
        clients: int,
        milliseconds: int,
        pause_s: float = 0.0,
        model: str = "journal",
    ) -> None:
        self.outcomes: list[Outcome] = []
        self._path = f"/v2/models/{model}/infer"
        self._port = port
        self._milliseconds = milliseconds
        self._pause_s = pause_s
        self._prefix = f"load{next(self._sessions)}"
        self._numbers = itertools.count()
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(clients)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a request got no answer"

    def _ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=50)
        while not self._is_over.is_set():
            own_id = f"{self._prefix}-{next(self._numbers)}"
            body = json.dumps(
                {
                    "inputs": [
                        {"name": "ID", "datatype": "BYTES", "shape": [1, 1], "data": [own_id]},
                        {
                            "name": "MS",
                            "datatype": "INT32",
                            "shape": [1, 1],
                            "data": [self._milliseconds],
                        },
                    ]
                }
            )
            sent_ns = time.monotonic_ns()
            try:
                connection.request("POST", self._path, body)
                answer = connection.getresponse()
                status, text = answer.status, answer.read().decode()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                status, text = 0, repr(error)
                self._is_over.wait(0.01)
            self.outcomes.append(Outcome(own_id, sent_ns, time.monotonic_ns(), status, text))
            if self._pause_s:
                self._is_over.wait(self._pause_s)
        connection.close()
