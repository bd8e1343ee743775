"""Streams over gRPC that their client cancels at any moment; `make faults` has ten thousand."""

from __future__ import annotations

import random
import struct
import time

import grpc

from tests.support.server import Server
from zmqtriton_protos import message

_STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


def token_request(count: int) -> bytes:
    """A request for a stream."""
    tensor = {"name": "COUNT", "datatype": "INT32", "shape": [1]}
    request = message("inference.ModelInferRequest")(
        model_name="tokens", inputs=[tensor], raw_input_contents=[struct.pack("<i", count)]
    )
    return bytes(request.SerializeToString())


def cancel(address: str, times: int, max_s: float, seed: int = 1) -> None:
    """Asks for streams, and leaves each after a time of which nobody knows what has happened."""
    dice = random.Random(seed)
    with grpc.insecure_channel(address) as channel:
        ask = channel.stream_stream(_STREAM)
        for _ in range(times):
            answers = ask(iter([token_request(50)] * dice.randint(1, 5)), timeout=60)
            time.sleep(dice.random() * max_s)
            answers.cancel()


def unanswered_requests(server: Server) -> int:
    """Requests that the server has not answered."""
    lines = server.metrics_text().splitlines()
    [line] = [line for line in lines if line.startswith("zmqtriton_unanswered_requests ")]
    return int(float(line.split()[1]))
