"""Measures each example of `examples/` on two cores, next to the same in FastAPI and LitServe.

    python -m tools.example_figures run figures.json [--seconds 10] [--only digits,search]
    python -m tools.example_figures fill figures.json

`run` needs the packages of all examples, fastapi, uvicorn, python-multipart and litserve, and the
weights, which `make test KIND=examples` makes. Servers take turns, each after a warm-up, with eight
clients that keep their connections. Libraries of algebra have one thread in each: more would wait
for each other on busy cores, and decide the figures. `fill` writes the figures into the README of
each example, and a section into docs/guides/examples.md.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tools.example_figures.fastapi_peer import EXAMPLES

ROOT = EXAMPLES.parent
GALLERY = ROOT / "docs" / "guides" / "examples.md"
CLIENTS, CORES = 8, 2
#: The examples that compute in batches, as LitServe can.
BATCHED = ("digits", "file-types", "search")
PATIENCE_S = 180
#: Requests and seconds before the clock starts: models and caches are warm, a spare process is up.
WARM, WARM_S = 2 * CLIENTS, 6
#: Seconds between the clients: one process of uvicorn accepts all that come at once.
APART_S = 0.1
THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
#: Requests that are counted at least.
FEWEST = 4 * CLIENTS
_LINE = re.compile(r"^On two cores, eight clients.*?\n\n", re.MULTILINE | re.DOTALL)
_SECTION = re.compile(r"^## Speed and memory on two cores.*?(?=^## )", re.MULTILINE | re.DOTALL)
NAMES = {"zmqtriton": "zmqtriton", "fastapi": "FastAPI", "litserve": "LitServe"}


class Task(NamedTuple):
    """A request of an example: a file, or JSON."""

    serve: list[str]
    path: str
    file: str = ""
    field: str = "file"
    document: Any = None


SERIES = [31, 40, 52, 35, 33, 43, 56, 38, 36, 46, 60, 41, 39, 50, 63, 44]
TASKS = {
    "digits": Task(["run", "digits.py"], "/digits", "digit.png", "image"),
    "file-types": Task(["run", "file_types.py"], "/file_types", "file_types.py"),
    "forecast": Task(
        ["run", "forecast.py"], "/forecast", document={"values": SERIES, "steps": 8, "season": 4}
    ),
    "language-model": Task(
        ["run", "chat.py"], "/chat",
        document={"messages": [{"role": "user", "content": "Errors should"}]},
    ),
    "pictures": Task(["run", "draw.py"], "/draw", document={"digit": 3, "seed": 1}),
    "search": Task(["run", "search.py"], "/search", document={"query": "parse a date"}),
    "speech": Task(["--model-repository=models"], "/spoken", "speech.wav", "audio"),
    "tables": Task(
        ["run", "tables.py"], "/growers",
        document=json.loads((EXAMPLES / "tables/rows.json").read_text()),
    ),
    "text-in-images": Task(["run", "read_text.py"], "/read_text", "receipt.png", "image"),
    "triton-repository": Task(
        ["--model-repository=models"], "/v2/models/number/infer", "number.png"
    ),
}  # fmt: skip


class NotReady(Exception):
    """Raised for an answer of a server that still starts."""


class Request(NamedTuple):
    path: str
    body: bytes
    headers: dict[str, str]


def request_of(example: str, server: str) -> Request:
    task = TASKS[example]
    path = {"zmqtriton": task.path, "fastapi": "/", "litserve": "/predict"}[server]
    if task.document is not None:
        body = json.dumps(task.document).encode()
        return Request(path, body, {"Content-Type": "application/json"})
    data = (EXAMPLES / example / task.file).read_bytes()
    if server == "zmqtriton" and example == "triton-repository":
        return as_tensor(path, EXAMPLES / example / task.file)
    if server == "litserve":
        body = json.dumps({"file": base64.b64encode(data).decode()}).encode()
        return Request(path, body, {"Content-Type": "application/json"})
    field, limit = (task.field if server == "zmqtriton" else "file"), uuid.uuid4().hex
    head = f'Content-Disposition: form-data; name="{field}"; filename="{task.file}"'
    body = f"--{limit}\r\n{head}\r\n\r\n".encode() + data + f"\r\n--{limit}--\r\n".encode()
    return Request(path, body, {"Content-Type": f"multipart/form-data; boundary={limit}"})


def as_tensor(path: str, file: Path) -> Request:
    """Return a request of Triton's protocol with the grey pixels of a picture."""
    import numpy as np
    from PIL import Image

    grey = np.asarray(Image.open(file).convert("L"))
    sizes = {"binary_data_size": grey.nbytes}
    tensor = {"name": "PICTURE", "datatype": "UINT8", "shape": grey.shape, "parameters": sizes}
    head = json.dumps({"inputs": [tensor]}).encode()
    return Request(path, head + grey.tobytes(), {"Inference-Header-Content-Length": str(len(head))})


@contextmanager
def served(example: str, server: str, port: int) -> Iterator[psutil.Process]:
    if server == "zmqtriton":
        ports = [f"--{kind}-port={port + n}" for n, kind in enumerate(("http", "grpc", "metrics"))]
        command = ["-m", "zmqtriton", *TASKS[example].serve, *ports, "--log-info=false"]
        place = EXAMPLES / example
    else:
        command, place = ["-m", f"tools.example_figures.{server}_peer", example, str(port)], ROOT
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=place,
        env={**os.environ, **THREADS},
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    try:
        yield psutil.Process(process.pid)
    finally:
        # some servers leave their workers behind
        processes = tree(psutil.Process(process.pid)) if process.poll() is None else []
        process.terminate()
        process.wait(PATIENCE_S)
        _, alive = psutil.wait_procs(processes[1:], timeout=5)
        for each in alive:
            each.kill()


def wait_for(port: int, request: Request, process: psutil.Process) -> bytes:
    """Return the first answer of a server that starts."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return answer_of(http.client.HTTPConnection("127.0.0.1", port, timeout=60), request)
        except (OSError, http.client.HTTPException, NotReady):
            if time.monotonic() > deadline or process.status() == psutil.STATUS_ZOMBIE:
                raise
            time.sleep(0.2)


def answer_of(connection: http.client.HTTPConnection, request: Request) -> bytes:
    connection.request("POST", request.path, request.body, request.headers)
    response = connection.getresponse()
    body = response.read()
    if response.status == 503:
        raise NotReady(body[:500])
    assert response.status == 200, body[:500]
    return body


def tree(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def cpu_s(process: psutil.Process) -> float:
    times = [each.cpu_times() for each in tree(process)]
    return sum(each.user + each.system for each in times)


def memory_mb(process: psutil.Process) -> float:
    """Return the memory of all processes of a server; shared pages count once."""
    return sum(each.memory_full_info().pss for each in tree(process)) / 1e6


def measure(example: str, server: str, port: int, seconds: float) -> dict[str, Any]:
    request = request_of(example, server)
    with served(example, server, port) as process:
        first = wait_for(port, request, process)
        counts, failures = [0] * CLIENTS, []
        is_over = threading.Event()

        def ask(client: int) -> None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                while not is_over.is_set():
                    answer_of(connection, request)
                    counts[client] += 1
            except (OSError, http.client.HTTPException, AssertionError, NotReady) as error:
                failures.append(repr(error))

        threads = [threading.Thread(target=ask, args=(client,)) for client in range(CLIENTS)]
        warm_at = time.monotonic() + WARM_S
        for thread in threads:
            thread.start()
            time.sleep(APART_S)
        while (sum(counts) < WARM or time.monotonic() < warm_at) and not failures:
            time.sleep(0.05)
        before, cpu, began = sum(counts), cpu_s(process), time.monotonic()
        while time.monotonic() < began + seconds or sum(counts) < before + FEWEST:
            time.sleep(0.1)
            if failures or time.monotonic() > began + PATIENCE_S:
                break
        done, took, used = sum(counts) - before, time.monotonic() - began, cpu_s(process) - cpu
        memory = memory_mb(process)
        is_over.set()
        for thread in threads:
            thread.join()
    if failures:
        raise RuntimeError(f"{example} in {server}: {failures[0]}")
    return {
        "per_s": round(done / took, 2),
        "cpu_ms": round(1000 * used / max(done, 1), 3),
        "memory_mb": round(memory),
        "answer": first.decode("utf-8", "replace")[:200],
    }


def run(file: Path, seconds: float, only: list[str]) -> None:
    results = json.loads(file.read_text()) if file.exists() else {}
    for number, example in enumerate(only):
        servers = ["zmqtriton", "fastapi", *["litserve"][: example in BATCHED]]
        for server in servers:
            row = measure(example, server, 24600 + 10 * number, seconds)
            results.setdefault(example, {})[server] = row
            words = f"{row['per_s']} a second, {row['cpu_ms']} ms CPU each, {row['memory_mb']} MB"
            print(f"{example:18} {server:10} {words}", flush=True)
            file.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def amount(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}"


def line_of(rows: dict[str, Any]) -> str:
    """Return the sentence of a README."""
    parts = [
        f"{amount(row['per_s'])} requests a second with {row['memory_mb']} MB in {NAMES[name]}"
        for name, row in sorted(rows.items(), key=lambda each: list(NAMES).index(each[0]))
    ]
    return f"On two cores, eight clients get {', '.join(parts[:-1])}, and {parts[-1]}.\n\n"


def table_of(results: dict[str, Any]) -> str:
    lines = [
        "## Speed and memory on two cores",
        "",
        "<!-- generated: python -m tools.example_figures -->",
        "",
        "Eight clients, and the same classes and functions in each server. A cell has requests a",
        "second, CPU for each, and memory. LitServe is compared where it computes in batches.",
        "Algebra has one thread. Of zmqtriton's memory, 180 MB are its own processes. Where",
        "imports are slow, a spare process is as large as an instance (`--warm-starts=off`: none).",
        "FastAPI computes up to eight requests at once, in its threads.",
        "`python -m tools.example_figures` measures this.",
        "",
        "| Example | zmqtriton | FastAPI | LitServe |",
        "|---|---|---|---|",
    ]
    for example, rows in sorted(results.items()):
        cells = [
            f"{amount(row['per_s'])}, {row['cpu_ms']:.3g} ms, {row['memory_mb']} MB" if row else ""
            for row in map(rows.get, NAMES)
        ]
        lines.append(f"| {example} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", "<!-- end -->"]) + "\n\n"


def fill(file: Path) -> None:
    results = json.loads(file.read_text())
    for example, rows in results.items():
        readme = EXAMPLES / example / "README.md"
        text, line = _LINE.sub("", readme.read_text()), line_of(rows)
        before, mark, after = text.rpartition("`test_")
        readme.write_text(f"{before}{line}{mark}{after}")
    before, mark, after = _SECTION.sub("", GALLERY.read_text()).rpartition(
        "## Examples of features"
    )
    GALLERY.write_text(f"{before}{table_of(results)}{mark}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=["run", "fill"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--only", default=",".join(TASKS))
    options = parser.parse_args()
    if options.command == "fill":
        fill(options.file)
    else:
        run(options.file, options.seconds, options.only.split(","))


if __name__ == "__main__":
    main()
