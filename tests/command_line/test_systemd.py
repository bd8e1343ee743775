from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from zmqtriton.systemd import Notifier, notifier_from_environment, passed_sockets


@pytest.mark.parametrize(
    ("environment", "beat_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "3000000"}, None),
        ({"NOTIFY_SOCKET": "/x"}, 10.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "3000000"}, 1.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "7"}, 1.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "8"}, 10.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "600000000"}, 10.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "0"}, 10.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "soon"}, 10.0),
    ],
)
def test_the_environment_says_who_listens_and_how_often(
    environment: Mapping[str, str], beat_s: float | None
) -> None:
    assert beat_s == notifier_from_environment(environment, pid=7).heartbeat_s


@pytest.mark.parametrize("is_abstract", [False, True])
def test_what_is_said_arrives(tmp_path: Path, is_abstract: bool) -> None:
    name = f"zmqtriton-{os.getpid()}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}" if is_abstract else name)

        Notifier(f"@{name}" if is_abstract else name).send("READY=1\nSTATUS=fine")

        assert b"READY=1\nSTATUS=fine" == manager.recv(100)


def test_a_manager_that_is_gone_is_no_error(tmp_path: Path) -> None:
    Notifier(str(tmp_path / "nobody")).send("READY=1")
    Notifier().send("READY=1")


@pytest.mark.parametrize(
    ("environment", "passed"),
    [
        ({}, []),
        ({"LISTEN_PID": "7", "LISTEN_FDS": "1"}, [(3, "")]),
        ({"LISTEN_PID": "7", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:b"}, [(3, "a"), (4, "b")]),
        ({"LISTEN_PID": "7", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a"}, [(3, "a"), (4, "")]),
        ({"LISTEN_PID": "8", "LISTEN_FDS": "1"}, []),
        ({"LISTEN_FDS": "1"}, []),
        ({"LISTEN_PID": "7", "LISTEN_FDS": "-1"}, []),
        ({"LISTEN_PID": "7"}, []),
    ],
)
def test_sockets_are_for_the_process_that_they_were_passed_to(
    environment: Mapping[str, str], passed: list[tuple[int, str]]
) -> None:
    assert passed == passed_sockets(environment, pid=7)
