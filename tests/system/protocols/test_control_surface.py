"""Questions of Triton's clients besides inference, to one real server as raw HTTP and gRPC."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tritonclient.http as http_client

from tests.support.clients import infer_inputs, open_client
from tests.support.server import Server
from zmqtriton.commit import full_version
from zmqtriton_floor import TRITON_VERSION

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(models=("add_sub", "string_upper"), load=("add_sub",)),
]


def prepare(server: Server) -> None:
    (server.repository / "empty").mkdir()


def error(status: int, text: str) -> tuple[int, dict[str, str]]:
    return status, {"error": text}


@pytest.mark.row("C01")
@pytest.mark.parametrize("state", ["live", "ready"])
def test_health_is_a_document_for_clients_that_read_one(server: Server, state: str) -> None:
    path = f"/v2/health/{state}"
    kserve, triton = server.exchange(path, headers={"Accept": "*/*"}), server.exchange(path)

    assert (200, {state: True}) == (kserve.status, kserve.document)
    assert "application/json" == kserve.headers["content-type"]
    assert (200, b"") == (triton.status, triton.body)
    # no body is no JSON
    assert triton.headers["content-type"] is None


@pytest.mark.row("C01", "C04")
def test_the_server_is_alive_and_says_what_it_is(server: Server) -> None:
    assert (200, None) == server.request_json("/v2/health/live")
    assert (200, None) == server.request_json("/v2/health/live?x=1")
    assert error(405, "Method Not Allowed") == server.request_json("/v2/health/live", {})

    status, document = server.request_json("/v2")
    assert (200, "triton", ["name", "version", "extensions"]) == (
        status,
        document["name"],
        [*document],
    )
    extensions = [
        "classification",
        "sequence",
        "model_repository",
        "model_repository(unload_dependents)",
        "schedule_policy",
        "model_configuration",
        "system_shared_memory",
        "cuda_shared_memory",
        "binary_tensor_data",
        "parameters",
        "statistics",
        "trace",
        "logging",
        f"zmqtriton({full_version()})",
    ]
    assert extensions == document["extensions"]
    # clients compare it with Triton's releases
    assert document["version"] == TRITON_VERSION


@pytest.mark.row("C81", "C83")
def test_statistics_count_elements_executions_and_requests_apart(server: Server) -> None:
    def entry() -> Any:
        return server.request_json("/v2/models/add_sub/stats")[1]["model_stats"][0]

    before = entry()
    ones = np.ones((3, 16), np.float32)
    with open_client(server, "http") as client:
        for _ in range(4):
            client.infer("add_sub", infer_inputs(http_client, INPUT0=ones, INPUT1=ones))
    after = entry()

    for key, more in (("inference_count", 12), ("execution_count", 4)):
        assert more == after[key] - before[key]
    for key in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
        old, new = before["inference_stats"][key], after["inference_stats"][key]
        assert 4 == new["count"] - old["count"], key
        # Nobody was before these in the queue.
        assert key == "queue" or new["ns"] > old["ns"], key
    (of_three,) = [b for b in after["batch_stats"] if b["batch_size"] == 3]
    assert 4 <= of_three["compute_infer"]["count"]


@pytest.mark.row("C10", "C70")
def test_the_index_lists_every_directory(server: Server) -> None:
    status, index = server.request_json("/v2/repository/index", {})

    names = [entry["name"] for entry in index]
    assert (200, sorted(names)) == (status, names)
    assert {"add_sub", "empty", "string_upper"} <= set(names)
    assert {"name": "empty"} in index
