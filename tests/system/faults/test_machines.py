"""Machines that take something away from a server: it works there, or says what is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import find_tool
from tests.support.server import Server, ask_add_sub

pytestmark = pytest.mark.system

MODEL = "add_sub"


def test_what_nobody_may_raise_stays_as_it_is(tmp_path: Path) -> None:
    # As in most containers, where root may not raise a limit either.
    limited = ["sh", "-c", 'ulimit -c 0; exec "$@"', "sh"]
    if not os.geteuid():
        setpriv = find_tool("setpriv", package="util-linux")
        limited = [setpriv, "--bounding-set=-sys_resource", *limited]
    server = Server(tmp_path / "s", models=[MODEL], frontends=())
    server.wrapper = limited
    with server:
        assert 200 == ask_add_sub(server)

        [pid] = server.stub_pids(MODEL)
        limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
        [core] = [line for line in limits if line.startswith("Max core file size")]
        assert ["0", "0"] == core.split()[4:6]


def test_a_server_whose_standard_streams_are_closed_serves(tmp_path: Path) -> None:
    server = Server(tmp_path / "s", models=[MODEL])
    server.wrapper = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    with server:
        assert 200 == ask_add_sub(server)
        assert {"supervisor", "http", "grpc", "metrics", "broker"} <= server.pids().keys()
    assert 0 == server.returncode
    assert "" == server.log_text()


def test_a_repository_at_the_root_of_a_file_system_is_served(tmp_path: Path) -> None:
    server = Server(tmp_path / "s", models=[MODEL], frontends=())
    (server.repository / "lost+found").mkdir()
    with server:
        assert 200 == ask_add_sub(server)
    assert "lost+found' is left out: it is a file system's" in server.log_text()
