"""Clients' shared memory: register, unregister, status. The supervisor acts; this translates.

Memory of a GPU comes as a handle, which processes of models open.
"""

from __future__ import annotations

import base64
from typing import Any

from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.grpc_api.call import Call
from zmqtriton_frontends.grpc_api.control.reading import read
from zmqtriton_frontends.grpc_api.inference.convert import serialize
from zmqtriton_frontends.process.peer_user import user_of
from zmqtriton_protos import message

_MESSAGES = {"system": "inference.SystemSharedMemory", "cuda": "inference.CudaSharedMemory"}


class SharedMemory:
    """The three RPCs of one kind: "system" or "cuda"."""

    def __init__(self, gateway: Gateway, kind: str) -> None:
        self._gateway = gateway
        self._kind = kind
        self._prefix = _MESSAGES[kind]

    async def status(self, data: bytes, _call: Call) -> bytes:
        regions = await self._ask("status", self._parse("Status", data).name)
        return self._answer("Status", regions={region["name"]: region for region in regions})

    async def register(self, data: bytes, call: Call) -> bytes:
        request = self._parse("Register", data)
        if self._kind == "system":
            details = {"key": request.key, "offset": request.offset, "byte_size": request.byte_size}
            details["user"] = await user_of(*call.ends)
        else:
            handle = base64.b64encode(request.raw_handle).decode()
            details = {"raw_handle": handle, "device_id": request.device_id}
            details["byte_size"] = request.byte_size
        await self._ask("register", request.name, **details)
        return self._answer("Register")

    async def unregister(self, data: bytes, _call: Call) -> bytes:
        await self._ask("unregister", self._parse("Unregister", data).name)
        return self._answer("Unregister")

    async def _ask(self, verb: str, region: str, **details: Any) -> Any:
        arguments = {"kind": self._kind, "name": region, **details}
        return await self._gateway.call(f"regions.{verb}", arguments)

    def _parse(self, verb: str, data: bytes) -> Any:
        return read(message(f"{self._prefix}{verb}Request"), data)

    def _answer(self, verb: str, **fields: Any) -> bytes:
        return serialize(message(f"{self._prefix}{verb}Response")(**fields))
