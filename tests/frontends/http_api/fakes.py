"""A gateway without a server, for tests in this process.

It has a real catalogue, and answers that the test makes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from falcon.testing import ASGIConductor, Result

from tests.supervisor.settings import frontend_settings
from tests.support.streams import FakeStreams
from zmqtriton import addons
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.wire import ResponseBody, Tensor, VersionInfo, encode_body
from zmqtriton_frontends.gateway.pending_request import PendingRequest
from zmqtriton_frontends.gateway.token_marks import TokenMarks
from zmqtriton_frontends.http_api import app
from zmqtriton_frontends.http_api.asgi.access import Access
from zmqtriton_frontends.inference.admission import CheckedRequest
from zmqtriton_frontends.inference.catalogue import Catalogue
from zmqtriton_frontends.inference.trace_sampling import Traces

SETTINGS: dict[str, Any] = {
    "http_workers": 1,
    "grpc_processes": 1,
    "http_addons": tuple(addons.rows(addons.HTTP).values()),
    "started_at": 1_700_000_000,
}

Respond = Callable[[CheckedRequest], ResponseBody]


def tensor_config(name: str, datatype: str, dims: list[int], **more: Any) -> dict[str, Any]:
    return {"name": name, "data_type": f"TYPE_{datatype}", "dims": dims, **more}


def version_info(
    name: str = "identity", datatype: str = "FP32", version: int = 1, **config: Any
) -> VersionInfo:
    """A model that is ready, by default with one input and one output of any length."""
    whole = {
        "name": name,
        "backend": "python",
        "max_batch_size": 0,
        "input": [tensor_config("INPUT0", datatype, [-1])],
        "output": [tensor_config("OUTPUT0", datatype, [-1])],
        **config,
    }
    return VersionInfo(version, name, version, "READY", None, 1, json.dumps(whole), b"")


MODELS = (
    version_info(),
    version_info("strings", "STRING"),
    version_info("booleans", "BOOL"),
    version_info("integers", "INT32"),
    version_info("unsigned", "UINT64"),
    version_info("halves", "FP16"),
    version_info("brains", "BF16"),
    version_info("decoupled", model_transaction_policy={"decoupled": True}),
    version_info(
        "batching",
        max_batch_size=8,
        input=[tensor_config("INPUT0", "FP32", [2]), tensor_config("INPUT1", "FP32", [2])],
    ),
    version_info("rows", max_batch_size=8, input=[tensor_config("INPUT0", "FP32", [3, -1])]),
)


def echo(request: CheckedRequest) -> ResponseBody:
    """Each INPUTn comes back as OUTPUTn, if the client wants it."""
    outputs = [
        Tensor(name.replace("INPUT", "OUTPUT"), datatype, shape, bytes(data))
        for name, datatype, shape, data in request.body.inputs
    ]
    names = request.body.outputs
    return ResponseBody({}, [t for t in outputs if not names or t.name in names])


async def room_for_all(size: int) -> None:
    """There is room for everything."""


class FakeGateway:
    """Records what it is asked."""

    def __init__(self, **settings: Any) -> None:
        self.settings = frontend_settings("http", **{**SETTINGS, **settings})
        self.serial = 7
        self.catalogue = Catalogue()
        self.traces = Traces()
        self.token_marks = TokenMarks(lambda call: None)
        self.is_stopping = self.is_ending = False
        self.entrances = None
        for message in MODELS:
            self.catalogue.update(message)
        self.respond: Respond = echo
        self.requests: list[CheckedRequest] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.control_result: Any = None
        self.statistics_calls: list[tuple[str, int]] = []
        self.model_stats: list[dict[str, Any]] = []
        self.fake_streams = FakeStreams()
        #: Of those that were begun, what waits for a response, while they are held.
        self.is_holding = False
        self.held_replies: dict[int, PendingRequest] = {}

    def stream(self, request: CheckedRequest) -> Any:
        self.requests.append(request)
        return self.fake_streams.follow(request)

    def begin(self, request: CheckedRequest, reply: PendingRequest) -> int:
        self.requests.append(request)
        number = len(self.requests)
        self.held_replies[number] = reply
        if not self.is_holding:
            asyncio.get_running_loop().call_soon(self.release_held, number)
        return number

    def release_held(self, number: int) -> None:
        reply = self.held_replies.pop(number)
        try:
            body = encode_body(self.respond(self.requests[number - 1]))
        except Exception as error:  # noqa: BLE001 - whatever the test raises
            reply.set_exception(error)
        else:
            reply.set_result(body)

    def cancel(self, number: int) -> None:
        self.held_replies.pop(number, None)

    async def call(self, verb: str, arguments: dict[str, Any]) -> Any:
        self.calls.append((verb, arguments))
        if isinstance(self.control_result, ZmqTritonError):
            raise self.control_result
        return self.control_result

    async def statistics(self, model: str = "", version: int = -1) -> dict[str, Any]:
        self.statistics_calls.append((model, version))
        return {"model_stats": self.model_stats}


class Client:
    """Asks the application in this process; each request has a loop of its own, closed after it."""

    def __init__(self, gateway: FakeGateway) -> None:
        self._gateway: Any = gateway
        self._app: Any = None

    def request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Result:
        async def simulate() -> Result:
            if self._app is None:  # in a loop: tokens are watched in one
                access = Access(self._gateway.settings)
                self._app = app.build(self._gateway, app.routes(self._gateway), access)
            async with ASGIConductor(self._app) as conductor:
                result = await conductor.simulate_request(method, path, body=body, headers=headers)
            return result

        return asyncio.run(simulate())
