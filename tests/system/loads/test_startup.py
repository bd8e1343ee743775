"""Servers whose repository is not there when they start."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException

from tests.support.server import MODELS_DIRECTORY, Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

_NOT_READY = {"error": "Server not ready"}


@pytest.mark.long(
    "supervisor/models/test_startup.py::test_a_server_that_goes_on_without_a_repository_serves_nothing",
    "supervisor/models/test_startup.py::test_models_can_be_loaded_when_the_repository_has_come",
)
@pytest.mark.row("F16")
def test_without_a_repository_nothing_is_served_until_it_comes(tmp_path: Path) -> None:
    late = tmp_path / "late"
    options = [f"--model-repository={late}", "--exit-on-error=false"]
    server = Server(tmp_path / "s", options=options, frontends=("grpc",))
    server.launch()
    try:
        eventually(lambda: server.status("/v2") == 200, 60, "the server's metadata")
        # As Triton 2.51 answers.
        assert 400 == server.status("/v2/health/live")
        assert 400 == server.status("/v2/health/ready")
        for path in ("/v2/models/add_sub", "/v2/models/add_sub/ready", "/v2/models/stats"):
            assert (503, _NOT_READY) == server.request_json(path)
        for path in ("/v2/repository/index", "/v2/repository/models/add_sub/load"):
            assert (503, _NOT_READY) == server.request_json(path, {})
        assert (503, _NOT_READY) == server.request_json("/v2/models/add_sub/infer", {"inputs": []})
        assert 200 == server.status("/v2/logging")
        with grpc_client.InferenceServerClient(server.grpc_address) as client:
            assert not client.is_server_live()
            assert not client.is_server_ready()
            for call in (client.get_model_repository_index, client.get_inference_statistics):
                with pytest.raises(InferenceServerException) as caught:
                    call()
                assert "StatusCode.UNAVAILABLE" == caught.value.status()
                assert "Server not ready" == caught.value.message()
        assert f"Internal: failed to stat file {late}" in server.log_text()

        shutil.copytree(MODELS_DIRECTORY / "add_sub", tmp_path / "new" / "add_sub")
        (tmp_path / "new").rename(late)

        eventually(server.is_ready, 60, "ready")
        assert 200 == server.status("/v2/health/live")
        assert 200 == server.status("/v2/models/add_sub/ready")
    finally:
        assert 0 == server.stop()
