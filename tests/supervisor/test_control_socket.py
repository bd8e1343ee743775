from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from zmqtriton.supervisor.control_socket import ControlSocket
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_floor.wire import Call


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="zt", dir="/tmp") as name:
        yield Path(name) / "ctl"


def call(path: Path) -> Lifeline:
    end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    end.connect(str(path))
    line = Lifeline(end)
    line.send(Call(1, "status", "{}"))
    return line


def test_a_process_of_the_same_user_is_heard(path: Path) -> None:
    control = ControlSocket(path, lambda: ())
    caller = call(path)

    line = control.accept()

    assert line is not None
    assert [Call(1, "status", "{}")] == [message for message, _ in line.receive()]
    assert path.stat().st_mode & 0o777 == 0o600
    for end in (caller, line, control):
        end.close()


def test_a_process_of_a_stubs_session_is_not_heard(path: Path) -> None:
    control = ControlSocket(path, lambda: {os.getsid(0)})
    caller = call(path)

    assert control.accept() is None

    caller.wait(20)
    assert caller.receive() == []
    assert caller.ended
    caller.close()
    control.close()


def test_nobody_there_is_no_error(path: Path) -> None:
    control = ControlSocket(path, lambda: ())

    assert control.accept() is None

    control.close()
