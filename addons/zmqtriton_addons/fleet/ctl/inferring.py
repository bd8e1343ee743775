"""One request to a model on several servers, and whether their answers are the same."""

from __future__ import annotations

import hashlib
import time
from typing import Any

from zmqtriton.ctl import PreparedRequest
from zmqtriton_addons.fleet.ctl.report import Columns
from zmqtriton_addons.fleet.servers.node_service import NodeService

COLUMNS: Columns = {
    "Server": lambda row: row["server"],
    "Time": lambda row: f"{row['seconds'] * 1e3:.1f} ms" if "seconds" in row else "-",
    "Outputs": lambda row: row.get("outputs", "-"),
    "Problem": lambda row: row["problem"],
}
_HEADER_LENGTH = "inference-header-content-length"
_SHOWN_DIGITS = 8


def ask(service: NodeService, path: str, request: PreparedRequest) -> dict[str, Any]:
    """Ask one server; the outputs are shown by a digest."""
    body, headers = request.encode()
    began_s = time.perf_counter()
    answer = service.infer(path, body, headers)
    seconds = time.perf_counter() - began_s
    length = int(answer.headers.get(_HEADER_LENGTH, 0))
    # before the tensors stands what differs from answer to answer, such as ids
    digest = hashlib.sha256(answer.body[length:]).hexdigest()[:_SHOWN_DIGITS]
    return {"seconds": round(seconds, 6), "outputs": digest}
