"""Models that say themselves whether they are ready, as HTTP and gRPC clients ask."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import tritonclient.grpc
import tritonclient.http

from tests.support.server import Server
from tests.support.waiting import eventually

#: More than the 5 seconds that a model has.
_LONG_S = 30.0


pytestmark = [
    pytest.mark.system,
    pytest.mark.server(),
]


def prepare(server: Server) -> None:
    for name in ("sync", "async"):
        server.add_model("telling", name)
        _say(server, name, "yes")


def _say(server: Server, model: str, what: str) -> None:
    new = server.scratch / f"{model}.new"
    new.write_text(what)
    new.rename(server.scratch / model)


def _count_questions(server: Server, model: str) -> int:
    path = server.scratch / f"{model}.asked"
    return len(path.read_text()) if path.exists() else 0


def _readiness(server: Server, model: str) -> tuple[int, Any]:
    return server.request_json(f"/v2/models/{model}/ready", within_s=_LONG_S)


@pytest.mark.row("A28", "C03", "D02")
@pytest.mark.parametrize("model", ["sync", "async"])
def test_a_model_has_a_say_in_its_readiness(server: Server, model: str) -> None:
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        assert (200, None) == _readiness(server, model)
        assert client.is_model_ready(model)
        assert client.is_model_ready(model, "1")

        _say(server, model, "no")

        assert (400, {"error": "Model version not ready"}) == _readiness(server, model)
        assert not client.is_model_ready(model)
        assert not client.is_model_ready(model, "1")

        _say(server, model, "yes")

        assert client.is_model_ready(model)


def test_a_model_that_hangs_there_can_be_unloaded(server: Server) -> None:
    server.add_model("telling", "hung")
    _say(server, "hung", "yes")
    with tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.http_port}") as client:
        client.load_model("hung")
        _say(server, "hung", "hang")
        before = _count_questions(server, "hung")
        asking = threading.Thread(target=_readiness, args=(server, "hung"))
        asking.start()
        eventually(lambda: _count_questions(server, "hung") > before, _LONG_S, "it is asked")
        [stub] = server.stub_pids("hung")

        client.unload_model("hung")

        eventually(lambda: stub not in server.stub_pids("hung"), _LONG_S, "its process has ended")
        asking.join(_LONG_S)
        eventually(lambda: "'hung' version 1" in server.log_text(), 60, "it is told")
        assert "finalize took more than" not in server.log_text()
