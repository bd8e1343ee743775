"""The life of a server of the in-process API: started, refused, polled, dropped, ended."""

from __future__ import annotations

import gc
from pathlib import Path

import psutil
import pytest

from tests.support.server import Server as Repository
from tests.support.waiting import eventually
from zmqtriton_extras.tritonserver import api as tritonserver
from zmqtriton_extras.tritonserver.api import InvalidArgumentError, ModelControlMode

pytestmark = pytest.mark.system


def test_before_the_start_nothing_is_there() -> None:
    server = tritonserver.Server(model_repository="models")

    for call in (server.ready, server.live, server.stop, server.metadata, server.models):
        with pytest.raises(InvalidArgumentError, match="Server not started"):
            call()
    with pytest.raises(InvalidArgumentError, match="Server not started"):
        server.model("a")


def test_a_repository_that_is_not_there_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(tritonserver.InternalError, match="creating server"):
        tritonserver.Server(model_repository=str(tmp_path / "none")).start()
    with pytest.raises(TypeError):
        tritonserver.Server(server_id=1).start()


@pytest.mark.row("J64")
def test_a_program_polls_the_repository_itself(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "s", models=["identity_fp32"])
    server = tritonserver.Server(
        model_repository=str(repository.repository),
        model_control_mode=ModelControlMode.POLL,
        exit_timeout=5,
    ).start()
    assert [*server.models()] == [("identity_fp32", 1)]
    with pytest.raises(InvalidArgumentError, match="Server already started"):
        server.start()

    repository.add_model("string_upper")
    server.poll_model_repository()

    assert {"identity_fp32", "string_upper"} == {name for name, _ in server.models()}
    assert server.model("string_upper").ready()
    with pytest.raises(tritonserver.UnavailableError, match="polling is enabled"):
        server.load("string_upper")
    with pytest.raises(tritonserver.UnsupportedError, match="not EXPLICIT"):
        server.register_model_repository("models")

    server.stop()
    with pytest.raises(InvalidArgumentError, match="Server not started"):
        server.ready()


@pytest.mark.row("J64")
def test_a_model_that_fails_leaves_a_server_that_is_not_ready(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "s", models=["identity_fp32"])
    broken = repository.repository / "broken" / "1"
    broken.mkdir(parents=True)
    (broken / "model.py").write_text("raise RuntimeError('on purpose')\n")
    (broken.parent / "config.pbtxt").write_text('backend: "python"\n')
    options = tritonserver.Options(model_repository=str(repository.repository), exit_on_error=False)

    server = tritonserver.Server(options)
    with pytest.raises(tritonserver.UnavailableError, match="Timeout before ready"):
        server.start(wait_until_ready=True, polling_interval=0.01, timeout=0.1)

    model = server.model("identity_fp32")
    eventually(model.ready, 60)
    eventually(lambda s=server: "on purpose" in str(s.models()["broken", 1].reason), 60)  # type: ignore[misc]
    assert (server.live(), server.ready()) == (True, False)

    # a model keeps its server, as long as there is one
    process = psutil.Process(server.running.connection.pid)
    del server
    gc.collect()
    assert model.ready()
    del model
    gc.collect()
    eventually(lambda: not process.is_running(), 60, "the end of the server")
