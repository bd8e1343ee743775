"""Instances as processes, forks and threads: the memory of sixteen, and the throughput of four.

    python -m tests.bench.instances [--save]

Each instance has 500 MiB of arrays, made in `initialize` as processes, in `preload` as forks, and
by `pb_utils.shared` as threads. The memory is what all processes of the model have (PSS). One model
of the throughput waits, one computes without Python's lock, and one with it. Measures and prints;
asserts nothing.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench import clients, cpu, results
from tests.support import leaks
from tests.support.scripted import string_parameter
from tests.support.server import Server

KINDS = ("processes", "forks", "threads")
MEGABYTES = 500
INSTANCES = 16
_SERVING = 4
_SECONDS = 4.0
_CLIENTS = (8, 32)

_WEIGHTS = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    weights = None

    @staticmethod
    def preload(args):
        TritonPythonModel.weights = TritonPythonModel.make()

    @staticmethod
    def make():
        return np.ones({bytes}, np.uint8)

    def initialize(self, args):
        if self.weights is None:
            self.weights = pb_utils.shared("weights", self.make)

    def execute(self, requests):
        return [pb_utils.InferenceResponse([]) for _ in requests]
"""
_WORK = """
import time
import numpy as np
import triton_python_backend_utils as pb_utils

MATRIX = np.ones((256, 256), np.float32)

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            {work}
            tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", tensor)]))
        return responses
"""
WORK = {
    "waits 5 ms": "time.sleep(0.005)",
    "computes without the lock": "[MATRIX @ MATRIX for _ in range(4)]",
    "computes in Python": "sum(range(100_000))",
}
_CONFIG = """
backend: "python"
input {{ name: "INPUT0" data_type: TYPE_FP32 dims: 16 }}
output {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: 16 }}
instance_group {{ count: {count} kind: KIND_CPU }}
"""


def pss_mib(pids: list[int]) -> float:
    """Return the memory of processes; a page that several have counts in part."""
    kib = 0
    for pid in pids:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8").splitlines()
        kib += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kib / 1024


@contextmanager
def _serving(code: str, kind: str, count: int) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        variables = {"OPENBLAS_NUM_THREADS": "1"}
        options = ["--model-control-mode=explicit"]
        server = Server(
            Path(folder) / "server", frontends=(), options=options, environment=variables
        )
        directory = server.repository / "m"
        (directory / "1").mkdir(parents=True)
        config = _CONFIG.format(count=count) + string_parameter("INSTANCES", kind)
        (directory / "config.pbtxt").write_text(config, "utf-8")
        (directory / "1" / "model.py").write_text(code, "utf-8")
        with server:
            error = server.control_model("load", "m")
            assert not error, error
            yield server


def pids_of_model(server: Server) -> list[int]:
    """Return the processes of the model, that from which they are forked included."""
    pids = server.pids().get("stub", [])
    return [pid for pid in pids if b"fork-server" not in Path(f"/proc/{pid}/cmdline").read_bytes()]


def _memory(kind: str) -> dict[str, Any]:
    code = _WEIGHTS.format(bytes=MEGABYTES << 20)
    with _serving(code, kind, 1) as server:
        one = pss_mib(pids_of_model(server))
        _scale(server, INSTANCES - 1)
        last_ms = 1000 * _scale(server, INSTANCES)
        return {
            "kind": kind,
            "one_mib": one,
            "all_mib": pss_mib(pids_of_model(server)),
            "last_ms": last_ms,
        }


def _scale(server: Server, count: int) -> float:
    began_s = time.monotonic()
    status, answer = server.request_json("/v2/models/m/scale", {"count": count})
    assert status == 200, answer
    return time.monotonic() - began_s


def _throughput(kind: str, work: str, connections: int) -> dict[str, Any]:
    with _serving(_WORK.format(work=WORK[work]), kind, _SERVING) as server:
        plan = clients.http_binary(server.http_port, model="m")
        got = clients.measure(plan, connections, _SECONDS, lambda: cpu.by_role(server))
        return {"kind": kind, "work": work, "clients": connections, "per_s": got.per_s}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--save", action="store_true", help="keep the figures with the commit")
    parser.add_argument("--only", default="", help="memory, or a kind of work")
    options = parser.parse_args()
    leaks.mark_session()
    rows = list[dict[str, Any]]()
    if options.only in ("", "memory"):
        print(f"{'':28} one, MiB  {INSTANCES}, MiB  ratio  the last, ms")
        for kind in KINDS:
            row = _memory(kind)
            rows.append(row)
            ratio = row["all_mib"] / row["one_mib"]
            figures = f"{row['one_mib']:8.0f} {row['all_mib']:8.0f} {ratio:6.2f}"
            print(f"{kind:28} {figures} {row['last_ms']:13.0f}", flush=True)
    for work in WORK:
        if options.only not in work:
            continue
        for connections in _CLIENTS:
            base = 0.0
            for kind in KINDS:
                row = _throughput(kind, work, connections)
                rows.append(row)
                base = base or row["per_s"]
                ratio = row["per_s"] / base
                figures = f"{connections:3} {row['per_s']:8.0f}/s {ratio:6.2f}"
                print(f"{work:28} {kind:10} {figures}", flush=True)
    if options.save:
        results.save("instances", rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
