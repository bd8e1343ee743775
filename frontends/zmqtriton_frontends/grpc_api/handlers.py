"""The table of RPCs, each with its restriction category and its handler.

Transports serve this table; the table knows no transport. The transport answers an RPC that is not
in the table with UNIMPLEMENTED.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple, Protocol

from google.protobuf.json_format import ParseDict

from zmqtriton_floor.errors import Unavailable, ZmqTritonError
from zmqtriton_frontends.access import refusals
from zmqtriton_frontends.access.bearer_tokens import (
    OPEN,
    BearerTokens,
    describe_client,
    need_of,
)
from zmqtriton_frontends.gateway.control_calls import on_behalf_of
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.grpc_api.call import (
    Begin,
    Handle,
    RpcCall,
    by_task,
    source_of,
)
from zmqtriton_frontends.grpc_api.control import administration, metadata
from zmqtriton_frontends.grpc_api.control.reading import read
from zmqtriton_frontends.grpc_api.control.reflection import Reflection, refuse
from zmqtriton_frontends.grpc_api.inference.convert import serialize
from zmqtriton_frontends.grpc_api.inference.infer import ModelInfer
from zmqtriton_frontends.grpc_api.inference.response import Pieces
from zmqtriton_frontends.grpc_api.inference.stream_infer import Streaming
from zmqtriton_frontends.inference.restrictions import RequiredHeader, by_category
from zmqtriton_protos import SERVICES


class RpcResponses(Protocol):
    """The messages that are sent to a client, one after the other."""

    def __aiter__(self) -> AsyncIterator[bytes | Pieces]: ...

    async def aclose(self) -> None:
        """End the responses: no more of them will be read."""


#: Returns the fields of the response to a message.
_OfMessage = Callable[[Any, RpcCall], Coroutine[Any, Any, dict[str, Any]]]
Exchange = Callable[[AsyncIterator[bytes], RpcCall], RpcResponses]

_INFERENCE = "inference.GRPCInferenceService"
_HEALTH = "grpc.health.v1.Health"
#: Names of the reflection service, for current and for older clients; the messages are the same.
_REFLECTION = (
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
)


class Rpc(NamedTuple):
    """One row; either unary or exchange answers it."""

    service: str
    method: str
    category: str
    unary: Begin | None = None
    #: Any number of requests, many responses; the transport closes what it returns.
    exchange: Exchange | None = None
    #: The handler keeps the request until it has answered.
    keeps_request: bool = False
    #: The messages name models, and the handler checks whether the client's token is for them.
    names_model: bool = False
    #: Raises if the client may not call this. The handler does so, too; a transport may ask before
    #: it receives a large request.
    check: Callable[[RpcCall], None] | None = None
    #: Called when the server stops: ends what may go on for as long as a client likes.
    drain: Callable[[], None] = lambda: None


def table(gateway: Gateway, tokens: BearerTokens | None) -> list[Rpc]:
    """Return all RPCs, answered through this gateway, with the checks of keys and tokens."""
    restrictions = by_category(gateway.settings.access.restrictions)
    return [
        _checked(rpc, restrictions.get(rpc.category), tokens)
        for rpc in [*_rpcs(gateway), *_reflection(gateway)]
    ]


def _check_key(restriction: RequiredHeader, call: RpcCall) -> None:
    values = [
        value if isinstance(value, bytes) else value.encode()
        for name, value in call.metadata
        if name == restriction.name
    ]
    if not restriction.admits(values):
        refusals.counts[refusals.KEY] += 1
        raise Unavailable(
            f"This protocol is restricted, expecting header '{restriction.header}'"
            + restriction.why_not(values)
        )


def _checked(rpc: Rpc, restriction: RequiredHeader | None, tokens: BearerTokens | None) -> Rpc:
    """Return the RPC with the checks of its key and of the client's token before each call."""
    is_index = rpc.method == "RepositoryIndex"
    need = need_of(rpc.category, names_model=rpc.names_model, is_index=is_index)
    if restriction is None and (tokens is None or need == OPEN):
        return rpc

    def check(call: RpcCall) -> None:
        try:
            if restriction is not None:
                _check_key(restriction, call)
            if tokens is not None and need != OPEN:
                model = None if rpc.names_model else ""
                call.grant = tokens.check(call.authorization, call.ends[0].host, need, model)
        except ZmqTritonError as error:
            refusals.report(source_of(call, rpc.method), error)
            raise

    def behind(handle: Any) -> Any:
        def ask(data: Any, call: RpcCall, *answer: Any) -> Any:
            check(call)
            return handle(data, call, *answer)

        return handle and ask

    return rpc._replace(check=check, unary=behind(rpc.unary), exchange=behind(rpc.exchange))


def _reflection(gateway: Gateway) -> list[Rpc]:
    name = "ServerReflectionInfo"
    if not gateway.settings.grpc.reflection:
        return [Rpc(service, name, "metadata", exchange=refuse) for service in _REFLECTION]
    reflection = Reflection((_INFERENCE, _HEALTH, _REFLECTION[0]))
    return [
        Rpc(service, name, "metadata", exchange=reflection.answer, drain=reflection.drain)
        for service in _REFLECTION
    ]


def _rpcs(gateway: Gateway) -> list[Rpc]:
    health, inference, streaming = metadata.Health(gateway), ModelInfer(gateway), Streaming(gateway)
    return [
        _by_messages(_INFERENCE, "ServerLive", "health", health.live),
        _by_messages(_INFERENCE, "ServerReady", "health", health.ready),
        _by_messages(_INFERENCE, "ModelReady", "health", health.model_ready, names_model=True),
        Rpc(_INFERENCE, "ModelInfer", "inference", inference.begin, names_model=True),
        Rpc(
            _INFERENCE,
            "ModelStreamInfer",
            "inference",
            exchange=streaming.infer,
            names_model=True,
            drain=streaming.drain,
        ),
        _by_task(
            _INFERENCE,
            "ModelConfig",
            "model-config",
            partial(metadata.model_config, gateway),
            names_model=True,
        ),
        _by_task(
            _INFERENCE,
            "RepositoryModelLoad",
            "model-repository",
            _named(partial(administration.load_model, gateway)),
            names_model=True,
        ),
        *_control(gateway),
        *_shared_memory(gateway, "system", "SystemSharedMemory"),
        *_shared_memory(gateway, "cuda", "CudaSharedMemory"),
        _by_task(_HEALTH, "Check", "health", health.check),
        Rpc(_HEALTH, "Watch", "health", exchange=health.watch),
    ]


def _control(gateway: Gateway) -> list[Rpc]:
    """Return the RPCs about models and settings whose messages are small."""
    return [
        _by_messages(_INFERENCE, method, category, handle, names_model=names_model)
        for method, category, handle, names_model in (
            ("ServerMetadata", "metadata", partial(metadata.server_metadata, gateway), False),
            ("ModelMetadata", "metadata", partial(metadata.model_metadata, gateway), True),
            ("ModelStatistics", "statistics", partial(metadata.model_statistics, gateway), True),
            (
                "RepositoryIndex",
                "model-repository",
                partial(administration.repository_index, gateway),
                False,
            ),
            (
                "RepositoryModelUnload",
                "model-repository",
                _named(partial(administration.unload_model, gateway)),
                True,
            ),
            ("TraceSetting", "trace", _named(partial(administration.trace_setting, gateway)), True),
            (
                "LogSettings",
                "logging",
                _named(partial(administration.log_settings, gateway)),
                False,
            ),
        )
    ]


def _by_task(
    service: str, method: str, category: str, handle: Handle, *, names_model: bool = False
) -> Rpc:
    async def reporting(data: bytes, call: RpcCall) -> bytes:
        try:
            return await handle(data, call)
        except refusals.AccessRefused as error:  # of a model that the token is not for
            refusals.report(source_of(call, method), error)
            raise

    return Rpc(
        service, method, category, by_task(reporting), keeps_request=True, names_model=names_model
    )


def _by_messages(
    service: str, method: str, category: str, handle: _OfMessage, *, names_model: bool = False
) -> Rpc:
    kinds = next(each for each in SERVICES[service] if each.name == method)

    async def answer(data: bytes, call: RpcCall) -> bytes:
        fields = await handle(read(kinds.request, data), call)
        return serialize(ParseDict(fields, kinds.response(), ignore_unknown_fields=True))

    return _by_task(service, method, category, answer, names_model=names_model)


def _named(handle: Any) -> Any:
    """Wrap the handler of a change, so that the log names the client."""

    async def named(request: Any, call: RpcCall) -> Any:
        with on_behalf_of(describe_client(call.grant, call.ends[0].host)):
            return await handle(request, call)

    return named


def _shared_memory(gateway: Gateway, kind: str, name: str) -> list[Rpc]:
    return [
        _by_messages(_INFERENCE, f"{name}{verb}", "shared-memory", partial(handle, gateway, kind))
        for verb, handle in (
            ("Status", administration.region_status),
            ("Register", administration.register_region),
            ("Unregister", administration.unregister_region),
        )
    ]
