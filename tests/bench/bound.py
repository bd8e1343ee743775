"""A function that is bound into a running server, as the model `bound`.

`python -m tests.bench.bound PORT` is started by run.py; it prints a line when it serves, and
ends with its standard input.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from zmqtriton_extras.pytriton.model_config import ModelConfig, Tensor
from zmqtriton_extras.pytriton.triton import RemoteTriton


def identity(requests: list[Any]) -> list[Any]:
    return [{"OUTPUT0": request["INPUT0"]} for request in requests]


def main() -> int:
    with RemoteTriton(f"localhost:{sys.argv[1]}") as triton:
        triton.bind(
            "bound",
            identity,
            inputs=[Tensor(name="INPUT0", dtype=np.float32, shape=(-1,))],
            outputs=[Tensor(name="OUTPUT0", dtype=np.float32, shape=(-1,))],
            config=ModelConfig(batching=False),
        )
        print("serves", flush=True)
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
