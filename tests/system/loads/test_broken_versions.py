"""A model with several versions of which one is broken, as Triton 2.51 has it: all serve, or none.

What is expected was recorded from a real Triton, over the same files and the same loads; where an
answer has more text than Triton's, it begins with that.
"""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

import pytest

from tests.support.server import Server

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(models=("add_sub",)),
]
MODEL = "versioned"
_CONFIG = """
backend: "python"
version_policy { all {} }
input { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] }
output { name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] }
instance_group [ { kind: KIND_CPU } ]
"""
_CODE = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        {initialize}

    def execute(self, requests):
        out = pb_utils.Tensor("OUT", np.array([{answer}], np.float32))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
"""
_BROKEN = "ValueError: no weights of version {}"


class View(NamedTuple):
    """The model as clients see it."""

    #: The statuses of the server's readiness and of the model's, without a version and of each.
    server: int
    ready: dict[str, int]
    #: State and first line of the reason by version.
    states: dict[str, tuple[str, str]]
    #: The versions that the metadata names, or the beginning of the error.
    metadata: list[str] | str
    #: The answer, or the status, without a version and of each.
    answers: dict[str, float | int]
    #: The versions that have statistics, or the error.
    counted: list[str] | str


def write(server: Server, *, good: dict[int, int] | None = None, broken: int = 0) -> None:
    """Write versions that answer with a number, and one that cannot be initialized."""
    directory = server.repository / MODEL
    directory.mkdir(exist_ok=True)
    (directory / "config.pbtxt").write_text(_CONFIG)
    codes = {n: _CODE.format(initialize="pass", answer=a) for n, a in (good or {}).items()}
    if broken:
        error = f'raise ValueError("no weights of version {broken}")'
        codes[broken] = _CODE.format(initialize=error, answer=0)
    for number, code in codes.items():
        (directory / str(number)).mkdir(exist_ok=True)
        path = directory / str(number) / "model.py"
        path.write_text(code)
        # a change, on whatever file system
        os.utime(path, ns=(time.time_ns(), time.time_ns()))


def see(server: Server, versions: str = "123") -> View:
    def where(version: str, end: str) -> str:
        place = f"/versions/{version}" if version else ""
        return f"/v2/models/{MODEL}{place}{end}"

    def answer(version: str) -> float | int:
        tensor = {"name": "IN", "datatype": "FP32", "shape": [1], "data": [0]}
        status, answer = server.request_json(where(version, "/infer"), {"inputs": [tensor]})
        return float(answer["outputs"][0]["data"][0]) if status == 200 else status

    _, index = server.request_json("/v2/repository/index", {})
    _, metadata = server.request_json(where("", ""))
    _, counted = server.request_json(where("", "/stats"))
    return View(
        server.status("/v2/health/ready"),
        {version: server.status(where(version, "/ready")) for version in ("", *versions)},
        {
            entry["version"]: (entry["state"], entry.get("reason", "").partition("\n")[0])
            for entry in index
            if entry["name"] == MODEL
        },
        metadata["versions"] if "versions" in metadata else _cut(metadata["error"]),
        {version: answer(version) for version in ("", *versions)},
        [one["version"] for one in counted["model_stats"]]
        if "model_stats" in counted
        else counted["error"],
    )


def _cut(text: str) -> str:
    """Return what Triton says; ours goes on with the reason."""
    return text.partition(". Its last load")[0]


def failed(version: int) -> tuple[str, str]:
    return "UNAVAILABLE", f"Internal: {_BROKEN.format(version)}"


def serves(*versions: int) -> dict[str, tuple[str, str]]:
    return {str(version): ("READY", "") for version in versions}


def load(server: Server) -> Any:
    return server.control_model("load", MODEL)


@pytest.mark.row("F10")
def test_of_a_first_load_none_serves_and_of_later_ones_those_that_served_do(server: Server) -> None:
    write(server, good={1: 1, 3: 3}, broken=2)
    text = f"load failed for model '{MODEL}': version 2 is at UNAVAILABLE state: {failed(2)[1]}"
    assert load(server).startswith(text)
    assert 200 == server.status("/v2/models/add_sub/ready")
    assert see(server) == View(
        server=400,
        ready={"": 400, "1": 400, "2": 400, "3": 400},
        states={"1": ("UNAVAILABLE", "unloaded"), "2": failed(2), "3": ("UNAVAILABLE", "unloaded")},
        metadata=f"Request for unknown model: '{MODEL}' has no available versions",
        answers={"": 404, "1": 503, "2": 503, "3": 503},
        counted=f"requested model '{MODEL}' is not available",
    )
    status, answer = server.request_json(f"/v2/models/{MODEL}/versions/3/stats")
    assert (400, f"requested model '{MODEL}' is not available") == (status, answer["error"])

    write(server, good={2: 2})
    assert "" == load(server)
    assert see(server) == View(
        server=200,
        ready={"": 200, "1": 200, "2": 200, "3": 200},
        states=serves(1, 2, 3),
        metadata=["1", "2", "3"],
        answers={"": 3.0, "1": 1.0, "2": 2.0, "3": 3.0},
        counted=["1", "2", "3"],
    )

    # a version is added, and cannot be loaded
    write(server, broken=4)
    text = f"load failed for model '{MODEL}': version 4 is at UNAVAILABLE state: {failed(4)[1]}"
    assert load(server).startswith(text)
    assert see(server, "1234") == View(
        server=400,
        ready={"": 200, "1": 200, "2": 200, "3": 200, "4": 400},
        states=serves(1, 2, 3) | {"4": failed(4)},
        metadata=["1", "2", "3"],
        answers={"": 3.0, "1": 1.0, "2": 2.0, "3": 3.0, "4": 503},
        counted=["1", "2", "3"],
    )
    status, answer = server.request_json(f"/v2/models/{MODEL}/versions/4/stats")
    text = f"requested model version is not available for model '{MODEL}'"
    assert (400, text) == (status, answer["error"])

    # one that serves is changed, and cannot be loaded either
    write(server, broken=1)
    error = load(server)
    assert f"': version 1 is at UNAVAILABLE state: {failed(1)[1]}\n" in error
    assert f";version 4 is at UNAVAILABLE state: {failed(4)[1]}\n" in error
    after = see(server, "1234")
    assert {"": 3.0, "1": 1.0, "2": 2.0, "3": 3.0, "4": 503} == after.answers
    assert {"": 200, "1": 200, "2": 200, "3": 200, "4": 400} == after.ready
    # Triton gives no reason beside READY
    reason = f"still served, the last load failed: {failed(1)[1]}"
    assert serves(2, 3) | {"1": ("READY", reason), "4": failed(4)} == after.states

    # both are mended
    write(server, good={1: 11, 4: 4})
    assert "" == load(server)
    assert see(server, "1234") == View(
        server=200,
        ready=dict.fromkeys(("", *"1234"), 200),
        states=serves(1, 2, 3, 4),
        metadata=["1", "2", "3", "4"],
        answers={"": 4.0, "1": 11.0, "2": 2.0, "3": 3.0, "4": 4.0},
        counted=["1", "2", "3", "4"],
    )
