"""Starts of an instance after its imports: by a new process, by a spare process, and as a fork.

    python -m tests.bench.starts /path/of/venv torch onnxruntime transformers

Each package is the only import of a model in that environment. The instance is killed, and the time
until the next one is ready is measured: without warm starts, with a spare process, and as a fork of
a template (`INSTANCES: forks`). Prints the medians, beside the time of the imports, and the
processor's seconds of the new process, which depend less on other load. Asserts nothing.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil

from tests.support.scripted import string_parameter
from tests.support.server import Server, tensor
from tests.support.waiting import eventually
from zmqtriton.control_client import ServerSelector

_TRIALS = 5
_MODEL = """
import json, time
BEGAN_S = time.perf_counter()
{imports}
TOOK_S = time.perf_counter() - BEGAN_S
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        out = pb_utils.Tensor("OUT", np.array([TOOK_S], np.float64))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
"""
_CONFIG = """
backend: "python"
input {{ name: "IN" data_type: TYPE_STRING dims: 1 }}
output {{ name: "OUT" data_type: TYPE_FP64 dims: 1 }}
{parameters}
"""
#: Imports of a usual model, where the package loads most of itself later.
_IMPORTS = {
    "transformers": "from transformers import AutoTokenizer, BertModel",
    "sklearn": "import sklearn.ensemble",
}


class Start(NamedTuple):
    """The medians of some starts: seconds until ready, of the processor, of the imports."""

    ready_s: float
    cpu_s: float
    imports_s: float


def _measure(environment: str, package: str, way: str) -> Start:
    parameters = string_parameter("EXECUTION_ENV_PATH", environment)
    if way == "fork":
        parameters += string_parameter("INSTANCES", "forks")
    code = _MODEL.format(imports=_IMPORTS.get(package, f"import {package}"))
    mode = "on" if way == "spare" else "off"
    with tempfile.TemporaryDirectory(prefix="zt-starts-") as home:
        run = f"--runtime-directory={home}/run"
        server = Server(Path(home, "s"), options=[f"--warm-starts={mode}", run], frontends=())
        server.write_model("m", _CONFIG.format(parameters=parameters), code)
        with server, ServerSelector(f"{home}/run").connect() as client:
            eventually(lambda: way != "spare" or _has_spare(client), 300, "a spare process")
            _imports_s(server)  # one that has executed is restarted at once
            starts = [_start(server, client) for _ in range(_TRIALS)]
            return Start(*map(median, zip(*starts, strict=True)))


def _has_spare(client: Any) -> bool:
    return any(row["is_ready"] for row in client.call("status")["spares"])


def _start(server: Server, client: Any) -> Start:
    before = server.kill_only("stub", "m")
    began_s = time.perf_counter()

    def next_one() -> list[int]:
        rows = client.call("status")["processes"]
        stubs = [row for row in rows if row["role"] == "stub" and row["state"] == "READY"]
        return [row["pid"] for row in stubs if row["pid"] != before]

    [pid] = eventually(next_one, 120, "the next instance")
    ready_s, times = time.perf_counter() - began_s, psutil.Process(pid).cpu_times()
    return Start(ready_s, times.user + times.system, _imports_s(server))


def _imports_s(server: Server) -> float:
    _, answer = server.infer_json("m", tensor("IN", "BYTES", ["x"]), within_s=60)
    return float(answer["outputs"][0]["data"][0])


def main() -> None:
    environment, *packages = sys.argv[1:]
    print("| Import | Imports, s | New process, s | Spare process, s | Fork, s | CPU of each, s |")
    print("|---|---|---|---|---|---|")
    for package in packages:
        cold, spare, fork = (_measure(environment, package, w) for w in ("cold", "spare", "fork"))
        ready = " | ".join(f"{one.ready_s:.2f}" for one in (cold, spare, fork))
        cpu = ", ".join(f"{one.cpu_s:.2f}" for one in (cold, spare, fork))
        print(f"| {package} | {cold.imports_s:.2f} | {ready} | {cpu} |", flush=True)


if __name__ == "__main__":
    main()
