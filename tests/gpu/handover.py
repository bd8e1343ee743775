"""The cost of handing a tensor on a GPU to another model, there or through the CPU.

    python -m tests.gpu.handover [--memory files] [--seconds 3] [--megabytes 16 256]

Clients send and get a few bytes. Measures and prints; asserts nothing but what was read.
"""

from __future__ import annotations

import sys
import time
from statistics import median
from typing import Any

import numpy as np
from tritonclient.utils import InferenceServerException

from tests.gpu import MIB, serving
from tests.support import leaks
from tests.support.clients import infer_inputs, module_of, open_client
from tests.support.server import Copy
from tests.support.tools import parse_options

_CPU = Copy("gpu_takes", "gpu_takes_cpu", edit=("FORCE_CPU_ONLY_INPUT_TENSORS", "-"))
_BY_CPU = Copy("gpu_handover", "gpu_by_cpu", edit=('"gpu_takes"', '"gpu_takes_cpu"'))
_MODELS: list[str | Copy] = ["gpu_gives", "gpu_takes", "gpu_handover", _CPU, _BY_CPU]


def _took(client: Any, model: str, size: int, expected: list[int], seconds: float) -> list[float]:
    """Return the seconds of each request, of which there are three at least."""
    inputs = infer_inputs(module_of(client), SIZE=np.array([size]))
    took = list[float]()
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s or len(took) < 3:
        began_s = time.perf_counter()
        seen = client.infer(model, inputs).as_numpy("SEEN")
        took.append(time.perf_counter() - began_s)
        assert expected == seen.tolist(), seen
    return took


def main() -> int:
    options = parse_options(
        __doc__,
        memory=("cuda", "cuda, or files"),
        seconds=(3.0, "for each row"),
        megabytes=(["0", "16", "256"], "of a tensor; 0: sixteen bytes"),
    )
    leaks.mark_session()
    one = "instance_group { count: 1 kind: KIND_GPU gpus: [ 0 ] }\n"
    print(f"{'':14} {'MiB':>5} {'requests':>8} {'p50 ms':>8} {'GB/s':>7}", flush=True)
    with serving(options.memory, _MODELS, instances=one) as server:
        client = open_client(server, "grpc")
        for size in (int(number) * MIB or 16 for number in options.megabytes):
            for model, is_on_gpu in (("gpu_handover", 1), ("gpu_by_cpu", 0)):
                try:
                    took = _took(client, model, size, [7, is_on_gpu], options.seconds)
                    p50_s = median(took[1:])
                    figures = f"{len(took):8} {1000 * p50_s:8.2f} {size / p50_s / 1e9:7.2f}"
                except InferenceServerException as error:
                    figures = str(error.message())
                print(f"{model:14} {size / MIB:5.0f} {figures}", flush=True)
        client.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
