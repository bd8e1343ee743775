"""Measures batches by rows, by cost, and by cost and likeness, with texts of real lengths.

    python -m tests.bench.fitting [--clients 64] [--requests 3000] [--rounds 3]
        [--triton COMMAND] [--litserve PYTHON] [--python PYTHON] [--more NAME KEY=VALUE … NAME …]

The model is an encoder of transformers in numpy, which pads the texts of a batch to the longest;
the texts are the lines of the product's own guides. Each setting may have as many padded tokens in
a batch as the memory of an accelerator allows: by rows, that is the number of the longest texts
that fit. Clients ask again at once (a closed loop), and the settings take turns in one server.

COMMAND starts a tritonserver, as for tests/conformance/record.py: it gets the files of the setting
by rows. `--litserve` has litserve and numpy, and serves the same encoder with as many rows.
`--python` runs our models: with the numpy of the others, for Triton takes no numpy 2, and numpy 1
is 7% slower. Each of `--more` adds parameters to cost and likeness.

Prints requests a second, also for a second of CPU of the model's process and of all processes of
its server, and the p50 and p99. Asserts nothing.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil

from tests.bench.peers import running, triton
from tests.support.server import Server, free_ports
from tests.support.tools import parse_options

#: The longest text, and the padded tokens that fit into memory.
LONGEST, BUDGET = 128, 2048
ROWS = BUDGET // LONGEST
ENCODER = """
import numpy as np

WIDTH, HEADS, LAYERS = 128, 4, 3


class Encoder:
    def __init__(self):
        dice = np.random.default_rng(1)
        shapes = [(WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)]
        self.words = dice.normal(size=(1000, WIDTH)).astype(np.float32)
        self.layers = [
            [dice.normal(scale=0.05, size=shape).astype(np.float32) for shape in shapes]
            for _ in range(LAYERS)
        ]

    def __call__(self, texts):
        longest = max(map(len, texts))
        tokens = np.zeros((len(texts), longest), np.int32)
        mask = np.full((len(texts), 1, 1, longest), -1e9, np.float32)
        for row, text in enumerate(texts):
            tokens[row, : len(text)] = text
            mask[row, :, :, : len(text)] = 0
        states = self.words[tokens]
        for layer in self.layers:
            states = self.encode(states, mask, *layer)
        return states[:, :1, 0]

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
MODEL = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.encoder = Encoder()

    def execute(self, requests):
        vectors = self.encoder([one.inputs()[0].as_numpy()[0] for one in requests])
        outputs = [pb_utils.Tensor("VECTOR", row[None]) for row in vectors]
        return [pb_utils.InferenceResponse([output]) for output in outputs]
"""
LITSERVE = """
import sys

import litserve


class Api(litserve.LitAPI):
    def setup(self, device):
        self.encoder = Encoder()

    def decode_request(self, request):
        return request["tokens"]

    def predict(self, texts):
        return self.encoder(texts)

    def unbatch(self, vectors):
        return vectors

    def encode_response(self, vector):
        return {"vector": vector.tolist()}


if __name__ == "__main__":
    api = Api(max_batch_size=int(sys.argv[2]), batch_timeout=0.005)
    server = litserve.LitServer(api, accelerator="cpu")
    server.run(port=int(sys.argv[1]), generate_client_file=False, log_level="error")
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
THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
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


class Place(NamedTuple):
    """The server of a setting, and the name of its model there."""

    port: int
    pid: int
    model: str


def question(model: str, length: int) -> bytes:
    """Return the bytes of a request: binary tensors, or for no model LitServe's JSON."""
    if not model:
        body = json.dumps({"tokens": [*range(length)]}).encode()
        head = "POST /predict HTTP/1.1\r\ncontent-type: application/json\r\n"
        return f"{head}host: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
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
        size = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
        body = await reader.readexactly(size)
        assert head.startswith(b"http/1.1 200"), head + body
        times.append(time.perf_counter() - begin)
    writer.close()


async def play(place: Place, texts: list[int], clients: int) -> list[float]:
    """Return the times of all requests, which the clients take from one list."""
    questions, times = iter([question(place.model, each) for each in texts]), list[float]()
    await asyncio.gather(*(ask(place.port, questions, times) for _ in range(clients)))
    return times


@contextmanager
def ours(folder: Path, settings: dict[str, str], python: str) -> Iterator[dict[str, Place]]:
    server = Server(folder / "s", environment=THREADS, frontends=())
    own_python = PARAMETER % ("PYTHON_EXECUTABLE", python) if python else ""
    for name, config in settings.items():
        server.write_model(name, config + own_python, ENCODER + MODEL)
    with server:
        yield {name: Place(server.http_port, server.pid, name) for name in settings}


@contextmanager
def tritons(folder: Path, command: str) -> Iterator[dict[str, Place]]:
    code = folder / "triton" / "rows" / "1" / "model.py"
    code.parent.mkdir(parents=True)
    code.write_text(ENCODER + MODEL)
    (code.parents[1] / "config.pbtxt").write_text(SETTINGS["rows"])
    with triton(command, folder / "triton", THREADS) as (port, pid):
        yield {"triton": Place(port, pid, "rows")}


@contextmanager
def litserves(folder: Path, python: str) -> Iterator[dict[str, Place]]:
    code = folder / "litserve_encoder.py"
    code.write_text(ENCODER + LITSERVE)
    [port] = free_ports(1)
    command = [python, str(code), str(port), str(ROWS)]
    health = f"http://127.0.0.1:{port}/health"
    with running(command, health, code.with_suffix(".log"), THREADS) as pid:
        yield {"litserve": Place(port, pid, "")}


def with_more(words: list[str]) -> dict[str, str]:
    """Return all settings: a word without `=` is the name of another."""
    settings, name = dict(SETTINGS), ""
    for word in words:
        key, is_parameter, value = word.partition("=")
        if is_parameter:
            settings[name] += PARAMETER % (key, value)
        else:
            name, settings[word] = word, SETTINGS["cost_and_likeness"]
    return settings


def cpu_of(pid: int) -> dict[int, float]:
    """Return the CPU in seconds of a process, and of each below it."""
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    return {each.pid: sum(each.cpu_times()[:2]) for each in family}


def measure(place: Place, texts: list[int], clients: int) -> str:
    before, begin = cpu_of(place.pid), time.perf_counter()
    times = asyncio.run(play(place, texts, clients))
    took, after = time.perf_counter() - begin, cpu_of(place.pid)
    spent = [after[pid] - before.get(pid, 0) for pid in after]
    cut, count = statistics.quantiles(times, n=100), len(times)
    rates = f"{count / took:8.0f} {count / max(spent):11.0f} {count / sum(spent):12.0f}"
    return f"{rates} {1000 * cut[49]:9.1f} {1000 * cut[98]:7.1f}"


def main() -> None:
    options = parse_options(
        __doc__,
        clients=(64, "at once"),
        requests=(3000, "in a turn"),
        rounds=(3, "of turns"),
        triton=("", "the command that starts a tritonserver"),
        litserve=("", "a Python with litserve"),
        python=("", "the Python of our models"),
        more=([], "settings by name, and their parameters"),
    )
    texts = random.Random(1).choices(lengths(), k=options.requests)
    quartiles = statistics.quantiles(texts, n=4)
    print(f"{len(texts)} texts: quartiles {quartiles}, longest {max(texts)}, {ROWS} rows")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        places = stack.enter_context(ours(folder, with_more(options.more), options.python))
        if options.litserve:
            places |= stack.enter_context(litserves(folder, options.litserve))
        if options.triton:
            places |= stack.enter_context(tritons(folder, options.triton))
        for number in range(options.rounds):
            print(f"round {number + 1}:  requests/s  model's CPU  all its CPU  p50 ms  p99 ms")
            for name, place in places.items():
                print(f"{name:18} {measure(place, texts, options.clients)}", flush=True)


if __name__ == "__main__":
    main()
