"""Models of ONNX and TorchScript beside the same called directly: `-m tests.bench.frameworks`.

Measures and prints; asserts nothing. A small perceptron shows what a request costs beside its
model, an image network what is left of that where the model computes. PyTorch's rows need torch.
"""

from __future__ import annotations

import functools
import importlib.util
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.bench import clients, cpu
from tests.support import leaks
from tests.support.scripted import string_parameter
from tests.support.server import Server
from tests.support.tools import parse_options

_PERCEPTRON, _IMAGE = (64,), (3, 96, 96)
_CHANNELS, _BLOCKS, _CLASSES = 48, 4, 10
_ROLES = ("http", "broker", "stub")
#: The parameters that say how many threads an instance has.
_THREADS = {"onnx": "intra_op_thread_count", "torch": "INTRA_OP_THREAD_COUNT"}


class Model(NamedTuple):
    name: str
    kind: str
    shape: tuple[int, ...]
    instances: int = 1
    is_batched: bool = False
    #: Of an instance; 0 is its share of the cores.
    threads: int = 0


MODELS = (
    Model("onnx-perceptron", "onnx", _PERCEPTRON),
    Model("onnx-perceptron-1t", "onnx", _PERCEPTRON, threads=1),
    Model("onnx-image", "onnx", _IMAGE),
    Model("onnx-image-1t", "onnx", _IMAGE, threads=1),
    Model("onnx-image-batched", "onnx", _IMAGE, 1, True),
    Model("onnx-image-2", "onnx", _IMAGE, 2),
    Model("onnx-image-2-batched", "onnx", _IMAGE, 2, True),
    Model("torch-perceptron", "torch", _PERCEPTRON),
    Model("torch-image", "torch", _IMAGE),
    Model("torch-image-1t", "torch", _IMAGE, threads=1),
    Model("torch-image-2-batched", "torch", _IMAGE, 2, True),
)


def _weights() -> Callable[..., Any]:
    random = np.random.default_rng(3)
    return lambda *shape: (random.normal(size=shape) / shape[-1] ** 0.5).astype(np.float32)


def _write_onnx(path: Path, shape: tuple[int, ...]) -> None:
    weights = _weights()
    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(*size: int) -> str:
        constants.append(numpy_helper.from_array(weights(*size), f"w{len(constants)}"))
        return str(constants[-1].name)

    def node(kind: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [f"t{len(nodes)}"], **attributes))
        return str(nodes[-1].output[0])

    layer = "INPUT0"
    if shape == _IMAGE:
        filters = constant(_CHANNELS, 3, 7, 7)
        layer = node("Relu", node("Conv", layer, filters, strides=[2, 2], pads=[3] * 4))
        for _ in range(_BLOCKS):
            inner = node(
                "Relu", node("Conv", layer, constant(_CHANNELS, _CHANNELS, 3, 3), pads=[1] * 4)
            )
            inner = node("Conv", inner, constant(_CHANNELS, _CHANNELS, 3, 3), pads=[1] * 4)
            layer = node("Relu", node("Add", layer, inner))
        layer = node("Flatten", node("GlobalAveragePool", layer))
    else:
        layer = node("Relu", node("MatMul", layer, constant(*shape, _CHANNELS)))
    nodes.append(helper.make_node("MatMul", [layer, constant(_CHANNELS, _CLASSES)], ["OUTPUT0"]))
    tensors = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", *size])
        for name, size in (("INPUT0", shape), ("OUTPUT0", (_CLASSES,)))
    ]
    graph = helper.make_graph(nodes, "g", tensors[:1], tensors[1:], constants)
    version = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=version, ir_version=10), path / "model.onnx")


def _write_torch(path: Path, shape: tuple[int, ...]) -> None:
    import torch

    def block() -> Any:
        conv = functools.partial(torch.nn.Conv2d, _CHANNELS, _CHANNELS, 3, padding=1)
        return torch.nn.Sequential(conv(), torch.nn.ReLU(), conv(), torch.nn.ReLU())

    if shape == _IMAGE:
        layers = [
            torch.nn.Conv2d(3, _CHANNELS, 7, 2, 3),
            torch.nn.ReLU(),
            *(block() for _ in range(_BLOCKS)),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
        ]
    else:
        layers = [torch.nn.Linear(*shape, _CHANNELS), torch.nn.ReLU()]
    whole = torch.nn.Sequential(*layers, torch.nn.Linear(_CHANNELS, _CLASSES)).eval()
    with torch.inference_mode():
        torch.jit.trace(whole, torch.ones(1, *shape)).save(str(path / "model.pt"))


def _configuration(model: Model) -> str:
    dims = ", ".join(map(str, model.shape))
    return (
        f'backend: "{"onnxruntime" if model.kind == "onnx" else "pytorch"}" max_batch_size: 16\n'
        f'input [ {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ {dims} ] }} ]\n'
        f'output [ {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ {_CLASSES} ] }} ]\n'
        f"instance_group [ {{ kind: KIND_CPU count: {model.instances} }} ]\n"
        + ("dynamic_batching { }\n" if model.is_batched else "")
        + (string_parameter(_THREADS[model.kind], str(model.threads)) if model.threads else "")
    )


def _write(server: Server, model: Model) -> None:
    version = server.write_model(model.name, _configuration(model)) / "1"
    _run_apart(_write_onnx if model.kind == "onnx" else _write_torch, version, model.shape)


def _run_apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call it in a process of its own: torch stays out of the one that measures."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def _direct(
    path: Path, shape: tuple[int, ...], seconds: float, threads: int
) -> tuple[float, float]:
    """Call the model in a loop: calls per second, and microseconds of CPU of a call."""
    image = np.ones((1, *shape), dtype=np.float32)
    if path.suffix == ".onnx":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

        def call() -> None:
            session.run(["OUTPUT0"], {"INPUT0": image})
    else:
        import torch

        torch.set_num_threads(threads)
        module = torch.jit.load(str(path)).eval()

        def call() -> None:
            with torch.inference_mode():
                module(torch.from_numpy(image)).numpy()

    for _ in range(20):
        call()
    count, start, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - start < seconds:
        call()
        count += 1
    took = time.perf_counter() - start
    return count / took, (time.process_time() - cpu) / count * 1e6


def _print_direct(server: Server, model: Model, seconds: float) -> None:
    name = "model.onnx" if model.kind == "onnx" else "model.pt"
    path = server.repository / model.name / "1" / name
    threads = model.threads or max(1, len(os.sched_getaffinity(0)) // model.instances)
    rate, cpu_us = _run_apart(_direct, path, model.shape, seconds, threads)
    print(f"{'  called directly':22} {'':>3} {rate:8.0f}{'':42}{cpu_us:8.0f}", flush=True)


def _measure(server: Server, model: Model, connections: int, seconds: float) -> None:
    shape = (1, *model.shape)
    plan = clients.http_binary(server.http_port, model=model.name, shape=shape)
    got = clients.measure(plan, connections, seconds, lambda: cpu.by_role(server))
    spent = got.cpu_us
    print(
        f"{model.name:22} {connections:3} {got.per_s:8.0f} {got.p50_ms:8.3f} "
        f"{got.p99_ms:8.3f}"
        + "".join(f"{spent.get(role, 0):8.0f}" for role in _ROLES)
        + f"{sum(spent.values()):8.0f}",
        flush=True,
    )


def main() -> None:
    options = parse_options(seconds=(3.0, "of each row"), only=("", "models whose name holds this"))
    leaks.mark_session()
    has_torch = importlib.util.find_spec("torch") is not None
    models = [m for m in MODELS if options.only in m.name and (has_torch or m.kind == "onnx")]
    print(f"{'model':22} {'c':>3} {'req/s':>8} {'p50 ms':>8} {'p99 ms':>8}", end="")
    print("".join(f"{role:>8}" for role in _ROLES) + f"{'all':>8}   CPU us of a request")
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            # each has the machine to itself
            server = Server(Path(folder) / model.name)
            _write(server, model)
            with server:
                for connections in (1, 8):
                    _measure(server, model, connections, options.seconds)
            _print_direct(server, model, options.seconds)


if __name__ == "__main__":
    main()
