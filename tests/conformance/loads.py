"""Loads a model and collects what the server says of it: the outcome, the index, the configuration.

Called by play.py. The configuration is kept as the text that it is, because clients compare it.
"""

from __future__ import annotations

import http.client
import json
import re
from pathlib import Path
from typing import Any

from tests.conformance.cases import Loaded

_NOT_READ = "failed to poll from model repository"


def load(port: int, request: Loaded, log: Path | None) -> dict[str, Any]:
    """Load a case and return what is recorded; `log` has Triton's reasons for unreadable models."""
    ask = _Asking(port, request.timeout_s)
    path = f"/v2/repository/models/{request.model}/load"
    status, text = ask("POST", path, {"parameters": dict(request.parameters)})
    answer: dict[str, Any] = {"status": status}
    if status != http.client.OK:
        error = json.loads(text)["error"]
        if log is not None and error.endswith(_NOT_READ):
            error += _reason(log.read_text("utf-8", "replace"), request.model)
        answer["error"] = error
        if _NOT_READ in error:
            return answer
    _, text = ask("POST", "/v2/repository/index", {})
    answer["index"] = [entry for entry in json.loads(text) if entry["name"] == request.model]
    if status == http.client.OK:
        answer["config"] = ask("GET", f"/v2/models/{request.model}/config")[1]
        answer["metadata"] = ask("GET", f"/v2/models/{request.model}")[1]
    return answer


class _Asking:
    """One request after another to one server."""

    def __init__(self, port: int, timeout_s: float) -> None:
        self._port = port
        self._timeout_s = timeout_s

    def __call__(self, method: str, path: str, document: Any = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=self._timeout_s)
        try:
            connection.request(method, path, None if document is None else json.dumps(document))
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()


def _reason(log: str, model: str) -> str:
    """Return the last line about a model that could not be read; nothing if there is none."""
    lines = re.findall(
        rf"Poll failed for model directory '{re.escape(model)}'(: .*)\"?$", log, re.MULTILINE
    )
    if not lines:
        return ""
    return str(lines[-1]).removesuffix('"').replace('\\"', '"').replace("\\n", "\n")
