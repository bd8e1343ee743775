"""Calls a running server with nothing but grpc and our own descriptors.

Needs no client library, so it runs where those can't be installed, as beside protobuf 7: `python
tests/frontends/grpc_api/smoke.py HOST:PORT MODEL`. The model must return FP32 INPUT0 as OUTPUT0.
"""

from __future__ import annotations

import struct
import sys
from typing import Any

import grpc

from zmqtriton_protos import SERVICES

_TIMEOUT_S = 20


def _ask(channel: Any, service: str, method: str, **fields: Any) -> Any:
    (rpc,) = (rpc for rpc in SERVICES[service] if rpc.name == method)
    call = channel.unary_unary(
        f"/{service}/{method}",
        request_serializer=rpc.request.SerializeToString,
        response_deserializer=rpc.response.FromString,
    )
    return call(rpc.request(**fields), timeout=_TIMEOUT_S)


def check(address: str, model: str) -> None:
    inference = "inference.GRPCInferenceService"
    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(_TIMEOUT_S)
        assert 1 == _ask(channel, "grpc.health.v1.Health", "Check").status
        metadata = _ask(channel, inference, "ServerMetadata")
        assert metadata.version
        assert "statistics" in metadata.extensions
        data = struct.pack("<4f", 1, 2, 3, 4)
        response = _ask(
            channel,
            inference,
            "ModelInfer",
            model_name=model,
            id="smoke",
            inputs=[{"name": "INPUT0", "datatype": "FP32", "shape": [4]}],
            raw_input_contents=[data],
        )
        assert ("smoke", [data]) == (response.id, list(response.raw_output_contents))


if __name__ == "__main__":
    check(*sys.argv[1:3])
