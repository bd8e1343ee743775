"""A gateway without a server behind it: a real catalogue, and answers made in the process.

Frontends of HTTP and of gRPC are tested with it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any, ClassVar

from tests.supervisor.settings import frontend_settings
from tests.support.streams import FakeStreams
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.wire import (
    RequestBody,
    ResponseBody,
    Tensor,
    VersionInfo,
    encode_body,
    references_in,
)
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.gateway.streams import StreamItem
from zmqtriton_frontends.gateway.token_marks import TokenMarks
from zmqtriton_frontends.inference.admission import (
    NO_OPTIONS,
    CheckedRequest,
    SchedulingOptions,
    prepare,
)
from zmqtriton_frontends.inference.catalogue import Catalogue
from zmqtriton_frontends.inference.trace_sampling import Traces
from zmqtriton_frontends.tensors.arena_body import ArenaBuffer
from zmqtriton_frontends.tensors.references import PlacedBody
from zmqtriton_protos import ModelConfig

Respond = Callable[[CheckedRequest], ResponseBody]


def tensor_config(name: str, datatype: str, dims: list[int], **more: Any) -> dict[str, Any]:
    return {"name": name, "data_type": f"TYPE_{datatype}", "dims": dims, **more}


def version_info(
    name: str = "identity", datatype: str = "FP32", version: int = 1, **fields: Any
) -> VersionInfo:
    """A model that is ready, by default with one input and one output of any length.

    The fields are those of the news, and others of the configuration.
    """
    news = {field: fields.pop(field) for field in VersionInfo._fields if field in fields}
    if fields.pop("decoupled", False):
        fields["model_transaction_policy"] = {"decoupled": True}
    config = {
        "name": name,
        "backend": "python",
        "max_batch_size": 0,
        "input": [tensor_config("INPUT0", datatype, [-1])],
        "output": [tensor_config("OUTPUT0", datatype, [-1])],
        **fields,
    }
    proto = ModelConfig(name=name, backend="python").SerializeToString()
    info = VersionInfo(version, name, version, "READY", None, 1, json.dumps(config), proto)
    return info._replace(**news)


def prepared(
    model: VersionInfo, options: SchedulingOptions = NO_OPTIONS, **parameters: Any
) -> CheckedRequest:
    """A request without tensors to the one model that there is."""
    catalogue = Catalogue()
    catalogue.update(model)
    body = RequestBody("", parameters, [], [])
    return prepare(catalogue, catalogue.find(model.model), body, options)


def echo(request: CheckedRequest) -> ResponseBody:
    """Each INPUTn comes back as OUTPUTn, if the client wants it."""
    outputs = [
        Tensor(name.replace("INPUT", "OUTPUT"), datatype, shape, data)
        for name, datatype, shape, data in request.body.inputs
    ]
    names = request.body.outputs
    return ResponseBody({}, [t for t in outputs if not names or t.name in names])


def failing(error: Exception) -> Respond:
    """A model that always fails."""

    def fail(request: CheckedRequest) -> ResponseBody:
        raise error

    return fail


class FullArena:
    """An arena without memory."""

    def reserve_now(self, size: int, tensors_at: int) -> None:
        return None

    async def reserve(self, size: int, tensors_at: int) -> None:
        return None

    async def gather(self, pieces: list[bytes], *_: Any) -> ArenaBuffer:
        return ArenaBuffer(b"".join(pieces))


class LendingArena:
    """The part of an arena that lent buffers use; all of their memory is there."""

    def __init__(self) -> None:
        #: Blocks that came back.
        self.freed: list[int] = []

    def make(self, block: int, end: int) -> None:
        """All of it is there."""

    def abandon(self, room: ArenaBuffer) -> None:
        room.free()

    @property
    def leases(self) -> Any:
        return self

    def end(self, blocks: list[int]) -> None:
        self.freed += blocks


class FakeGateway(Gateway):
    """Answers inferences by a function and the rest from what the test put into its fields."""

    ROLE: ClassVar[str] = "http"

    def __init__(self, models: Iterable[VersionInfo], settings: dict[str, Any]) -> None:
        self.settings = frontend_settings(self.ROLE, **settings)
        self.serial = 7
        self.payload: Any = FullArena()
        self.catalogue = Catalogue()
        self.traces = Traces()
        self.token_marks = TokenMarks(lambda call: None)
        self.is_stopping = self.is_ending = False
        self.begins_sequences_s = None
        for model in models:
            self.catalogue.update(model)
        self.respond: Respond = echo
        #: Inferences wait for it where a test sets one.
        self.gate: asyncio.Event | None = None
        #: The same for single requests, by their ids.
        self.gates: dict[str, asyncio.Event] = {}
        #: What they wait for before they go to the broker.
        self.placements: dict[str, Callable[[], Awaitable[object]]] = {}
        self.fake_streams = FakeStreams()
        self.requests: list[CheckedRequest] = []
        self.cancelled = 0
        #: What answers the requests with one response, by their ids from 1 on.
        self.pending_tasks: list[asyncio.Task[None]] = []
        #: Result or error of control calls, of some by their verbs, and the calls that came.
        self.control_result: Any = None
        self.control_results: dict[str, Any] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.counters: dict[str, Any] = {"model_stats": []}
        self.statistics_calls: list[tuple[str, int]] = []
        self.statistics_kinds: list[int] = []

    def begin(self, request: CheckedRequest, reply: Any) -> int:
        answering = self._answer(request, reply)
        self.pending_tasks.append(asyncio.get_running_loop().create_task(answering))
        return len(self.pending_tasks)

    async def _answer(self, request: CheckedRequest, reply: Any) -> None:
        try:
            placement = self.placements.get(request.body.request_id)
            if placement is not None:
                await placement()
            self.requests.append(request)
            if request.on_asked is not None:
                request.on_asked()
            gate = self.gates.get(request.body.request_id, self.gate)
            if gate is not None:
                await gate.wait()
            response = self.respond(request)
            body = encode_body(response)
            reply.set_result(PlacedBody(body) if references_in(response.outputs) else body)
        except Exception as error:  # noqa: BLE001 - whatever the test raises
            reply.set_exception(error)

    def cancel(self, own_id: int) -> None:
        self.cancelled += self.pending_tasks[own_id - 1].cancel()

    async def stream(self, request: CheckedRequest) -> AsyncGenerator[StreamItem, None]:
        self.requests.append(request)
        async with aclosing(self.fake_streams.follow(request)) as items:
            async for item in items:
                yield item

    async def call(self, verb: str, arguments: dict[str, Any], client: str = "") -> Any:
        self.calls.append((verb, arguments))
        answer = self.control_results.get(verb, self.control_result)
        if isinstance(answer, ZmqTritonError):
            raise answer
        return answer

    async def statistics(
        self, model: str = "", version: int = -1, *, kind: int = 0
    ) -> dict[str, Any]:
        self.statistics_calls.append((model, version))
        self.statistics_kinds.append(kind)
        return self.counters
