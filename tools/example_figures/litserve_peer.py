"""The examples that compute in batches, in LitServe, as its documentation has it.

    python -m tools.example_figures.litserve_peer digits 8000

The batches have the size of the example's, and there are as many processes. Files are base64 in
JSON: its requests travel to other processes.
"""

from __future__ import annotations

import base64
import os
import sys
from typing import Any

import litserve

from tools.example_figures import fastapi_peer as tasks

BATCHES = {"digits": 64, "file-types": 32, "search": 32}
_MAKE = {"digits": tasks.digits, "file-types": tasks.file_types, "search": tasks.search}


class Api(litserve.LitAPI):  # type: ignore[misc]
    """One of the tasks, by the variable EXAMPLE."""

    def setup(self, device: str) -> None:
        self.compute = _MAKE[os.environ["EXAMPLE"]]()

    # without a hint, LitServe passes on the JSON
    def decode_request(self, request):  # type: ignore[no-untyped-def]
        return request["query"] if "query" in request else base64.b64decode(request["file"])

    def predict(self, batch: Any) -> Any:
        return self.compute(batch)

    def unbatch(self, answers: Any) -> Any:
        return answers

    def encode_response(self, answer: Any) -> Any:
        is_list = isinstance(answer, list)
        return {"output": [*map(tasks.as_json, answer)] if is_list else tasks.as_json(answer)}


if __name__ == "__main__":
    example, port = sys.argv[1], int(sys.argv[2])
    os.environ["EXAMPLE"] = example
    server = litserve.LitServer(
        Api(max_batch_size=BATCHES[example], batch_timeout=0.001),
        accelerator="cpu",
        workers_per_device=tasks.PROCESSES.get(example, 1),
    )
    server.run(port=port, generate_client_file=False, log_level="warning", access_log=False)
