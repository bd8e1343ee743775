"""The tests' own Server, as far as it works without a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.server import Server, own_ports


def test_processes_that_test_at_once_take_no_port_of_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "2")
    taken = []
    for worker in ("gw0", "gw1"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        ports = own_ports()
        taken.append({next(ports) for _ in range(8500)})

    assert [8500, 8500] == [len(ports) for ports in taken]
    assert not taken[0] & taken[1]


@pytest.mark.system
def test_a_server_that_cannot_start_fails_with_its_log(tmp_path: Path) -> None:
    server = Server(tmp_path, options=["--http-port=x"])

    with pytest.raises(AssertionError, match="Invalid option value"):
        server.start()

    assert 1 == server.returncode
