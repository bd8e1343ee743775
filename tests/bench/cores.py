"""Four instances of an ONNX model, with and without cores of their own, and in NVIDIA's Triton.

    python -m tests.bench.cores PYTHON MODEL 1,3,48,192 [--triton COMMAND] [--rounds 5]

PYTHON is an interpreter with onnxruntime, MODEL an ONNX file with one input of floats of that
shape. COMMAND starts a tritonserver, as for tests/conformance/record.py; its own Python must have
the version of PYTHON, whose packages it uses. The kinds take turns, and the medians of the rounds
are printed. On a busy machine only their order and the CPU of a request count.
Measures and prints; asserts nothing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from tests.bench import clients, cpu
from tests.bench.peers import triton
from tests.support import leaks
from tests.support.scripted import string_parameter
from tests.support.server import Server

_CLIENTS, _SECONDS = (1, 4, 16), 4.0
_CONFIG = """
backend: "python"
input {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ {shape} ] }}
output {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }}
instance_group {{ count: 4 kind: KIND_CPU }}
"""
_CODE = """
import onnxruntime
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        providers = ["CPUExecutionProvider"]
        self.session = onnxruntime.InferenceSession("{path}", providers=providers)
        self.name = self.session.get_inputs()[0].name

    def execute(self, requests):
        responses = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            result = self.session.run(None, {{self.name: tensor}})[0].ravel()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", result)]))
        return responses
"""
#: The port of a server, and what reads its CPU.
_Place = tuple[int, Callable[[], dict[str, float]]]


@contextmanager
def _ours(folder: Path, options: argparse.Namespace, name: str, value: str) -> Iterator[_Place]:
    server = Server(folder / name, frontends=(), environment={"ORT_DISABLE_TELEMETRY": "1"})
    parameters = string_parameter("PYTHON_EXECUTABLE", options.python)
    config = _CONFIG.format(shape=options.shape) + parameters + string_parameter("CORES", value)
    server.write_model("m", config, _CODE.format(path=os.path.abspath(options.model)))
    with server:
        yield server.http_port, partial(cpu.of_trees, [server.pid])


@contextmanager
def _tritons(folder: Path, options: argparse.Namespace) -> Iterator[_Place]:
    (folder / "triton" / "m" / "1").mkdir(parents=True)
    (folder / "triton" / "m" / "config.pbtxt").write_text(_CONFIG.format(shape=options.shape))
    ask = [options.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = subprocess.check_output(ask, text=True).strip()
    code = f"import sys; sys.path.append({packages!r})\n"
    code += _CODE.format(path=os.path.abspath(options.model))
    (folder / "triton" / "m" / "1" / "model.py").write_text(code)
    variables = {"ORT_DISABLE_TELEMETRY": "1"}
    with triton(options.triton, folder / "triton", variables) as (port, pid):
        yield port, partial(cpu.of_trees, [pid])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("python", "model", "shape"):
        parser.add_argument(name)
    parser.add_argument("--triton", default="")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    shape = [int(number) for number in options.shape.split(",")]
    leaks.mark_session()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kinds = {value: _ours(folder, options, value, value) for value in ("all", "auto")}
        kinds |= {"triton": _tritons(folder, options)} if options.triton else {}
        places = {kind: stack.enter_context(one) for kind, one in kinds.items()}
        print(f"{'CORES':8} clients    req/s   p50 ms   p99 ms   CPU us")
        for count in _CLIENTS:
            seen: dict[str, list[tuple[float, ...]]] = {kind: [] for kind in places}
            for kind, (port, read) in [*places.items()] * options.rounds:
                plan = clients.http_binary(port, model="m", shape=shape)
                got = clients.measure(plan, count, _SECONDS, read)
                seen[kind].append((got.per_s, got.p50_ms, got.p99_ms, got.cpu_us["all"]))
            for kind, rows in seen.items():
                per_s, p50, p99, cpu_us = map(median, zip(*rows, strict=True))
                print(f"{kind:8} {count:7} {per_s:8.0f} {p50:8.1f} {p99:8.1f} {cpu_us:8.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
