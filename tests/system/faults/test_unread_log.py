"""A log that nobody reads: a pipe that is full from the start. It holds up no process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.standard.ctl.system.commands import ctl
from tests.support.scripted import generate
from tests.support.server import Server, ask_add_sub
from tests.support.waiting import eventually
from tests.support.waits.full_pipe import FullPipe

pytestmark = pytest.mark.system

OPTIONS = ["--model-control-mode=explicit", "--load-model=*", "--log-verbose=1"]
_PRINTS = 'print("said " + "x" * 10_000)\nreturn [reply("")]'


@pytest.fixture
def pipe() -> Iterator[FullPipe]:
    with FullPipe() as pipe:
        yield pipe


@pytest.fixture
def server(tmp_path: Path, pipe: FullPipe) -> Server:
    options = [*OPTIONS, f"--runtime-directory={tmp_path}/run"]
    server = Server(tmp_path / "s", ["add_sub", "scripted"], options=options, frontends=())
    server.output = pipe.writing
    return server


@pytest.mark.row("A30")
def test_a_log_that_nobody_reads_holds_up_nothing(server: Server) -> None:
    with server:
        for _ in range(12):
            generate(server, "scripted", _PRINTS)
            assert 200 == ask_add_sub(server)

        assert not server.control_model("unload", "add_sub")
        assert not server.control_model("load", "add_sub")
        server.replace_only("stub", "scripted")
        server.replace_only("broker")
        eventually(server.is_ready, 30, "it is ready")
        generate(server, "scripted", _PRINTS)
        assert 0 == ctl(server, "status").exit_code
        assert "said xxx" in ctl(server, "logs", "scripted").stdout
        assert 0 == server.stop()
