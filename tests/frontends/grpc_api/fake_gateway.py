"""A gateway without a server behind it: a real catalogue, answers made in the process.

Shared by the tests of this directory.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

from tests.supervisor.settings import frontend_settings
from tests.support.streams import FakeStreams
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.token_file import Grant
from zmqtriton_floor.wire import ResponseBody, Tensor, VersionInfo, encode_body, references_in
from zmqtriton_frontends.entrance.ask import REPORT_HEADERS
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.gateway.streams import StreamItem
from zmqtriton_frontends.gateway.token_marks import TokenMarks
from zmqtriton_frontends.grpc_api.call import answered
from zmqtriton_frontends.grpc_api.handlers import table
from zmqtriton_frontends.inference.admission import CheckedRequest
from zmqtriton_frontends.inference.catalogue import Catalogue
from zmqtriton_frontends.inference.open_sequences import OpenSequences
from zmqtriton_frontends.inference.trace_sampling import Traces
from zmqtriton_frontends.process.ledger import Book, Share
from zmqtriton_frontends.process.peer_user import Place
from zmqtriton_frontends.tensors.arena_body import ArenaBuffer
from zmqtriton_frontends.tensors.references import PlacedBody
from zmqtriton_protos import SERVICES, ModelConfig

SETTINGS: dict[str, Any] = {
    "grpc_address": "127.0.0.1",
    "grpc_port": 0,
    "grpc_processes": 1,
    "client_memory_byte_size": 2 << 30,
}

Respond = Callable[[CheckedRequest], ResponseBody]


def echo(request: CheckedRequest) -> ResponseBody:
    """Each input INPUTn comes back as OUTPUTn."""
    outputs = [
        Tensor(name.replace("INPUT", "OUTPUT"), datatype, shape, data)
        for name, datatype, shape, data in request.body.inputs
    ]
    return ResponseBody({}, outputs)


def version_info(name: str, version: int = 1, **fields: Any) -> VersionInfo:
    """A ready model with one FP32 input and output of any length, unless the fields say else."""
    config: dict[str, Any] = {
        "name": name,
        "backend": "python",
        "max_batch_size": fields.pop("max_batch_size", 0),
        "input": fields.pop("input", [_tensor("INPUT0", fields.get("datatype", "FP32"))]),
        "output": fields.pop("output", [_tensor("OUTPUT0", fields.pop("datatype", "FP32"))]),
    }
    if fields.pop("decoupled", False):
        config["model_transaction_policy"] = {"decoupled": True}
    proto = ModelConfig(name=name, backend="python")
    return VersionInfo(
        generation=fields.pop("generation", version),
        model=name,
        version=version,
        state=fields.pop("state", "READY"),
        reason=fields.pop("reason", None),
        ready_instances=fields.pop("ready_instances", 1),
        config=json.dumps(config),
        config_proto=proto.SerializeToString(),
        has_is_ready=fields.pop("is_asked", 0),
    )


def _tensor(name: str, datatype: str) -> dict[str, Any]:
    return {
        "name": name,
        "data_type": f"TYPE_{'STRING' if datatype == 'BYTES' else datatype}",
        "dims": [-1],
    }


class FullArena:
    """An arena without memory."""

    def reserve_now(self, size: int, tensors_at: int) -> None:
        return None

    async def reserve(self, size: int, tensors_at: int) -> None:
        return None

    async def gather(self, pieces: list[bytes], *_: Any) -> ArenaBuffer:
        return ArenaBuffer(b"".join(pieces))


class FakeGateway(Gateway):
    """Answers inferences by a function and the rest from what the test put into its fields."""

    def __init__(self, *models: VersionInfo, settings: dict[str, Any] | None = None) -> None:
        self.settings = frontend_settings("grpc", **{**SETTINGS, **(settings or {})})
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
        #: And before the request has gone to the broker.
        self.placement_gates: dict[str, asyncio.Event] = {}
        self.fake_streams = FakeStreams()
        self.requests: list[CheckedRequest] = []
        self.cancelled = 0
        #: What answers the requests that were begun without a task, by their ids from 1 on.
        self.pending_tasks: list[asyncio.Task[None]] = []
        #: Verb -> result or error of a control call, and the calls that came.
        self.control_results: dict[str, Any] = {"clients": None}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.counters: dict[str, Any] = {"model_stats": []}
        self.statistics_calls: list[tuple[str, int]] = []

    async def respond_late(self, request: CheckedRequest) -> ResponseBody:
        room = self.placement_gates.get(request.body.request_id)
        if room is not None:
            await room.wait()
        self.requests.append(request)
        if request.on_asked is not None:
            request.on_asked()
        gate = self.gates.get(request.body.request_id, self.gate)
        if gate is not None:
            try:
                await gate.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        with self.catalogue.regions.claim(request.places) as claim:
            return claim.store(self.respond(request))

    def begin(self, request: CheckedRequest, reply: Any) -> int:
        async def answer() -> None:
            try:
                response = await self.respond_late(request)
                body = encode_body(response)
                reply.set_result(PlacedBody(body) if references_in(response.outputs) else body)
            except ZmqTritonError as error:
                reply.set_exception(error)
            except ZeroDivisionError as mistake:
                reply.set_exception(mistake)

        self.pending_tasks.append(asyncio.get_running_loop().create_task(answer()))
        return len(self.pending_tasks)

    def cancel(self, own_id: int) -> None:
        self.pending_tasks[own_id - 1].cancel()

    async def stream(self, request: CheckedRequest) -> AsyncGenerator[StreamItem, None]:
        self.requests.append(request)
        async with aclosing(self.fake_streams.follow(request)) as items:
            async for item in items:
                yield item

    async def call(self, verb: str, arguments: dict[str, Any]) -> Any:
        self.calls.append((verb, arguments))
        answer = self.control_results[verb]
        if isinstance(answer, ZmqTritonError):
            raise answer
        return answer

    async def statistics(
        self, model: str = "", version: int = -1, *, kind: int = 0
    ) -> dict[str, Any]:
        self.statistics_calls.append((model, version))
        return self.counters


class FakeCall:
    """A call as a transport shows it to a handler, without a transport."""

    def __init__(self, deadline_ns: int = 0) -> None:
        self.deadline_ns = deadline_ns
        self.metadata: list[tuple[str, str | bytes]] = []
        self.is_cancelled = False
        self.ends = Place("127.0.0.1", 0), Place("127.0.0.1", 0)
        self.authorization: list[str] = []
        self.grant: Grant | None = None
        self.trailers: list[tuple[str, str | bytes]] = []
        self.answers = Share(Book(1 << 30, is_bounded=False))
        self.requests = Share(Book(1 << 30))
        self.sequences = OpenSequences()
        self.turns = 0
        #: What is to be done step by step.
        self.works: list[Callable[[], bool]] = []

    @property
    def has_wishes(self) -> bool:
        return any(name.encode() in REPORT_HEADERS for name, _ in self.metadata)

    def add_trailers(self, pairs: Sequence[tuple[str, str | bytes]]) -> None:
        self.trailers += pairs

    async def turn(self, begun: float) -> None:
        self.turns += 1
        await asyncio.sleep(0)

    def work(self, step: Callable[[], bool]) -> None:
        self.works.append(step)


class InMemoryTransport:
    """A transport of no bytes on any line: finds the row of the table and awaits it."""

    def __init__(self, gateway: Gateway) -> None:
        self.rows = {(row.service, row.method): row for row in table(gateway)}

    def call_unary(self, method: str, request: Any, *, call: FakeCall | None = None) -> Any:
        """The response to a unary RPC of the inference service, as a message."""
        return asyncio.run(self.call_unary_async(method, request, call=call))

    async def call_unary_async(
        self,
        method: str,
        request: Any,
        *,
        service: str = "inference.GRPCInferenceService",
        call: FakeCall | None = None,
    ) -> Any:
        row = self.rows[service, method]
        assert row.unary is not None
        data = await answered(row.unary, request.SerializeToString(), call or FakeCall())
        return {rpc.name: rpc.response for rpc in SERVICES[service]}[method].FromString(data)
