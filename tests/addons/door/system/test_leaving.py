"""A server that stops, as clients of its door meet it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.addons.door.raw_door import RawDoor, floats
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton.door import Door
from zmqtriton_floor.errors import Unavailable

pytestmark = pytest.mark.system


def test_a_server_that_stops_answers_until_its_clients_are_quiet(tmp_path: Path) -> None:
    options = ("--zmq-door", f"--runtime-directory={tmp_path}/r")
    server = Server(tmp_path / "s", ["identity_fp32"], options=options, frontends=())
    with server, RawDoor(f"{tmp_path}/r/door") as door:
        other = Door(f"{tmp_path}/r/door")
        process = server.process
        assert process is not None
        assert "leaving" not in door.ask("server.live")[1]
        process.send_signal(signal.SIGTERM)
        eventually(lambda: not Path(f"{tmp_path}/r/door").exists(), 30)

        for _ in range(20):
            kind, fields, _ = door.ask("infer", floats("identity_fp32", 1), bytes(4))
            assert ("response", True) == (kind, fields["leaving"])
            assert door.ask("server.live")[1] == {"live": True, "leaving": True}
        assert process.poll() is None
        assert other.metadata()["name"]
        with pytest.raises(Unavailable, match="the server is stopping"):
            other.metadata()

        assert 0 == process.wait(60)
        with pytest.raises(Unavailable, match="the server is stopping"):
            other.metadata()
    with Server(tmp_path / "t", ["identity_fp32"], options=options, frontends=()):
        assert other.metadata()["name"]
    other.close()
