"""Runs code in the model api_probe of a real server, which reports what the code returns.

Probe(server).ask("return pb_utils.get_model_dir()")
"""

from __future__ import annotations

import json
import textwrap
from typing import Any

from tests.support.server import Server

Tensors = tuple[dict[str, Any], ...]


class ErrorResponse(Exception):
    """The server's answer is an error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status} {text}")


class Probe:
    """A client of the probes of one server."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def run(self, code: str, **more: Any) -> Any:
        """Return what the code returns, or raises as text."""
        [report] = self.infer(code, **more)["outputs"]
        [value] = report["data"]
        return json.loads(value)

    def infer(self, code: str, inputs: Tensors = (), **fields: Any) -> Any:
        """The whole response, to code that answers by itself."""
        row = {"name": "CODE", "shape": [1], "datatype": "BYTES", "data": [textwrap.dedent(code)]}
        return self.post("api_probe", {"inputs": [row, *inputs], **fields})

    def post(self, model: str, document: Any) -> Any:
        status, answer = self.server.request_json(f"/v2/models/{model}/infer", document)
        if status != 200:
            raise ErrorResponse(status, answer["error"])
        return answer
