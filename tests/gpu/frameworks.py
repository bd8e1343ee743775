"""Models of PyTorch and ONNX on a GPU: their answers, and their memory until they are unloaded.

    python -m tests.gpu.frameworks [--memory files]

Where there is no GPU they run on the CPU. Prints a line for each, with what is left out and why,
and ends with 1 if one was not as it should be.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.gpu import MIB, SLACK, serving, used_bytes
from tests.support import leaks, onnx_models
from tests.support.clients import infer_inputs, module_of, open_client
from tests.support.server import Server
from tests.support.tools import parse_options
from tests.support.waiting import eventually

#: One side of a square of weights.
_WIDTH = 4096
_CONFIG = """
backend: "{backend}"
input {{ name: "{input}" data_type: TYPE_FP32 dims: [ -1, {width} ] }}
output {{ name: "{output}" data_type: TYPE_FP32 dims: [ -1, {width} ] }}
instance_group {{ count: 1 kind: {kind} }}
"""


def _torch(path: Path) -> str:
    """Write a model that doubles, and return what keeps it from running on a GPU."""
    torch: Any = importlib.import_module("torch")

    class Doubling(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weights = torch.nn.Parameter(torch.eye(_WIDTH) * 2, requires_grad=False)

        def forward(self, numbers: Any) -> Any:
            return numbers @ self.weights

    path.parent.mkdir(parents=True)
    torch.jit.trace(Doubling(), torch.ones(1, _WIDTH)).save(str(path))
    return "" if torch.cuda.is_available() else "torch finds no GPU"


def _onnx(path: Path) -> str:
    runtime: Any = importlib.import_module("onnxruntime")
    onnx_models.scaling(path, shape=("N", _WIDTH))
    has_cuda = "CUDAExecutionProvider" in runtime.get_available_providers()
    return "" if has_cuda else "this onnxruntime is for the CPU"


#: By backend: what writes the file, its name, input and output.
_KINDS: dict[str, tuple[Callable[[Path], str], str, str, str]] = {
    "pytorch": (_torch, "model.pt", "INPUT__0", "OUTPUT__0"),
    "onnxruntime": (_onnx, "model.onnx", "X", "Y"),
}


def _is_below(memory: str, server: Server, limit: int) -> bool:
    return used_bytes(memory, server) <= limit


def _outcomes(memory: str) -> Iterator[tuple[str, bool, str]]:
    """Yield for each backend its name, whether all was right, and more words."""
    with serving(memory, [], ["--model-control-mode=explicit"]) as server:
        client = open_client(server, "grpc")
        for backend, (write, file, *names) in _KINDS.items():
            try:
                why_not = write(server.repository / backend / "1" / file)
            except ImportError as missing:
                yield backend, True, f"left out: {missing}"
                continue
            kind = "KIND_CPU" if why_not else "KIND_GPU"
            words = dict(zip(("input", "output"), names, strict=True), width=_WIDTH)
            text = _CONFIG.format(backend=backend, kind=kind, **words)
            (server.repository / backend / "config.pbtxt").write_text(text)
            before = used_bytes(memory, server)
            if error := server.control_model("load", backend):
                yield backend, False, error
                continue
            loaded = used_bytes(memory, server)
            numbers = np.arange(2 * _WIDTH, dtype=np.float32).reshape(2, -1)
            result = client.infer(backend, infer_inputs(module_of(client), **{names[0]: numbers}))
            is_right = np.array_equal(2 * numbers, result.as_numpy(names[1]))
            assert not server.control_model("unload", backend)
            eventually(partial(_is_below, memory, server, before + SLACK), 60)
            more = f"{kind} {why_not}".strip()
            yield backend, is_right, f"{more}, {(loaded - before) / MIB:.0f} MiB, returned"
        client.close()


def main() -> int:
    options = parse_options(__doc__, memory=("cuda", "cuda, or files"))
    leaks.mark_session()
    are_right = []
    for name, is_right, words in _outcomes(options.memory):
        are_right.append(is_right)
        print(f"{'ok' if is_right else 'BROKEN':7}{name:14}{words}", flush=True)
    return int(not all(are_right))


if __name__ == "__main__":
    sys.exit(main())
