"""Connections over gRPC that only a benchmark has. Imported only where a plan is of gRPC."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import grpc

from tests.bench.clients import client_memory
from zmqtriton_extras.bench.grpc_connections import GrpcCalls
from zmqtriton_protos import message

_REGISTER = "/inference.GRPCInferenceService/SystemSharedMemoryRegister"


class SharedMemoryCalls(GrpcCalls):
    """identity_fp32 from shared memory into shared memory, with a region of its own."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        floats = plan["floats"]
        size = floats * 4
        with client_memory(floats) as name, grpc.insecure_channel(plan["address"]) as channel:
            register = message("inference.SystemSharedMemoryRegisterRequest")(
                name=name, key=f"/{name}", byte_size=2 * size
            )
            channel.unary_unary(_REGISTER)(register.SerializeToString())
        request = message("inference.ModelInferRequest")(model_name="identity_fp32")
        tensor = request.inputs.add(name="INPUT0", datatype="FP32", shape=[floats])
        for one, offset in (tensor, 0), (request.outputs.add(name="OUTPUT0"), size):
            one.parameters["shared_memory_region"].string_param = name
            one.parameters["shared_memory_byte_size"].int64_param = size
            one.parameters["shared_memory_offset"].int64_param = offset
        encoded = base64.b64encode(request.SerializeToString()).decode()
        super().__init__({**plan, "request": encoded})
