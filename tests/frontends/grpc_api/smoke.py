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


def check(address: str, model: str) -> list[str]:
    """Return what is wrong with the server; empty: nothing."""
    wrong = []
    inference = "inference.GRPCInferenceService"
    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(_TIMEOUT_S)
        status = _ask(channel, "grpc.health.v1.Health", "Check").status
        if status != 1:
            wrong.append(f"health is {status}")
        metadata = _ask(channel, inference, "ServerMetadata")
        if not metadata.version or "statistics" not in metadata.extensions:
            wrong.append(f"the metadata are {metadata}")
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
        if (response.id, list(response.raw_output_contents)) != ("smoke", [data]):
            wrong.append(f"the response is {response}")
    return wrong


if __name__ == "__main__":
    for line in (faults := check(*sys.argv[1:3])):
        sys.stderr.write(line + "\n")
    sys.exit(1 if faults else 0)
