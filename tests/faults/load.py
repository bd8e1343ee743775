"""Closed-loop clients of the model `journal`, or of one like it, each request with its own id."""

from __future__ import annotations

import http.client
import itertools
import json
import threading
import time
from contextlib import closing
from typing import Any, NamedTuple, TypeVar

from tests.support.journal import journal_inputs


class Answer(NamedTuple):
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

    @property
    def stamps(self) -> tuple[int, ...]:
        """The imported and the initialized state of `stamped`; empty if it is no answer."""
        outputs = json.loads(self.text)["outputs"] if self.status == 200 else ()
        return tuple(output["data"][0] for output in outputs)


_Own = TypeVar("_Own", bound="Clients")


class Clients:
    """Threads that ask one model over HTTP until the block ends; `_ask` is each one's work."""

    def __init__(self, port: int, model: str, clients: int, within_s: float = 50.0) -> None:
        self._place: Any = {"host": "127.0.0.1", "port": port, "timeout": within_s}
        self._path = f"/v2/models/{model}/infer"
        self.answers: list[Answer] = []
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(clients)]

    def __enter__(self: _Own) -> _Own:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a request got no answer"

    def _run(self) -> None:
        with closing(http.client.HTTPConnection(**self._place)) as connection:
            while not self._is_over.is_set():
                self._ask(connection)

    def _ask(self, connection: http.client.HTTPConnection) -> None:
        raise NotImplementedError

    def _post(
        self, connection: http.client.HTTPConnection, body: str | bytes, own_id: str = ""
    ) -> int:
        """Ask, and keep what it came to; return the status, 0 if the connection broke."""
        sent_ns = time.monotonic_ns()
        try:
            connection.request("POST", self._path, body)
            response = connection.getresponse()
            status, text = response.status, response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            status, text = 0, repr(error)
        self.answers.append(Answer(own_id, sent_ns, time.monotonic_ns(), status, text))
        return status


class Load(Clients):
    """A number of clients, each of which asks again as soon as it is answered."""

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
        super().__init__(port, model, clients)
        self._milliseconds = milliseconds
        self._pause_s = pause_s
        self._prefix = f"load{next(self._sessions)}"
        self._numbers = itertools.count()

    def _ask(self, connection: http.client.HTTPConnection) -> None:
        own_id = f"{self._prefix}-{next(self._numbers)}"
        document = {"inputs": journal_inputs(own_id, self._milliseconds)}
        status = self._post(connection, json.dumps(document), own_id)
        self._is_over.wait(self._pause_s if status else max(self._pause_s, 0.01))
