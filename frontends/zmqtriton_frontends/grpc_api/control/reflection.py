"""Server reflection: the services and their .proto files, for clients like grpcurl.

Offered if gRPC listens on loopback or `--grpc-reflection` asks for it. Shows the services
of the table of RPCs only, out of the private pool of zmqtriton_protos.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from typing import Any

from zmqtriton_floor.errors import NotFound, Unavailable, Unsupported, ZmqTritonError
from zmqtriton_frontends.grpc_api.call import STOPPING, RpcCall
from zmqtriton_frontends.grpc_api.control.reading import read
from zmqtriton_frontends.grpc_api.inference.convert import serialize
from zmqtriton_frontends.grpc_api.inference.outbox import StreamOutbox
from zmqtriton_protos import POOL, message


async def refuse(_requests: AsyncIterator[bytes], _call: RpcCall) -> AsyncGenerator[bytes, None]:
    """Refuse, and name the option that enables reflection, for users of grpcurl."""
    raise Unsupported("server reflection is off on this server; --grpc-reflection=true turns it on")
    yield b""  # makes it a stream of responses, as the other one is


class Reflection:
    """ServerReflectionInfo: each request of the stream gets one response, in order."""

    def __init__(self, services: Iterable[str]) -> None:
        self._services = sorted(services)
        self._open: set[StreamOutbox] = set()

    async def answer(
        self, requests: AsyncIterator[bytes], call: RpcCall
    ) -> AsyncGenerator[bytes, None]:
        """End with the requests, or with Unavailable when the server stops."""
        outbox = StreamOutbox(call.answers)
        self._open.add(outbox)
        reading = asyncio.get_running_loop().create_task(self._read(requests, outbox))
        try:
            async for response in outbox:
                yield bytes(response)
        finally:
            self._open.discard(outbox)
            outbox.close()
            reading.cancel()

    def drain(self) -> None:
        """End the streams, although their clients might ask more."""
        for outbox in self._open:
            outbox.end(Unavailable(STOPPING))

    async def _read(self, requests: AsyncIterator[bytes], outbox: StreamOutbox) -> None:
        try:
            async for data in requests:
                request = read(message("grpc.reflection.v1.ServerReflectionRequest"), data)
                await outbox.send(serialize(self._respond(request)))
        except ZmqTritonError as error:
            outbox.end(error)
        finally:
            outbox.end()

    def _respond(self, request: Any) -> Any:
        response = message("grpc.reflection.v1.ServerReflectionResponse")(
            valid_host=request.host, original_request=request
        )
        try:
            self._fill(response, request)
        except ZmqTritonError as error:
            response.error_response.error_code = error.grpc_status
            response.error_response.error_message = error.text
        return response

    def _fill(self, response: Any, request: Any) -> None:
        kind = request.WhichOneof("message_request")
        if kind == "list_services":
            for name in self._services:
                response.list_services_response.service.add(name=name)
        elif kind == "file_by_filename":
            _describe(response, POOL.FindFileByName, request.file_by_filename)
        elif kind == "file_containing_symbol":
            _describe(response, POOL.FindFileContainingSymbol, request.file_containing_symbol)
        elif kind in ("file_containing_extension", "all_extension_numbers_of_type"):
            raise NotFound("there are no extensions")
        else:
            raise Unsupported("unknown kind of question")


def _describe(response: Any, find: Any, name: str) -> None:
    """Add the file and the files that it imports, so that a client need not ask again."""
    try:
        left = [find(name)]
    except KeyError:
        raise NotFound(f"'{name}' is not found") from None
    described: list[str] = []
    while left:
        file = left.pop(0)
        if file.name not in described:
            described.append(file.name)
            response.file_descriptor_response.file_descriptor_proto.append(file.serialized_pb)
            left += file.dependencies
