"""The tests' own Server, as far as it works without a server."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.support.server import Server, own_ports


def test_processes_that_test_at_once_take_no_port_of_each_other() -> None:
    taken = []
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as two:
        for place in (one, two):
            ports = own_ports(place)
            taken.append({next(ports) for _ in range(500)})

    assert [500, 500] == [len(ports) for ports in taken]
    assert not taken[0] & taken[1]


@pytest.mark.system
def test_a_server_that_cannot_start_fails_with_its_log(tmp_path: Path) -> None:
    server = Server(tmp_path, options=["--http-port=x"])

    with pytest.raises(AssertionError, match="Invalid option value"):
        server.start()

    assert 1 == server.returncode
