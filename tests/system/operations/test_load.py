"""The load of a server, as balancers learn it: over HTTP, beside answers, and by agent checks."""

from __future__ import annotations

import itertools
import json
import re
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client

from tests.support.journal import UNTIL_RELEASED, ask_journal, release_execution
from tests.support.needs import find_tool
from tests.support.server import Server, free_ports, is_open, tensor
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=("journal", "add_sub", "doubled", "tokens"),
        options=(
            "--agent-check-port=0",
            "--max-model-requests=50",
            "--grpc-restricted-protocol=statistics:balancer-key=7c1f",
        ),
    ),
]
_numbers = itertools.count()
_DOCUMENT = {"inputs": [tensor(f"INPUT{n}", "FP32", [1.0] * 16, [1, 16]) for n in range(2)]}
STAGES = ["queue", "compute_input", "compute", "compute_output", "total"]


@contextmanager
def held(server: Server, count: int) -> Iterator[None]:
    """So many requests to `journal`, of which the first is executed and the others wait."""
    ids = [f"r{next(_numbers)}" for _ in range(count)]
    with ThreadPoolExecutor(count) as threads:
        for own_id in ids:
            threads.submit(ask_journal, server, own_id, UNTIL_RELEASED)
        try:
            eventually(lambda: _load(server, "/v2/models/journal")["unanswered"] == count, 60)
            yield
        finally:
            for own_id in ids:
                release_execution(server.journal, own_id)


def _load(server: Server, path: str) -> dict[str, Any]:
    status, answer = server.request_json(f"{path}/load")
    assert 200 == status
    return answer


def _answer_headers(
    server: Server, path: str, document: dict[str, Any], **wishes: str
) -> dict[str, str]:
    headers = {name.replace("_", "-"): value for name, value in wishes.items()}
    answer = server.exchange(f"/v2/models/{path}", json.dumps(document).encode(), headers)
    return {name.lower(): value for name, value in answer.headers.items()}


def _stages(headers: dict[str, str]) -> dict[str, float]:
    pairs = (part.split(";dur=") for part in headers["server-timing"].split(", "))
    return {name: float(value) for name, value in pairs}


def _agent_port(server: Server) -> int:
    match = re.search(r"Started Agent Check at 127\.0\.0\.1:(\d+)", server.log_text())
    assert match is not None
    return int(match[1])


def _check(server: Server) -> str:
    with (
        socket.create_connection(("127.0.0.1", _agent_port(server)), timeout=20) as connection,
        connection.makefile() as lines,
    ):
        return lines.read()


def _percent(server: Server) -> int:
    match = re.fullmatch(r"up ready (\d+)%\n", _check(server))
    assert match is not None
    return int(match[1])


# ------------------------------------------------------------------- the API


@pytest.mark.row("L05")
def test_the_load_of_a_model_and_of_the_server(server: Server) -> None:
    with held(server, 20):
        of_model = _load(server, "/v2/models/journal")
        of_version = _load(server, "/v2/models/journal/versions/1")
        of_other = _load(server, "/v2/models/add_sub")
        of_server = _load(server, "/v2")

    assert (19, 1, 20) == tuple(of_model[key] for key in ("queued", "executing", "unanswered"))
    assert ("journal", 50, 1.0) == tuple(of_model[key] for key in ("name", "limit", "utilization"))
    assert {"ready": 1, "all": 1} == of_model["instances"]
    assert {**of_model, "version": "1"} == of_version
    assert (0, 0.0) == (of_other["unanswered"], of_other["utilization"])
    assert (True, 20, 1.0) == tuple(
        of_server[key] for key in ("ready", "unanswered", "utilization")
    )
    assert "journal" in {entry["name"] for entry in of_server["models"]}


# ------------------------------------------------------------- beside answers


@pytest.mark.row("L05")
def test_an_answer_has_the_load_that_its_client_asks_for(server: Server) -> None:
    with held(server, 3):
        wish = {"endpoint_load_metrics_format": "json"}
        plain = _answer_headers(server, "add_sub/infer", _DOCUMENT, **wish)
        generated = _answer_headers(server, "tokens/generate", {"COUNT": 1}, **wish)
        text = _answer_headers(
            server, "add_sub/infer", _DOCUMENT, endpoint_load_metrics_format="text"
        )

    for headers in (plain, generated):
        kind, _, document = headers["endpoint-load-metrics"].partition(" ")
        report = json.loads(document)
        assert "JSON" == kind
        assert {"queued", "executing", "instances"} <= report["named_metrics"].keys()
        assert "application_utilization" in report
    assert text["endpoint-load-metrics"].startswith("TEXT application_utilization=")
    assert "named_metrics.queued=0" in text["endpoint-load-metrics"]


@pytest.mark.row("L05", "L21")
def test_over_grpc_it_is_trailing_metadata(server: Server) -> None:
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        stub = client._client_stub  # a result has no trailing metadata
        request = grpc_client.service_pb2.ModelInferRequest(model_name="add_sub")
        for name in ("INPUT0", "INPUT1"):
            request.inputs.add(name=name, datatype="FP32", shape=[1, 16])
            request.raw_input_contents.append(np.ones((1, 16), np.float32).tobytes())

        def trailers(**metadata: str) -> dict[str, str]:
            pairs = tuple((name.replace("_", "-"), value) for name, value in metadata.items())
            _, call = stub.ModelInfer.with_call(request, metadata=pairs)
            return dict(call.trailing_metadata())

        key = {"triton_grpc_protocol_balancer_key": "7c1f"}
        both = trailers(x_stage_times="1", endpoint_load_metrics_format="json", **key)
        withheld = trailers(endpoint_load_metrics_format="json")
        unasked = trailers()

    assert STAGES == list(_stages(both))
    assert both["endpoint-load-metrics"].startswith("JSON {")
    assert {} == withheld == unasked


# --------------------------------------------------------------- agent checks


@pytest.mark.row("L05", "--agent-check-port")
def test_an_agent_check_says_how_much_is_free(server: Server) -> None:
    eventually(lambda: _percent(server) > 90, 60)

    with held(server, 1):
        eventually(lambda: _percent(server) < 50, 60)


@pytest.mark.long("system/operations/test_load.py::test_an_agent_check_says_how_much_is_free")
@pytest.mark.row("--agent-check-port")
def test_haproxy_weighs_the_server_by_its_agent(server: Server, tmp_path: Path) -> None:
    tool = find_tool("haproxy")
    port, statistics_port = free_ports(2)
    agent = f"agent-check agent-port {_agent_port(server)} agent-inter 100ms"
    (tmp_path / "haproxy.cfg").write_text(f"""
defaults
    mode http
    timeout connect 2s
    timeout client 30s
    timeout server 30s
frontend statistics
    bind 127.0.0.1:{statistics_port}
    stats enable
    stats uri /
frontend http
    bind 127.0.0.1:{port}
    default_backend servers
backend servers
    server a 127.0.0.1:{server.http_port} weight 100 {agent}
""")

    def seen() -> tuple[str, int]:
        with urllib.request.urlopen(f"http://127.0.0.1:{statistics_port}/;csv", timeout=20) as page:
            names, *rows = page.read().decode().removeprefix("# ").splitlines()
        row = next(row for row in rows if row.startswith("servers,a,"))
        fields = dict(zip(names.split(","), row.split(","), strict=True))
        return fields["status"], int(fields["weight"])

    command = [tool, "-db", "-f", str(tmp_path / "haproxy.cfg")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as proxy:
        try:
            eventually(lambda: is_open(statistics_port), 60)
            eventually(lambda: seen()[1] > 90, 60)

            with held(server, 1):
                eventually(lambda: seen()[1] < 50, 60)

            assert "no check" == seen()[0]  # what the agent says is of weights alone
        finally:
            proxy.terminate()
