"""Measures batches by rows, by cost, and by cost and likeness, with texts of real lengths.

    python -m tests.bench.fitting [--clients 64] [--requests 3000] [--rounds 3]

The model is an encoder of transformers in numpy, which pads the texts of a batch to the longest;
the texts are the lines of the product's own guides. Each setting may have as many padded tokens in
a batch as the memory of an accelerator allows: by rows, that is the number of the longest texts
that fit. Clients ask again at once (a closed loop), and the settings take turns in one server.
Prints requests a second, also for a second of the instance's CPU, and the p99. Asserts nothing.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

from tests.support.server import Server
from tests.support.tools import parse_options

#: The longest text, and the padded tokens that fit into memory.
LONGEST, BUDGET = 128, 2048
ROWS = BUDGET // LONGEST
MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils

WIDTH, HEADS, LAYERS = 128, 4, 3


class TritonPythonModel:
    def initialize(self, args):
        dice = np.random.default_rng(1)
        shapes = [(WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)]
        self.words = dice.normal(size=(1000, WIDTH)).astype(np.float32)
        self.layers = [
            [dice.normal(scale=0.05, size=shape).astype(np.float32) for shape in shapes]
            for _ in range(LAYERS)
        ]

    def execute(self, requests):
        texts = [one.inputs()[0].as_numpy()[0] for one in requests]
        longest = max(map(len, texts))
        tokens = np.zeros((len(texts), longest), np.int32)
        mask = np.full((len(texts), 1, 1, longest), -1e9, np.float32)
        for row, text in enumerate(texts):
            tokens[row, : len(text)] = text
            mask[row, :, :, : len(text)] = 0
        states = self.words[tokens]
        for layer in self.layers:
            states = self.encode(states, mask, *layer)
        vectors = states[:, :1, 0]
        outputs = [pb_utils.Tensor("VECTOR", row[None]) for row in vectors]
        return [pb_utils.InferenceResponse([output]) for output in outputs]

    def encode(self, states, mask, project, out, wide, narrow):
        rows, length, _ = states.shape
        heads = (states @ project).reshape(rows, length, 3, HEADS, -1).transpose(2, 0, 3, 1, 4)
        scores = heads[0] @ heads[1].swapaxes(-1, -2) / 6 + mask
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True)) @ heads[2]
        states = normal(states + mixed.swapaxes(1, 2).reshape(rows, length, -1) @ out)
        return normal(states + np.maximum(states @ wide, 0) @ narrow)


def normal(states):
    states = states - states.mean(-1, keepdims=True)
    return states / np.sqrt((states * states).mean(-1, keepdims=True) + 1e-5)
"""
CONFIG = """
backend: "python"
max_batch_size: %d
dynamic_batching { }
input { name: "tokens" data_type: TYPE_INT32 dims: [ -1 ] allow_ragged_batch: true }
output { name: "VECTOR" data_type: TYPE_FP32 dims: [ 1 ] }
instance_group { count: 1 kind: KIND_CPU }
"""
PARAMETER = 'parameters { key: "%s" value { string_value: "%s" } }\n'
COST = PARAMETER % ("BATCH_COST", "padded(tokens)") + PARAMETER % ("MAX_BATCH_COST", BUDGET)
LIKE = PARAMETER % ("BATCH_LIKE", "shape(tokens)")
SETTINGS = {
    "rows": CONFIG % ROWS,
    "cost": CONFIG % 128 + COST,
    "likeness": CONFIG % ROWS + LIKE,
    "cost_and_likeness": CONFIG % 128 + COST + LIKE,
}


def lengths() -> list[int]:
    """Return the tokens of each line of the guides, of which four letters are one."""
    guides = Path(__file__).parents[2] / "docs"
    lines = [line for path in sorted(guides.rglob("*.md")) for line in path.read_text().split("\n")]
    return [min(LONGEST, 1 + len(line) // 4) for line in lines if line.strip()]


def question(model: str, length: int) -> bytes:
    """Return the bytes of a request over HTTP with binary tensors."""
    data = np.arange(length, dtype=np.int32).tobytes()
    size = {"binary_data_size": len(data)}
    tokens = {"name": "tokens", "datatype": "INT32", "shape": [1, length], "parameters": size}
    header = json.dumps({"inputs": [tokens]}).encode()
    head = (
        f"POST /v2/models/{model}/infer HTTP/1.1\r\nhost: localhost\r\n"
        f"inference-header-content-length: {len(header)}\r\n"
        f"content-length: {len(header) + len(data)}\r\n\r\n"
    )
    return head.encode() + header + data


async def ask(port: int, questions: Iterator[bytes], times: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for each in questions:
        begin = time.perf_counter()
        writer.write(each)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert head.startswith(b"http/1.1 200"), head
        await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
        times.append(time.perf_counter() - begin)
    writer.close()


async def play(port: int, model: str, texts: list[int], clients: int) -> list[float]:
    """Return the times of all requests, which the clients take from one list."""
    questions, times = iter([question(model, each) for each in texts]), list[float]()
    await asyncio.gather(*(ask(port, questions, times) for _ in range(clients)))
    return times


def main() -> None:
    options = parse_options(
        __doc__, clients=(64, "at once"), requests=(3000, "in a turn"), rounds=(3, "of turns")
    )
    texts = random.Random(1).choices(lengths(), k=options.requests)
    quartiles = statistics.quantiles(texts, n=4)
    print(f"{len(texts)} texts: quartiles {quartiles}, longest {max(texts)}, {ROWS} rows")
    with tempfile.TemporaryDirectory() as directory:
        threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        explicit = ["--model-control-mode=explicit"]
        place = Path(directory) / "s"
        with Server(place, environment=threads, options=explicit, frontends=()) as server:
            for name, config in SETTINGS.items():
                (server.repository / name / "1").mkdir(parents=True)
                (server.repository / name / "1" / "model.py").write_text(MODEL)
                (server.repository / name / "config.pbtxt").write_text(config)
                assert not server.control_model("load", name)
            for number in range(options.rounds):
                print(f"round {number + 1}:  requests/s  of the model's CPU  p50 ms  p99 ms")
                for name in SETTINGS:
                    stub = psutil.Process(server.stub_pids(name)[0])
                    before, begin = sum(stub.cpu_times()[:2]), time.perf_counter()
                    times = asyncio.run(play(server.http_port, name, texts, options.clients))
                    took, cpu = time.perf_counter() - begin, sum(stub.cpu_times()[:2]) - before
                    cut = statistics.quantiles(times, n=100)
                    print(
                        f"{name:18} {len(times) / took:8.0f} {len(times) / cpu:18.0f} "
                        f"{1000 * cut[49]:9.1f} {1000 * cut[98]:7.1f}"
                    )


if __name__ == "__main__":
    main()
