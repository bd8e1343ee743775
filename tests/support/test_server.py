"""The tests' own Server, as far as it works without a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.journal import Record, executions, read_journal
from tests.support.server import Server, own_ports, role_of


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


@pytest.mark.parametrize(
    ("command", "role"),
    [
        ("/v/bin/python /v/lib/zmqtriton_stub/__main__.py add_sub_0_0", "stub"),
        ("/v/bin/python /v/lib/zmqtriton_stub/__main__.py --fork-server 7", "fork-server"),
        ("/v/bin/python -m zmqtriton.broker", "broker"),
        ("/v/bin/python -m zmqtriton_frontends.grpc_api", "grpc"),
        ("/v/bin/python -m zmqtriton_frontends.http_api", "http"),
        ("/v/bin/python -m zmqtriton_standard.metrics", "metrics"),
        ("/bin/sleep 1", "other"),
    ],
)
def test_a_role_shows_on_the_command_line(command: str, role: str) -> None:
    assert role == role_of(command.split())


def test_a_journal_is_read_record_by_record(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_text(
        '{"event": "start", "id": "a b", "pid": 7, "ns": 1}\n'
        '{"event": "end", "id": "a b", "pid": 7, "ns": 2}\n'
        '{"event": "start", "id": "a b", "pid": 8, "ns": 3}\n'
    )

    assert (Record("end", "a b", 7, 2), {"a b": 2}) == (read_journal(path)[1], executions(path))
    assert [] == read_journal(tmp_path / "none")


@pytest.mark.system
def test_a_server_that_cannot_start_fails_with_its_log(tmp_path: Path) -> None:
    server = Server(tmp_path, options=["--http-port=x"])

    with pytest.raises(AssertionError, match="Invalid option value"):
        server.start()

    assert 1 == server.returncode
