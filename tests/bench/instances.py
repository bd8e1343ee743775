"""Instances as processes, forks and threads: the memory of sixteen, and the throughput of four.

    python -m tests.bench.instances [--only memory] [--save]

Each instance has 500 MiB of arrays, made in `initialize` as processes, in `preload` as forks, and
by `pb_utils.shared` as threads. The memory is what all processes of the model have (PSS). One model
of the throughput waits, two compute without Python's lock, NumPy and ONNX Runtime, and one with it,
also by threads on free-threaded Pythons that are here.
`make bench` has these rows, too. Measures and prints; asserts nothing.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tests.bench import clients, cpu, results
from tests.stub import interpreters
from tests.support import leaks
from tests.support.scripted import string_parameter
from tests.support.server import Server
from tests.support.tools import parse_options

KINDS = ("processes", "forks", "threads")
MEGABYTES = 500
INSTANCES = 16
_SERVING = 4
#: For each kind and number of clients, in windows of which the median counts.
_SECONDS, _WINDOWS = 8.0, 5
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

{prepare}

class TritonPythonModel:
    def initialize(self, args):
        self.it = pb_utils.shared("it", make)

    def execute(self, requests):
        responses = []
        for request in requests:
            {work}
            tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", tensor)]))
        return responses
"""
_SESSION = """
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

IMAGE = np.ones((1, 3, 128, 128), np.float32)

def make():
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("x", "y")]
    weights = numpy_helper.from_array(np.ones((32, 3, 3, 3), np.float32), "w")
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [weights])
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, ir_version=9, opset_imports=opset)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
"""


class Work(NamedTuple):
    """The work of a model for a request; its instances share `it`, if they can."""

    request: str
    prepare: str = "def make(): return None"
    #: The modules that it takes.
    needs: tuple[str, ...] = ()


WORK = {
    "waits 5 ms": Work("time.sleep(0.005)"),
    "NumPy": Work(
        "[self.it @ self.it for _ in range(4)]",
        "def make(): return np.ones((256, 256), np.float32)",
    ),
    "ONNX Runtime": Work('self.it.run(None, {"x": IMAGE})', _SESSION, ("onnx", "onnxruntime")),
    "Python": Work("sum(range(100_000))"),
}
_CONFIG = """
backend: "python"
input {{ name: "INPUT0" data_type: TYPE_FP32 dims: 16 }}
output {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: 16 }}
instance_group {{ count: {count} kind: KIND_CPU }}
"""


@contextmanager
def serving(
    code: str, kind: str, count: int = 1, config: str = "", environment: Mapping[str, str] = {}
) -> Iterator[Server]:
    """A server that has loaded the model `m` of this code, with so many instances of the kind."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--model-control-mode=explicit"]
        server = Server(
            Path(folder) / "server", frontends=(), options=options, environment=environment
        )
        kind, _, version = kind.partition(" on ")
        config += _CONFIG.format(count=count) + string_parameter("INSTANCES", kind)
        if version:
            python = Path(interpreters.python_or_skip(version))
            config += string_parameter("EXECUTION_ENV_PATH", str(python.parents[1]))
        server.write_model("m", config, code)
        with server:
            error = server.control_model("load", "m")
            assert not error, error
            yield server


def model_mib(server: Server) -> float:
    """Return the memory of the model's processes, that from which they are forked included."""
    pids = server.pids()
    return cpu.pss_mib([*pids.get("stub", []), *pids.get("template", [])])


def _memory(kind: str) -> dict[str, Any]:
    with serving(_WEIGHTS.format(bytes=MEGABYTES << 20), kind) as server:
        one = model_mib(server)
        scale(server, INSTANCES - 1)
        last_ms = 1000 * scale(server, INSTANCES)
        return {"kind": kind, "one_mib": one, "all_mib": model_mib(server), "last_ms": last_ms}


def scale(server: Server, count: int) -> float:
    """Give the model so many instances; return the seconds that it took."""
    began_s = time.monotonic()
    status, answer = server.request_json("/v2/models/m/scale", {"count": count}, within_s=300)
    assert status == 200, answer
    return time.monotonic() - began_s


def _throughput(name: str) -> Iterator[dict[str, Any]]:
    """Measure the kinds in turns, so that other work on the machine meets them alike."""
    work = WORK[name]
    code = _WORK.format(work=work.request, prepare=work.prepare)
    kinds = [*KINDS]
    if name == "Python":
        here = filter(interpreters.find_python, interpreters.FREE_THREADED)
        kinds += [f"threads on {version}" for version in here]
    with ExitStack() as stack:
        variables = {"OPENBLAS_NUM_THREADS": "1"}
        servers = {
            kind: stack.enter_context(serving(code, kind, _SERVING, environment=variables))
            for kind in kinds
        }
        for connections in _CLIENTS:
            windows: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
            for kind, server in [*servers.items()] * _WINDOWS:
                plan = clients.http_binary(server.http_port, model="m")
                read = partial(cpu.by_role, server)
                got = clients.measure(plan, connections, _SECONDS / _WINDOWS, read)
                windows[kind].append((got.per_s, sum(got.cpu_us.values())))
            for kind, seen in windows.items():
                per_s, cpu_us = map(median, zip(*seen, strict=True))
                row = {"kind": kind, "work": name, "clients": connections, "per_s": per_s}
                yield {**row, "cpu_us": cpu_us}


def print_throughput(only: str = "") -> list[dict[str, Any]]:
    """Measure and print the requests a second of each kind, their ratio to those of processes, CPU.

    On a busy machine the ratio is for the number of processes, and the CPU tells more.
    """
    rows = list[dict[str, Any]]()
    for name, work in WORK.items():
        if only not in name or not all(map(find_spec, work.needs)):
            continue
        base = dict[int, float]()
        for row in _throughput(name):
            rows.append(row)
            ratio = row["per_s"] / base.setdefault(row["clients"], row["per_s"])
            figures = f"{row['clients']:3} {row['per_s']:8.0f}/s {ratio:6.2f}"
            figures += f" {row['cpu_us']:8.0f} us of CPU"
            print(f"instances: {name:17} {row['kind']:16} {figures}", flush=True)
    return rows


def main() -> int:
    options = parse_options(
        save=(False, "keep the figures with the commit"), only=("", "memory, or a kind of work")
    )
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
    rows += print_throughput(options.only)
    if options.save:
        results.save("instances", rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
