"""Streams over gRPC that their client cancels at any moment, thousands of them.

    python -m tests.faults.cancelled_streams [--times 10000]

None of their requests may stay: at the end the server has none that is unanswered, the processes
that it had, and others are served.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import tempfile
import time
from pathlib import Path

import grpc

from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_protos import message

_STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
_MAX_S = 0.2


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10_000)
    times = parser.parse_args().times
    with (
        tempfile.TemporaryDirectory() as directory,
        Server(Path(directory) / "s", models=["tokens"]) as server,
    ):
        pids = server.pids()
        cancel(server.grpc_address, times, _MAX_S)
        eventually(lambda: unanswered_requests(server) == 0, 60, "nothing is unanswered")
        assert pids == server.pids()
        assert 200 == server.status("/v2/models/tokens/ready")
    print(f"{times} streams were cancelled, and nothing of them is left")
    return 0


if __name__ == "__main__":
    sys.exit(main())
