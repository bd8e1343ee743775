"""A client of the Debug Adapter Protocol that says what VS Code says."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_WITHIN_S = 60.0
#: What VS Code says that it can do.
_CAPABILITIES = {
    "supportsVariableType": True,
    "supportsVariablePaging": True,
    "supportsRunInTerminalRequest": True,
    "supportsProgressReporting": True,
    "supportsInvalidatedEvent": True,
    "supportsMemoryReferences": True,
    "supportsArgsCanBeInterpretedByShell": True,
    "supportsMemoryEvent": True,
    "supportsStartDebuggingRequest": True,
    "supportsANSIStyling": True,
}
#: What its extension for Python adds to a configuration of launch.json.
_ADDED = {
    "justMyCode": True,
    "showReturnValue": True,
    "debugOptions": ["RedirectOutput", "ShowReturnValue"],
    "clientOS": "unix",
    "workspaceFolder": "/",
    "__configurationTarget": 6,
    "__sessionId": "6f9f6f5e-5f0e-4a52-8d0e-3c1d2f1f9b60",
}


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
        able = self.ask(
            "initialize",
            clientID="vscode",
            clientName="Visual Studio Code",
            locale="en",
            adapterID=self._configuration["type"],
            pathFormat="path",
            linesStartAt1=True,
            columnsStartAt1=True,
            **_CAPABILITIES,
        )
        attached = self._send("attach", {**self._configuration, **_ADDED})
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
        assert able["supportsFunctionBreakpoints"], able
        self.ask("setFunctionBreakpoints", breakpoints=[])
        filters = [one["filter"] for one in able["exceptionBreakpointFilters"] if one["default"]]
        self.ask("setExceptionBreakpoints", filters=filters)
        assert able["supportsConfigurationDoneRequest"], able
        self.ask("configurationDone")
        self._await(lambda one: one.get("request_seq") == attached)
        self.ask("threads")

    def stopped(self) -> tuple[int, dict[str, Any]]:
        """Await a stop; return its thread, and its innermost frame."""
        thread = self.event("stopped")["threadId"]
        assert thread in {one["id"] for one in self.ask("threads")["threads"]}
        # the editor shows the innermost frame before it has the others
        first = self.ask("stackTrace", threadId=thread, startFrame=0, levels=1)
        self.ask("stackTrace", threadId=thread, startFrame=1, levels=19)
        return thread, first["stackFrames"][0]

    def variables(self, frame: Mapping[str, Any]) -> dict[str, str]:
        """Return the local variables of a frame."""
        scopes = self.ask("scopes", frameId=frame["id"])["scopes"]
        [local] = [one for one in scopes if one["name"] == "Locals"]
        found = self.ask("variables", variablesReference=local["variablesReference"])
        return {one["name"]: one["value"] for one in found["variables"]}

    def evaluate(self, frame: Mapping[str, Any], expression: str, context: str) -> str:
        """Return the value of an expression: of its hover, watch or console (repl)."""
        found = self.ask("evaluate", expression=expression, frameId=frame["id"], context=context)
        return found["result"]

    def disconnect(self) -> None:
        """End the session, as the button does that detaches the editor."""
        self.ask("disconnect", restart=False, terminateDebuggee=False)

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Send a request; return the body of its response."""
        number = self._send(command, arguments)
        response = self._await(lambda one: one.get("request_seq") == number)
        assert response["success"], response
        return response.get("body") or {}

    def event(self, name: str) -> dict[str, Any]:
        return self._await(lambda one: one.get("event") == name).get("body") or {}

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
