"""Traces of a real server, as a collector of OpenTelemetry gets them."""

from __future__ import annotations

import json
import os
import queue
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client

from tests.conformance import spans
from tests.support.clients import infer_inputs
from tests.support.receivers.collector import Collector, ReceivedSpan
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

_TRACE = "0af7651916cd43dd8448eb211c80319c"
_PARENT = "b7ad6b7169203331"
#: As clients send it whose tracer has not chosen the request; it is traced anyway.
_GIVEN = {"traceparent": f"00-{_TRACE}-{_PARENT}-00", "tracestate": "congo=t61, rojo=00f"}


def options(collector: Collector, delay_ms: int, *more: str) -> list[str]:
    settings = ("mode=opentelemetry", "rate=1", "level=TIMESTAMPS")
    exporter = (f"url={collector.url}", f"bsp_schedule_delay={delay_ms}", *more)
    return [f"--trace-config={setting}" for setting in settings] + [
        f"--trace-config=opentelemetry,{setting}" for setting in exporter
    ]


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("telemetry") / "s"
    server_options = options(collector, 50, "resource=service.version=1=2", "resource=place=here")
    with Server(
        directory, models=spans.USED, options=server_options, frontends=("grpc",)
    ) as server:
        yield server


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    """A server that traces every request."""
    yield running
    post(running, "/v2/trace/setting", {"trace_rate": None, "trace_level": None})


def post(
    server: Server, path: str, document: dict[str, Any], headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    request = urllib.request.Request(
        server.url + path, json.dumps(document).encode(), headers or {}
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def infer(server: Server, model: str, request_id: str, **headers: str) -> Any:
    tensor = {"name": "INPUT0", "shape": [2], "datatype": "FP32", "data": [1, 2.5]}
    document = {"id": request_id, "inputs": [tensor]}
    return post(server, f"/v2/models/{model}/infer", document, headers)[1]


def said(answer: Any) -> str:
    """The context that a model has."""
    (text,) = (o["data"][0] for o in answer["outputs"] if o["name"] == "CONTEXT")
    assert isinstance(text, str)
    return text


def of_client(client: grpc_client.InferenceServerClient, request_id: str) -> None:
    [tensor] = infer_inputs(grpc_client, INPUT0=np.array([1, 2], np.float32))
    client.infer("identity_fp32", [tensor], request_id=request_id, headers=_GIVEN)


@pytest.mark.row("I21")
def test_a_collector_gets_what_triton_sends_it(server: Server, collector: Collector) -> None:
    spans.play(server.url, server.grpc_address)

    assert json.loads(spans.RECORDED.read_text("utf-8")) == spans.trees(collector)


@pytest.mark.row("I21")
def test_a_request_with_a_context_is_traced_below_it_whatever_the_rate(
    server: Server, collector: Collector
) -> None:
    post(server, "/v2/trace/setting", {"trace_rate": "1000"})
    answers: queue.Queue[Any] = queue.Queue()

    infer(server, "identity_fp32", "without")
    infer(server, "identity_fp32", "over http", **_GIVEN)
    [tensor] = infer_inputs(http_client, INPUT0=np.array([1, 2], np.float32))
    with http_client.InferenceServerClient(server.url.removeprefix("http://")) as kept:
        kept.infer("identity_fp32", [tensor], request_id="kept alive", headers=dict(_GIVEN))
    post(server, "/v2/models/identity_fp32/generate", {"id": "generated", "INPUT0": [1.0]}, _GIVEN)
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        of_client(client, "over grpc")
        client.start_stream(lambda result, error: answers.put(error), headers=_GIVEN)
        [tensor] = infer_inputs(grpc_client, INPUT0=np.array([1], np.float32))
        client.async_stream_infer("identity_fp32", [tensor], request_id="streamed")
        assert answers.get(timeout=30) is None

    for request_id in ("over http", "kept alive", "generated", "over grpc", "streamed"):
        top, model = collector.request_spans(request_id)
        assert {(_TRACE, "congo=t61, rojo=00f")} == {
            (s.trace_id, s.trace_state) for s in (top, model)
        }
        assert _PARENT == top.parent_id
    assert "without" not in [s.attributes.get("triton.request_id") for s in collector.spans()]


@pytest.mark.row("A64")
def test_a_model_has_the_context_of_its_span_and_what_it_asks_is_below(
    server: Server, collector: Collector
) -> None:
    answer = infer(server, "traced", "asking", **_GIVEN)
    without = infer(server, "traced", "asking without")

    _, model = collector.request_spans("asking")
    context = {
        "traceparent": f"00-{_TRACE}-{model.span_id}-01",
        "tracestate": "congo=t61, rojo=00f",
    }
    assert context == json.loads(said(answer))
    assert ["traceparent"] == list(json.loads(said(without)))
    compute, below = collector.children_of(model)
    assert ("compute", "identity_fp32") == (compute.name, below.name)
    assert "asked" == below.attributes["triton.request_id"]
    number = model.attributes["triton.trace_id"]
    assert number == below.attributes["triton.trace_parent_id"]
    assert ["compute"] == [s.name for s in collector.children_of(below)]

    post(server, "/v2/trace/setting", {"trace_level": ["OFF"]})
    assert "None" == said(infer(server, "traced", "not traced", **_GIVEN))


@pytest.mark.row("C96", "D11")
def test_the_settings_of_the_exporter_are_shown_and_stay_as_they_are(
    server: Server, collector: Collector
) -> None:
    shown = {
        "trace_level": ["TIMESTAMPS"],
        "trace_rate": "1",
        "trace_count": "-1",
        "trace_mode": "opentelemetry",
        "url": collector.url,
        "bsp_schedule_delay": "50",
        "bsp_max_queue_size": "2048",
        "bsp_max_export_batch_size": "512",
        "resource": ["service.version=1=2", "place=here"],
    }

    for changes in ({}, {"trace_mode": "triton"}, {"url": "http://other"}, {"resource": "a=b"}):
        assert (200, shown) == post(server, "/v2/trace/setting", changes)
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        over_grpc = client.get_trace_settings(as_json=True)["settings"]

    text = "trace file location can not be updated through network protocol"
    assert (501, {"error": text}) == post(server, "/v2/trace/setting", {"trace_file": "/x"})
    text = "Attempting to set invalid trace setting :sample rate must be non-zero"
    assert (400, {"error": text}) == post(server, "/v2/trace/setting", {"trace_rate": "0"})
    listed = {key: value if type(value) is list else [value] for key, value in shown.items()}
    assert listed == {key: setting["value"] for key, setting in over_grpc.items()}


def test_who_exports_may_die_and_is_started_again(server: Server, collector: Collector) -> None:
    (dead,) = server.pids()["tracer"]
    os.kill(dead, signal.SIGKILL)
    assert "error" not in infer(server, "identity_fp32", "while nobody exports")
    eventually(lambda: server.pids().get("tracer", [dead]) != [dead], 30, "another one")
    ids: list[str] = []

    def arrives() -> bool:
        """Return True once it has arrived; what was on its way to the dead one is lost at first."""
        ids.append(f"after a death {len(ids)}")
        infer(server, "identity_fp32", ids[-1])
        return any(named(collector, request_id) for request_id in ids)

    eventually(arrives, 30, "spans")


@pytest.mark.long(
    "standard/tracing/test_open_telemetry.py::test_at_the_end_everything_is_taken_whatever_was_to_be_waited_for"
)
@pytest.mark.row("I21")
def test_what_waits_is_sent_when_the_server_ends(tmp_path: Path, collector: Collector) -> None:
    server_options = options(collector, 3_600_000)
    models = ["identity_fp32"]
    with Server(tmp_path / "s", models, options=server_options, frontends=()) as server:
        infer(server, "identity_fp32", "one of the last")
        assert [] == named(collector, "one of the last")

        assert 0 == server.stop(), server.log_text()

    assert 1 == len(named(collector, "one of the last"))


def named(collector: Collector, request_id: str) -> list[ReceivedSpan]:
    attribute = "triton.request_id", request_id
    return [s for s in collector.spans() if attribute in s.attributes.items()]
