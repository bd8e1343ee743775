"""Requests that are announced as larger than they may be, and end nowhere."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from typing import Any

from tests.support import raw_http2 as h2
from zmqtriton_protos import message

MIB = 1 << 20
_GRPC_INFER = "/inference.GRPCInferenceService/ModelInfer"


def send_endless_message(port: int, size: int) -> h2.Connection:
    """Begin a request of 2,047 MiB over gRPC and send so much of it."""
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1 << 28]}
    request: Any = message("inference.ModelInferRequest")(
        model_name="identity_fp32", inputs=[tensor]
    )
    contents = b"\x3a\x80\x80\x80\xf8\x07"  # 2,032 MiB of them
    first = b"\0" + (2047 * MIB).to_bytes(4, "big") + request.SerializeToString() + contents
    client = h2.Connection(port)
    client.send(h2.headers_frame(1, _GRPC_INFER), h2.frame(0, 0, 1, first))
    part = h2.frame(0, 0, 1, bytes(16_000)) * 64
    for _ in range(size // 64 // 16_000):
        if not client.send_within(20, part):
            break
        client.read_some(1 << 16)
    return client


def send_endless_body(port: int, size: int) -> socket.socket:
    """Begin a request of a GiB over HTTP and send so much of it."""
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1 << 28]}
    parameters = {"binary_data_size": 1 << 30}
    header = json.dumps({"inputs": [{**tensor, "parameters": parameters}]}).encode()
    lines = (
        "POST /v2/models/identity_fp32/infer HTTP/1.1",
        "Host: localhost",
        f"Inference-Header-Content-Length: {len(header)}",
        f"Content-Length: {len(header) + (1 << 30)}",
    )
    client = socket.create_connection(("127.0.0.1", port), 20)
    client.sendall("\r\n".join((*lines, "", "")).encode() + header)
    with suppress(OSError):
        for _ in range(size // MIB):
            client.sendall(bytes(MIB))
    return client
