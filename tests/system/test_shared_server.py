"""The server of all files goes on after it was killed while no test had it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.shared_server import SharedServer

pytestmark = pytest.mark.system


def test_a_server_that_ended_between_two_files_is_started_again(tmp_path: Path) -> None:
    server = SharedServer(tmp_path)
    with server:
        first = server.process
        server.go_on()
        assert first is server.process
        server.add_model("add_sub")
        server.kill()

        server.go_on()

        assert first is not server.process
        assert server.is_ready()
        assert [] == list(server.repository.iterdir())
