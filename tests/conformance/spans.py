"""The spans of some requests as a collector gets them: names, attributes, events, nesting.

`python -m tests.conformance.spans COMMAND …` asks real Triton, COMMAND being what record.py takes,
and keeps it in recorded_spans.json; tests/standard/tracing/system/test_open_telemetry.py
compares it with ours.
"""

from __future__ import annotations

import argparse
import json
import queue
import shutil
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as grpc_client

from tests.conformance.record import Triton
from tests.conformance.repositories import MODELS
from tests.support.clients import infer_inputs
from tests.support.receivers.collector import Collector, ReceivedSpan
from tests.support.server import exchange, status_of
from tests.support.waiting import eventually

RECORDED = Path(__file__).resolve().parent / "recorded_spans.json"
USED = ("identity_fp32", "traced", "tokens", "string_upper", "streamed", "raising")
_TRACE = "5af7651916cd43dd8448eb211c80319c"
_PARENT = "a7ad6b7169203331"
_CHOSEN = {"traceparent": f"00-{_TRACE}-{_PARENT}-01", "tracestate": "congo=t61,rojo=00f"}
#: Over gRPC Triton loses the state.
_STATELESS = {"traceparent": _CHOSEN["traceparent"]}
_NOT_CHOSEN = {"traceparent": f"00-{_TRACE}-{_PARENT}-00"}
#: By the id of the request: how it goes, to which model, with which headers.
CASES: dict[str, tuple[str, str, dict[str, str]]] = {
    "case plain": ("infer", "identity_fp32", {}),
    "case with a context": ("infer", "identity_fp32", _CHOSEN),
    "case with a context of one that was not chosen": ("infer", "identity_fp32", _NOT_CHOSEN),
    "case generated": ("generate", "identity_fp32", _CHOSEN),
    "case that asks": ("infer", "traced", _CHOSEN),
    "case that fails": ("infer", "raising", {}),
    "case over grpc": ("grpc", "identity_fp32", {}),
    "case over grpc with a context": ("grpc", "identity_fp32", _STATELESS),
    "case on a stream": ("stream", "identity_fp32", _STATELESS),
    "case answered by a stream": ("stream", "tokens", {}),
    "case of an ensemble": ("stream", "streamed", {}),
}
_COUNT = 2


def options(url: str) -> list[str]:
    settings = ("mode=opentelemetry", "rate=1", "level=TIMESTAMPS")
    exporter = (f"opentelemetry,url={url}", "opentelemetry,bsp_schedule_delay=50")
    return [f"--trace-config={setting}" for setting in (*settings, *exporter)]


def play(url: str, grpc_address: str) -> None:
    """Asks everything once."""
    with grpc_client.InferenceServerClient(grpc_address) as client:
        for request_id, (way, model, headers) in CASES.items():
            if way in ("infer", "generate"):
                _post(f"{url}/v2/models/{model}/{way}", request_id, headers)
            elif way == "grpc":
                client.infer(model, _inputs(model), request_id=request_id, headers=dict(headers))
            else:
                _stream(client, model, request_id, headers)


def _post(url: str, request_id: str, headers: dict[str, str]) -> None:
    tensor = {"name": "INPUT0", "shape": [2], "datatype": "FP32", "data": [1, 2.5]}
    form = {"INPUT0": [1.0]} if url.endswith("/generate") else {"inputs": [tensor]}
    exchange(urllib.request.Request(url, json.dumps({"id": request_id, **form}).encode(), headers))


def _stream(
    client: grpc_client.InferenceServerClient, model: str, request_id: str, headers: dict[str, str]
) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    client.start_stream(lambda result, error: answers.put(error), headers=dict(headers))
    client.async_stream_infer(model, _inputs(model), request_id=request_id)
    for _ in range(1 if model == "identity_fp32" else _COUNT):
        assert answers.get(timeout=30) is None
    client.stop_stream()


def _inputs(model: str) -> list[grpc_client.InferInput]:
    if model == "identity_fp32":
        return infer_inputs(grpc_client, INPUT0=np.array([1, 2], np.float32))
    return infer_inputs(grpc_client, COUNT=np.array([_COUNT], np.int32))


def trees(collector: Collector) -> dict[str, Any]:
    """Return what was received of each case, without times and ids.

    Children are ordered by name, since a model may be asked before, while and after others are.
    """
    return {case: _tree(collector, collector.request_spans(case)[0], None) for case in CASES}


def _tree(collector: Collector, span: ReceivedSpan, above: ReceivedSpan | None) -> dict[str, Any]:
    attributes = dict(span.attributes)
    if attributes:
        number = above.attributes.get("triton.trace_id", 0) if above is not None else 0
        attributes["triton.trace_parent_id"] -= number
        del attributes["triton.trace_id"]
    below = [_tree(collector, each, span) for each in collector.children_of(span)]
    return {
        "name": span.name,
        "kind": span.kind,
        "below the client's": span.parent_id == _PARENT,
        "state": span.trace_state,
        "attributes": attributes,
        "events": sorted(set(span.event_names)),
        "spans": sorted(below, key=lambda each: str(each["name"])),
    }


class _Repository:
    def __init__(self, scratch: Path, url: str) -> None:
        self._scratch = scratch
        self.options: Sequence[str] = ["--model-control-mode=none", *options(url)]

    def write(self, directory: Path) -> None:
        directory.mkdir()
        for model in USED:
            shutil.copytree(MODELS / model, directory / model)
            (directory / model / "1").mkdir(exist_ok=True)
            config = directory / model / "config.pbtxt"
            config.write_text(config.read_text("utf-8").replace("@SCRATCH@", str(self._scratch)))


def record(command: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as directory, Collector() as collector:
        place = Path(directory)
        triton = Triton(command, _Repository(place, collector.url), place)
        triton.start()
        try:
            ready = f"http://127.0.0.1:{triton.http_port}/v2/health/ready"
            eventually(lambda: status_of(ready) == 200, 60, "Triton is ready")
            play(f"http://127.0.0.1:{triton.http_port}", f"127.0.0.1:{triton.grpc_port}")
        finally:
            triton.stop()
        RECORDED.write_text(json.dumps(trees(collector), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    record(parser.parse_args().command)
