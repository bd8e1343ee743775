"""A client of the Debug Adapter Protocol that says what VS Code says."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_WITHIN_S = 60.0


class Editor:
    """An editor at one debugger, which it attaches to by a configuration of launch.json."""

    def __init__(self, configuration: Mapping[str, Any]) -> None:
        self._configuration = configuration
        connect = configuration["connect"]
        self._socket = socket.create_connection((connect["host"], connect["port"]), _WITHIN_S)
        self._stream = self._socket.makefile("rb")
        self._sent = 0
        #: Messages that nobody has awaited yet.
        self._unread: list[dict[str, Any]] = []

    def attach(self, breakpoints: Mapping[Path, list[int]]) -> None:
        """Say all that an editor says before the program goes on."""
        self.ask(
            "initialize",
            clientID="vscode",
            adapterID=self._configuration["type"],
            pathFormat="path",
            linesStartAt1=True,
            columnsStartAt1=True,
            supportsVariableType=True,
            supportsRunInTerminalRequest=True,
        )
        attached = self._send("attach", {**self._configuration, "justMyCode": True})
        self.event("initialized")
        for file, lines in breakpoints.items():
            found = self.ask(
                "setBreakpoints",
                source={"name": file.name, "path": str(file)},
                lines=lines,
                breakpoints=[{"line": line} for line in lines],
                sourceModified=False,
            )
            assert all(one["verified"] for one in found["breakpoints"]), found
        self.ask("setFunctionBreakpoints", breakpoints=[])
        self.ask("setExceptionBreakpoints", filters=["uncaught"])
        self.ask("configurationDone")
        self._await(lambda one: one.get("request_seq") == attached)
        self.ask("threads")

    def stopped(self) -> tuple[int, dict[str, Any]]:
        """Await a stop; return its thread, and its innermost frame."""
        thread = self.event("stopped")["threadId"]
        stack = self.ask("stackTrace", threadId=thread, startFrame=0, levels=20)
        return thread, stack["stackFrames"][0]

    def variables(self, frame: Mapping[str, Any]) -> dict[str, str]:
        """Return the local variables of a frame."""
        scopes = self.ask("scopes", frameId=frame["id"])["scopes"]
        [local] = [one for one in scopes if one["name"] == "Locals"]
        found = self.ask("variables", variablesReference=local["variablesReference"])
        return {one["name"]: one["value"] for one in found["variables"]}

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Send a request; return the body of its response."""
        number = self._send(command, arguments)
        response = self._await(lambda one: one.get("request_seq") == number)
        assert response["success"], response
        body: dict[str, Any] = response.get("body") or {}
        return body

    def event(self, name: str) -> dict[str, Any]:
        body: dict[str, Any] = self._await(lambda one: one.get("event") == name).get("body") or {}
        return body

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def _send(self, command: str, arguments: Mapping[str, Any]) -> int:
        self._sent += 1
        request = {"seq": self._sent, "type": "request", "command": command}
        text = json.dumps({**request, "arguments": arguments}).encode()
        self._socket.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(text), text))
        return self._sent

    def _await(self, is_it: Any) -> dict[str, Any]:
        while not (found := [one for one in self._unread if is_it(one)]):
            length = 0
            while (line := self._stream.readline()) != b"\r\n":
                assert line, f"the debugger has gone; it said {self._unread}"
                name, _, value = line.partition(b":")
                length = int(value) if name == b"Content-Length" else length
            self._unread.append(json.loads(self._stream.read(length)))
        self._unread.remove(found[0])
        return found[0]
