"""Calls and messages of gRPC, and what stands behind its handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tests.frontends import fake_gateway
from tests.frontends.fake_gateway import version_info
from tests.support.shares import share_of
from zmqtriton_floor.token_file import Grant
from zmqtriton_floor.wire import VersionInfo
from zmqtriton_frontends.access.bearer_tokens import bearer_tokens_of
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.gateway.streams import StreamItem
from zmqtriton_frontends.grpc_api.call import CallFacts, Response, answered
from zmqtriton_frontends.grpc_api.handlers import table
from zmqtriton_frontends.inference.admission import CheckedRequest
from zmqtriton_frontends.inference.open_sequences import OpenSequences
from zmqtriton_frontends.process.ledger import Book
from zmqtriton_frontends.process.peer_user import Endpoint
from zmqtriton_protos import SERVICES, message

SETTINGS: dict[str, Any] = {
    "grpc_address": "127.0.0.1",
    "grpc_port": 0,
    "grpc_processes": 1,
    "client_memory_byte_size": 2 << 30,
}


INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
LIVE = "/inference.GRPCInferenceService/ServerLive"


def infer_request(model: str = "m", request_id: str = "", count: int = 1, **fields: Any) -> Any:
    """A request with one tensor of so many elements."""
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [count]}
    fields = {"raw_input_contents": [b"abcd" * count], "inputs": [tensor], **fields}
    return message("inference.ModelInferRequest")(model_name=model, id=request_id, **fields)


def written(*arguments: Any, **fields: Any) -> bytes:
    """The same as its bytes."""
    return bytes(infer_request(*arguments, **fields).SerializeToString())


class FakeGateway(fake_gateway.FakeGateway):
    """Has the models that the test gives it."""

    ROLE = "grpc"

    def __init__(self, *models: VersionInfo, settings: dict[str, Any] | None = None) -> None:
        super().__init__(models, {**SETTINGS, **(settings or {})})


class Silent(FakeGateway):
    """Keeps no request, and answers none."""

    def __init__(self) -> None:
        super().__init__(version_info("m"), version_info("d", decoupled=True))
        self.sizes: list[int] = []
        self.replies: list[Any] = []
        #: What its streams wait for.
        self.may_end = asyncio.Event()

    def begin(self, request: CheckedRequest, reply: Any) -> int:
        self.sizes.append(len(request.body.inputs[0].data))
        self.replies.append(reply)
        return len(self.replies)

    def cancel(self, own_id: int) -> None:
        """Do nothing: there is no task."""

    async def stream(self, request: CheckedRequest) -> Any:
        self.begin(request, None)
        del request
        await self.may_end.wait()
        yield StreamItem(None, None, True)


class NotedAnswers:
    """Keeps responses and errors."""

    def __init__(self) -> None:
        self.all: list[Response | Exception] = []

    def set_result(self, response: Response, /) -> None:
        self.all.append(response)

    def set_exception(self, error: Exception, /) -> None:
        self.all.append(error)


class FakeCall:
    """A call as a transport shows it to a handler, without a transport."""

    def __init__(self, deadline_ns: int = 0) -> None:
        self.deadline_ns = deadline_ns
        self.metadata: list[tuple[str, str | bytes]] = []
        self.ends = Endpoint("127.0.0.1", 0), Endpoint("127.0.0.1", 0)
        self.authorization: list[str] = []
        self.grant: Grant | None = None
        self.trailers: list[tuple[str, str | bytes]] = []
        self.answers = share_of(Book(1 << 30, is_bounded=False))
        self.requests = share_of(Book(1 << 30))
        self.sequences = OpenSequences()
        self.turns = 0
        #: What is to be done step by step.
        self.works: list[Callable[[], bool]] = []

    @property
    def facts(self) -> CallFacts:
        return CallFacts.of(lambda: self.metadata, self.sequences)

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
        self.rows = {
            (row.service, row.method): row
            for row in table(gateway, bearer_tokens_of(gateway.settings))
        }

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
