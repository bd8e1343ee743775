"""One server of a fleet, as it is asked over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from zmqtriton.control_client import NoServerError
from zmqtriton_addons.ctl.http_service import Answer, HttpService, RefusedRequest
from zmqtriton_addons.fleet.servers.nodes import Node
from zmqtriton_floor.errors import ZmqTritonError

Found = TypeVar("Found")

#: Servers that are asked at once.
_MAX_AT_ONCE = 32
_NOT_READY = 400


class NodeService:
    """Raises ZmqTritonError for a refusal, and NoServerError if nobody answers."""

    def __init__(self, node: Node, headers: Mapping[str, str], timeout_s: float) -> None:
        self.node = node
        self.http = HttpService(node.url, headers, timeout_s)

    def is_ready(self, model: str = "") -> bool:
        """Return the readiness of a model, or of the server."""
        path = f"{_path(model)}/ready" if model else "/v2/health/ready"
        try:
            self.http.request(path)
        except RefusedRequest as refusal:
            if refusal.status != _NOT_READY:
                raise
            return False
        return True

    def index(self) -> list[dict[str, Any]]:
        """Return the versions of all models with their states."""
        entries: list[dict[str, Any]] = self._post("/v2/repository/index", {})
        return entries

    def serves(self, model: str) -> bool:
        """Return whether it should serve a model, ready or not."""
        return any(e["name"] == model and e.get("reason") != "unloaded" for e in self.index())

    def load_figures(self) -> dict[str, Any]:
        figures: dict[str, Any] = self.http.request("/v2/load").json()
        return figures

    def infer(self, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send an inference to a model at this path."""
        return self.http.request(f"{path}/infer", body, headers)

    def load(self, model: str) -> str:
        self._post(f"/v2/repository/models/{quote(model, safe='')}/load", {})
        return "loaded"

    def unload(self, model: str) -> str:
        self._post(f"/v2/repository/models/{quote(model, safe='')}/unload", {})
        return "unloaded"

    def drain(self, model: str = "", within_s: float | None = None) -> str:
        """Drain a model, or the server, and return what became of it."""
        wish = {} if within_s is None else {"within_s": within_s}
        return str(self._post(f"{_path(model)}/drain", wish)["state"])

    def undrain(self, model: str = "") -> str:
        return str(self._post(f"{_path(model)}/undrain", {})["state"])

    def _post(self, path: str, document: Mapping[str, Any]) -> Any:
        answer = self.http.request(path, json.dumps(document).encode())
        return answer.json() if answer.body.strip() else {}


def _path(model: str) -> str:
    return f"/v2/models/{quote(model, safe='')}" if model else "/v2"


@dataclass(frozen=True)
class Reply(Generic[Found]):
    """The answer of a server, or the reason against it."""

    node: Node
    answer: Found | None
    problem: str = ""


def ask_all(
    services: Sequence[NodeService], question: Callable[[NodeService], Found]
) -> list[Reply[Found]]:
    """Ask all servers at once."""
    with ThreadPoolExecutor(min(_MAX_AT_ONCE, max(1, len(services)))) as threads:
        return list(threads.map(lambda service: ask(service, question), services))


def ask(service: NodeService, question: Callable[[NodeService], Found]) -> Reply[Found]:
    try:
        return Reply(service.node, question(service))
    except ZmqTritonError as error:
        return Reply(service.node, None, error.text)
    except NoServerError as error:
        return Reply(service.node, None, str(error))
