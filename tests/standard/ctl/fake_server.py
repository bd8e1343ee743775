"""A server that a test plays, as `zmqtriton-ctl` sees it."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from zmqtriton.ctl.main import cli
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_floor.wire import Call, CallResult, Synced

STATUS: dict[str, Any] = {
    "server": {
        "id": "alpha",
        "version": "1.2.3",
        "directory": "/run/x",
        "addresses": {"http": "0.0.0.0:8000", "grpc": "[::1]:8001"},
        "ready": "1 of 2 model versions are ready",
    },
    "processes": [
        {"role": "supervisor", "pid": 7, "started_s": 1.0, "state": "running"},
        {
            "role": "stub",
            "serial": 4,
            "pid": 9,
            "started_s": 2.0,
            "model": "m",
            "version": 1,
            "instance": "m_0_0",
            "state": "READY",
            "restarts": 2,
            "last_reason": "killed by [bold]SIGKILL",
        },
        {"role": "grpc", "pid": 0, "started_s": 0.0, "restarts": 0, "last_reason": ""},
    ],
    "malformed": 0,
    "counts": [
        {
            "model": "m",
            "version": 1,
            "succeeded": 11,
            "failed": 22,
            "pending": 33,
            "executions": 44,
            "success_ns": 1000,
            "busy_s": 1.0,
        }
    ],
}


class FakeServer:
    """Answers one connection after another with what `answers` has for the verb, or calls it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.answers: dict[str, Any] = {"status": STATUS, "index": [], "load": None, "unload": None}
        self.answers["options"] = []
        self.calls: list[tuple[str, Any]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(str(directory / "ctl"))
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            line = Lifeline(connection)
            while not line.ended:
                line.wait(20)
                for message, _ in line.receive():
                    self._answer(line, message)
            line.close()

    def _answer(self, line: Lifeline, call: Call) -> None:
        self.calls.append((call.verb, json.loads(call.arguments)))
        answer = self.answers.get(call.verb, self._identity)
        if callable(answer):
            answer = answer()
        if answer == "silence":
            return
        line.send(Synced(1))  # nothing that was asked for
        if answer == "hang up":
            line.close()
        elif isinstance(answer, Exception):
            line.send(CallResult(call.id, InvalidArgument.number, str(answer), "null"))
        else:
            line.send(CallResult(call.id, 0, "", json.dumps(answer)))

    def _identity(self) -> Any:
        answer = self.answers["status"]
        status = STATUS if callable(answer) else answer
        is_told = isinstance(status, dict) and "server" in status
        return {**status["server"], **status["processes"][0]} if is_told else status

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(20)


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, words)
