"""Traces of a real server, written as Triton writes them."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client

import zmqtriton
from tests.support.clients import infer_inputs
from tests.support.server import Server
from tests.support.waiting import eventually

_OFF = {"trace_level": ["OFF"], "trace_rate": "1", "trace_count": "-1", "log_frequency": "0"}
_IDENTITY, _TRACED = "identity_fp32", "traced"
_INSIDE = (
    "REQUEST_START",
    "QUEUE_START",
    "COMPUTE_START",
    "COMPUTE_INPUT_END",
    "COMPUTE_OUTPUT_START",
    "COMPUTE_END",
    "REQUEST_END",
)


pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=(_IDENTITY, _TRACED),
        options=("--http-workers=2", "--trace-config=triton,file=@DIRECTORY@/s/trace.json"),
        frontends=("grpc",),
    ),
]


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    """With nothing traced, before and after."""
    settings(running, _OFF)
    yield running
    settings(running, _OFF)
    for model in (_IDENTITY, _TRACED):
        settings(running, dict.fromkeys(_OFF), model)


def settings(server: Server, changes: dict[str, Any], model: str = "") -> None:
    post(server, f"/v2/models/{model}/trace/setting" if model else "/v2/trace/setting", changes)


def post(server: Server, path: str, document: dict[str, Any]) -> Any:
    data = json.dumps(document).encode()
    with urllib.request.urlopen(urllib.request.Request(server.url + path, data)) as answer:
        return json.load(answer)


def infer(server: Server, model: str, request_id: str) -> Any:
    tensor = {"name": "INPUT0", "shape": [2], "datatype": "FP32", "data": [1, 2.5]}
    return post(server, f"/v2/models/{model}/infer", {"id": request_id, "inputs": [tensor]})


class Found:
    """One span of a file, put together from its objects."""

    def __init__(self) -> None:
        self.header: dict[str, Any] = {}
        self.marks: dict[str, int] = {}
        self.tensors: dict[tuple[str, str], dict[str, str]] = {}


def spans(path: Path) -> dict[int, Found]:
    """All of a file, which is a whole document from its first write on; none before."""
    by_id: dict[int, Found] = {}
    text = path.read_text() if path.exists() else ""
    for each in json.loads(text or "[]"):
        span = by_id.setdefault(each["id"], Found())
        if "model_name" in each:
            span.header = each
        for mark in each.get("timestamps", []):
            span.marks[mark["name"]] = mark["ns"]
        if "activity" in each:
            span.tensors[each["activity"], each["tensor"]["name"]] = each["tensor"]
    return by_id


def asked_as(server: Server, request_id: str) -> dict[int, Found]:
    """The spans of the file that has the trace of this request, when it is there."""

    def look() -> dict[int, Found]:
        for path in server.directory.glob("trace.json*"):
            by_id = spans(path)
            if any(s.header.get("request_id") == request_id for s in by_id.values()):
                return by_id
        return {}

    return eventually(look, 30, f"a trace of {request_id}")


def of_request(by_id: dict[int, Found], request_id: str) -> list[Found]:
    return [s for s in by_id.values() if s.header.get("request_id") == request_id]


@pytest.mark.row("I20")
def test_a_request_over_http_leaves_its_marks_in_order(server: Server) -> None:
    settings(server, {"trace_level": ["TIMESTAMPS"]})

    infer(server, _IDENTITY, "plain")

    (span,) = of_request(asked_as(server, "plain"), "plain")
    assert (_IDENTITY, 1) == (span.header["model_name"], span.header["model_version"])
    assert "parent_id" not in span.header
    expected = ["HTTP_RECV_START", "HTTP_RECV_END", *_INSIDE]
    expected += ["INFER_RESPONSE_COMPLETE", "HTTP_SEND_START", "HTTP_SEND_END"]
    assert expected == sorted(span.marks, key=lambda name: (span.marks[name], expected.index(name)))
    assert {} == span.tensors


def test_a_request_over_grpc_has_marks_of_its_own(server: Server) -> None:
    settings(server, {"trace_level": ["TIMESTAMPS"]})

    [tensor] = infer_inputs(grpc_client, INPUT0=np.array([1, 2], np.float32))
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        client.infer(_IDENTITY, [tensor], request_id="over grpc")

    (span,) = of_request(asked_as(server, "over grpc"), "over grpc")
    around = {"GRPC_WAITREAD_START", "GRPC_WAITREAD_END", "GRPC_SEND_START", "GRPC_SEND_END"}
    assert {*_INSIDE, *around, "INFER_RESPONSE_COMPLETE"} == set(span.marks)


@pytest.mark.row("A64")
def test_what_a_model_asks_with_its_trace_is_below_it(server: Server) -> None:
    settings(server, {"trace_level": ["TENSORS"]})

    answer = infer(server, _TRACED, "asking")

    by_id = asked_as(server, "asking")
    (parent,) = of_request(by_id, "asking")
    below = [s for s in by_id.values() if s.header.get("parent_id") == parent.header["id"]]
    assert [_IDENTITY] == [s.header["model_name"] for s in below]
    assert [set(_INSIDE)] == [set(s.marks) for s in below]
    shown = {"data": "1,2.5", "shape": "2", "dtype": "FP32"}
    assert {
        ("TENSOR_QUEUE_INPUT", "INPUT0"): {"name": "INPUT0", **shown},
        ("TENSOR_BACKEND_OUTPUT", "OUTPUT0"): {"name": "OUTPUT0", **shown},
        ("TENSOR_BACKEND_OUTPUT", "CONTEXT"): {
            **{"name": "CONTEXT", "data": "None", "shape": "1", "dtype": "BYTES"}
        },
    } == parent.tensors
    assert ["None"] == answer["outputs"][1]["data"]


@pytest.mark.row("C96", "--trace-config")
def test_every_second_request_is_traced_and_no_more_than_are_wanted(server: Server) -> None:
    settings(server, {"trace_level": ["TIMESTAMPS"], "trace_count": "2"}, _IDENTITY)
    for number in range(8):
        infer(server, _IDENTITY, f"counted {number}")

    def left() -> Any:
        with urllib.request.urlopen(f"{server.url}/v2/models/{_IDENTITY}/trace/setting") as answer:
            return json.load(answer)["trace_count"]

    eventually(lambda: left() == "0", 30, "none is left, as all can see")
    settings(server, {"trace_level": ["TIMESTAMPS"], "trace_rate": "2", "trace_count": "-1"})
    settings(server, dict.fromkeys(_OFF), _IDENTITY)
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        [tensor] = infer_inputs(grpc_client, INPUT0=np.array([1], np.float32))
        for number in range(4):
            client.infer(_IDENTITY, [tensor], request_id=f"rated {number}")

    def ids(of: str) -> list[str]:
        names = [s.header.get("request_id", "") for s in asked_as(server, "rated 3").values()]
        return sorted(name for name in names if name.startswith(of))

    # Traces are written as they become complete, and processes tell of theirs when they like.
    eventually(lambda: ids("rated") == ["rated 1", "rated 3"], 30, "every second one")
    eventually(lambda: len(ids("counted")) == 2, 30, "as many as were wanted")


@pytest.mark.row("I20")
def test_with_a_frequency_each_file_has_so_many_traces(server: Server) -> None:
    settings(server, {"trace_level": ["TIMESTAMPS"], "log_frequency": "2"})

    for number in range(3):
        infer(server, _IDENTITY, f"filed {number}")

    def counts() -> list[int]:
        return [len(spans(server.directory / f"trace.json.{i}")) for i in range(2)]

    eventually(lambda: counts() == [2, 1], 30, "two in the first file, one in the second")


def test_a_program_is_traced_and_keeps_no_way_to_the_tracing_process(server: Server) -> None:
    settings(server, {"trace_level": ["TIMESTAMPS"], "trace_rate": "1"})
    inputs = {"INPUT0": np.ones(2, np.float32)}
    before = len(os.listdir("/proc/self/fd"))

    def written() -> dict[tuple[Path, int], Found]:
        # a frequency that another test has set may have begun further files
        files = sorted(server.directory.glob("trace.json*"))
        return {(path, number): span for path in files for number, span in spans(path).items()}

    earlier = written()

    for _ in range(3):
        with zmqtriton.connect(f":{server.http_port}") as program:
            assert next(program.model(_IDENTITY).infer(inputs=inputs)).outputs

    assert len(os.listdir("/proc/self/fd")) <= before + 2  # of modules that are imported meanwhile

    def of_guests() -> list[Found]:
        new = written().keys() - earlier.keys()
        marks = {"GUEST_RECV_START", "GUEST_SEND_END"}
        return [
            span for key, span in written().items() if key in new and marks <= span.marks.keys()
        ]

    eventually(lambda: len(of_guests()) == 3, 30, "they are written")
