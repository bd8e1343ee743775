"""A server takes the place of another one whose models do not fit twice: requests wait."""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from tests.faults.replacements.ways import OneByOne
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system


def test_models_are_loaded_when_the_server_before_has_ended(tmp_path: Path) -> None:
    explicit = ("--model-control-mode=explicit", "--load-model=add_sub", "--load-model=tokens")
    way = OneByOne(tmp_path, explicit)
    way.start()
    [old] = way.servers
    with ExitStack() as ends:
        ends.callback(way.close)
        waiting = ends.enter_context(ThreadPoolExecutor())
        assert 200 == old.request_json("/v2/repository/models/identity_fp32/load", {})[0]
        stream = ends.enter_context(begin_stream(old))
        new = way.next()
        way.servers.append(new)
        new.launch()
        eventually(lambda: "leaves" in old.log_text(), 60, "it has the ports")

        answers = [
            waiting.submit(identity, new, [1.5]),
            waiting.submit(new.request_json, "/v2/models/nobody/infer", {"inputs": []}),
        ]
        assert 400 == new.status("/v2/health/ready")
        assert "stub" not in new.pids()
        assert not any(each.done() for each in answers)

        stream.close()
        assert [1.5] == answers[0].result(60)
        assert 0 == ended(old)
        assert answers[1].result(60)[0] in (400, 404)
        eventually(new.is_ready, 60, "ready")


def identity(server: Server, values: list[float]) -> Any:
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [len(values)], "data": values}
    _, document = server.request_json("/v2/models/identity_fp32/infer", {"inputs": [tensor]})
    return document["outputs"][0]["data"]


def ended(server: Server) -> int:
    assert server.process is not None
    return server.process.wait(60)


def begin_stream(server: Server) -> HTTPResponse:
    """Begin what keeps a server that leaves for longer than a test takes."""
    body = json.dumps({"COUNT": 1_000_000, "DELAY_US": 50_000}).encode()
    request = urllib.request.Request(f"{server.url}/v2/models/tokens/generate_stream", body)
    response = urllib.request.urlopen(request, timeout=60)
    assert isinstance(response, HTTPResponse)
    assert response.readline().startswith(b"data:")
    return response
