"""A profile as a server answers it, small enough to be counted by hand."""

from __future__ import annotations

from typing import Any

DIRECTORY = "/models/prices"
MODEL = f"{DIRECTORY}/1/model.py"
STUB = "/opt/zmqtriton_stub/loop.py"
NUMPY = "/env/numpy/linalg.py"
EVENTS = "/usr/lib/python3.11/asyncio/events.py"

#: Name, file, line, whether it is the model's own, whether it is a coroutine.
FUNCTIONS = [
    ["Stub._serve", STUB, 1, 0, 0],
    ["TritonPythonModel.execute", MODEL, 10, 1, 0],
    ["svd", NUMPY, 100, 0, 0],
    ["Stub._ready", STUB, 50, 0, 0],
    ["TritonPythonModel.watch", MODEL, 40, 1, 0],
    ["Handle._run", EVENTS, 80, 0, 0],
    ["TritonPythonModel.fetch", MODEL, 60, 1, 1],
]
FRAMES = [[0, 5], [1, 12], [2, 130], [3, 55], [4, 44], [5, 81], [6, 63], [1, 20]]
NODES = [[-1, 0], [0, 1], [1, 2], [0, 3], [-1, 4], [-1, 5], [5, 6], [-1, 6], [0, 7]]
MS = 1_000_000


def part(**changes: Any) -> dict[str, Any]:
    """Return what one instance answers: 1 s, of which half is in numpy."""
    return {
        "seconds": 1.0,
        "samples": 100,
        "directories": [f"{DIRECTORY}/"],
        "functions": FUNCTIONS,
        "frames": FRAMES,
        "nodes": NODES,
        "times": [
            [2, "MainThread", 1, 500 * MS, 50],
            [1, "MainThread", 0, 100 * MS, 10],
            [8, "MainThread", 2, 50 * MS, 5],
            [3, "MainThread", 2, 350 * MS, 35],
            [4, "watcher", 2, 980 * MS, 98],
            [4, "watcher", 0, 20 * MS, 2],
            [6, "loop", 0, 30 * MS, 3],
            [7, "", 3, 200 * MS, 2],
        ],
        "left_out_ns": 0,
        "held_ns": 80 * MS,
        "held": 2,
        "cpu_ns": 650 * MS,
        "own_ns": 5 * MS,
        **changes,
    }


def answer(*parts: dict[str, Any], model: str = "prices") -> dict[str, Any]:
    return {
        "model": model,
        "instances": [
            {"instance": f"{model}_0_{n}", "pid": n, "profile": one} for n, one in enumerate(parts)
        ],
    }
