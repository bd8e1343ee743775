"""Run by each Python: a function is bound as PyTriton binds it, and asked over HTTP and gRPC.

Prints "as expected". The arguments are the ports of HTTP, gRPC and the metrics.
"""

from __future__ import annotations

import sys

import numpy as np

from zmqtriton.pytriton.client import DecoupledModelClient, ModelClient
from zmqtriton.pytriton.decorators import batch
from zmqtriton.pytriton.model_config import ModelConfig, Tensor
from zmqtriton.pytriton.triton import Triton, TritonConfig


@batch
def double(values: np.ndarray) -> dict[str, np.ndarray]:
    return {"doubled": values * 2}


def count(requests):  # type: ignore[no-untyped-def]
    for number in range(3):
        yield [{"doubled": request["values"] + number} for request in requests]


def main(http: int, grpc: int, metrics: int) -> None:
    config = TritonConfig(
        http_address="127.0.0.1", http_port=http, grpc_port=grpc, metrics_port=metrics
    )
    values = Tensor(name="values", shape=(-1,), dtype=np.float32)
    doubled = Tensor(name="doubled", shape=(-1,), dtype=np.float32)
    ones = np.ones((1, 2), np.float32)
    with Triton(config=config) as triton:
        triton.bind("double", double, inputs=[values], outputs=[doubled])
        decoupled = ModelConfig(decoupled=True, batching=False)
        triton.bind("count", count, inputs=[values], outputs=[doubled], config=decoupled)
        triton.run()
        for url in (f"http://127.0.0.1:{http}", f"grpc://127.0.0.1:{grpc}"):
            with ModelClient(url, "double") as client:
                assert client.infer_batch(ones)["doubled"].tolist() == [[2, 2]]
        with DecoupledModelClient(f"grpc://127.0.0.1:{grpc}", "count") as stream:
            answers = [answer["doubled"].tolist() for answer in stream.infer_sample(ones[0])]
            assert answers == [[1, 1], [2, 2], [3, 3]], answers
    sys.stdout.write("as expected\n")


# what is imported by another process must not start a server
if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
