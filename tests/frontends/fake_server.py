"""One real frontend process between a supervisor and a broker that the test plays.

    with FakeServer(tmp_path, "zmqtriton_frontends.http_api") as server:
        server.open()
        requests.get(f"http://127.0.0.1:{server.port}/v2")

A thread reads the process's lifelines and the broker's socket; what it has seen stands in lists.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from tests.frontends.http_api.fakes import MODELS, SETTINGS
from tests.supervisor.settings import settings as server_settings
from tests.support.routers import FakeRouter
from tests.support.waiting import eventually
from zmqtriton_floor import endpoints, wire
from zmqtriton_floor.lifeline import Lifeline, pair
from zmqtriton_floor.wire import RequestBody, ResponseBody, Tensor

#: What the broker counts of no model's.
COUNTS = {"malformed": 3, "received_bytes": 700, "sent_bytes": 800, "leases": 4}
COUNTS.update(unanswered=5, refused=6)


ROOT = Path(__file__).resolve().parents[2]
_TOKEN = bytes(16)


def echo(body: RequestBody) -> ResponseBody | None:
    return ResponseBody(
        {}, [Tensor(t.name.replace("IN", "OUT"), t.datatype, t.shape, t.data) for t in body.inputs]
    )


def hold_request(body: RequestBody) -> ResponseBody | None:
    """No answer, for as long as the test likes."""
    return None


_NO_READINGS: dict[str, Any] = {"seconds": 0, "readings": []}


class FakeServer:
    def __init__(
        self,
        directory: Path,
        module: str,
        *,
        python: Path = Path(sys.executable),
        stderr: IO[str] | None = None,
        **settings: Any,
    ) -> None:
        self._directory = str(directory)
        self._module, self._python, self._stderr = module, python, stderr
        self._options = {**SETTINGS, **settings}
        self.respond: Callable[[RequestBody], ResponseBody | None] = echo
        self.statistics: list[dict[str, Any]] = []
        #: (the peer's identity, the request), in the order of arrival; and ids that were cancelled.
        self.requests: list[tuple[bytes, wire.Request]] = []
        self.cancelled: list[int] = []
        self.opened: list[wire.Opened] = []
        self.synced: list[wire.Synced] = []
        #: Pids that gunicorn forked.
        self.worker_pids: list[int] = []
        self._lifelines: list[Lifeline] = []
        self._lock = threading.Lock()
        self._stop_event = threading.Event()

    def __enter__(self) -> FakeServer:
        self._router = FakeRouter(endpoints.requests_address(self._directory, 1))
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        self.port: int = listener.getsockname()[1]
        self._settings = server_settings(**{"grpc_port": self.port, **self._options})
        ours, theirs = pair()
        descriptors = (theirs.fileno(), listener.fileno())
        argv = [str(self._python), "-m", self._module]
        argv += ["--lifeline", str(descriptors[0]), "--socket", str(descriptors[1])]
        path = os.pathsep.join(str(ROOT / part) for part in (".", "stub", "frontends"))
        self.process = subprocess.Popen(
            argv,
            pass_fds=descriptors,
            env={**os.environ, "PYTHONPATH": path},
            stderr=self._stderr,
        )
        theirs.close()
        listener.close()
        self._arbiter = Lifeline(ours)
        self._lifelines.append(self._arbiter)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._stop_event.set()
        self._thread.join()
        for lifeline in self._lifelines:
            lifeline.close()
        self._router.close()

    # ------------------------------------------------------- what a test does

    def open(self, role: str = "http-arbiter") -> None:
        """Introduces the process, lets it accept connections, and waits until it does."""
        self.introduce(role)
        self.send(wire.Listen())
        eventually(lambda: self.opened, 60, "Opened")

    def introduce(self, role: str) -> None:
        with self._lock:
            self._introduce(self._arbiter, 1, role)

    def send(self, message: Any) -> None:
        """To the process itself."""
        with self._lock:
            self._arbiter.send(message)

    def stop(self, within_ms: int = 30_000) -> None:
        """As the supervisor does: all are told, and gunicorn's arbiter gets SIGTERM too."""
        self.send_stop(within_ms)
        self.process.send_signal(signal.SIGTERM)

    def send_stop(self, within_ms: int = 30_000) -> None:
        with self._lock:
            for lifeline in self._lifelines:
                lifeline.send(wire.Shutdown(within_ms))

    def close_lifeline(self) -> None:
        """As if the supervisor were dead."""
        with self._lock:
            self._arbiter.close()
            self._lifelines.remove(self._arbiter)

    def answer_held(self, number: int, body: ResponseBody) -> None:
        """The answer to a request that was held."""
        identity, request = self.requests[number]
        with self._lock:
            self._reply(identity, wire.Reply(request.id, 0, "", wire.FINAL), body)

    # ----------------------------------------------------- what the thread does

    def _introduce(self, lifeline: Lifeline, serial: int, role: str) -> None:
        lifeline.send(
            wire.Bootstrap(serial, _TOKEN, role, self._directory, 1, self._settings.document(role))
        )
        if role != "http-arbiter":
            for message in MODELS:
                lifeline.send(message)

    def _run(self) -> None:
        while not self._stop_event.is_set():
            poller = select.poll()
            poller.register(self._router, select.POLLIN)
            with self._lock:
                for lifeline in self._lifelines:
                    if not lifeline.ended:
                        poller.register(lifeline.fileno(), select.POLLIN)
            poller.poll(20)
            with self._lock:
                for lifeline in tuple(self._lifelines):
                    for message, descriptors in lifeline.receive():
                        self._handle_lifeline_message(lifeline, message, descriptors)
                while self._router.poll(0):
                    identity, header, *bodies = self._router.receive()
                    self._handle_broker_message(identity, wire.decode(header), bodies)

    def _handle_lifeline_message(
        self, lifeline: Lifeline, message: Any, descriptors: list[int]
    ) -> None:
        if isinstance(message, wire.WorkerForked):
            own = Lifeline(socket.socket(fileno=descriptors[0]))
            self._lifelines.append(own)
            self._introduce(own, len(self._lifelines), "http")
            own.send(wire.Listen())
            self.worker_pids.append(message.pid)
        elif isinstance(message, wire.Opened):
            self.opened.append(message)
        elif isinstance(message, wire.Synced):
            self.synced.append(message)
        elif isinstance(message, wire.Call):
            result = {"status": '{"processes": [], "malformed": 2}'}.get(message.verb, "[]")
            lifeline.send(wire.CallResult(message.id, 0, "", result))

    def _handle_broker_message(self, identity: bytes, message: Any, bodies: list[bytes]) -> None:
        if isinstance(message, wire.Hello):
            self._router.send([identity, wire.encode(wire.Welcome(1))])
        elif isinstance(message, wire.AskStatistics):
            text = json.dumps({"model_stats": self.statistics, "zmqtriton": COUNTS, **_NO_READINGS})
            self._router.send([identity, wire.encode(wire.CallResult(message.id, 0, "", text))])
        elif isinstance(message, wire.Cancel):
            self.cancelled += message.ids
        elif isinstance(message, wire.Infer):
            for request, body in zip(message.requests, bodies, strict=True):
                self.requests.append((identity, request))
                reply = self.respond(wire.decode_request(body))
                if reply is not None:
                    self._reply(identity, wire.Reply(request.id, 0, "", wire.FINAL), reply)

    def _reply(self, identity: bytes, row: wire.Reply, body: ResponseBody) -> None:
        self._router.send([identity, wire.encode(wire.Replies([row])), wire.encode_body(body)])
