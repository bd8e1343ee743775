from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from zmqtriton.supervisor.machine.control_socket import ControlSocket
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
    control = ControlSocket(path, frozenset)
    caller = call(path)

    accepted = control.accept()

    assert accepted is not None
    line, pid = accepted
    assert pid == os.getpid()
    assert [Call(1, "status", "{}")] == [message for message, _ in line.receive()]
    assert path.stat().st_mode & 0o777 == 0o600
    for end in (caller, line, control):
        end.close()


@pytest.mark.parametrize("relation", ["itself", "its group", "its ancestor"])
def test_what_belongs_to_a_stub_is_not_heard(path: Path, relation: str) -> None:
    stub = {"itself": os.getpid(), "its group": os.getpgid(0), "its ancestor": os.getppid()}
    control = ControlSocket(path, lambda: {stub[relation]})
    caller = call(path)

    assert control.accept() is None

    caller.wait(20)
    assert caller.receive() == []
    assert caller.ended
    caller.close()
    control.close()


def test_nobody_there_is_no_error(path: Path) -> None:
    control = ControlSocket(path, frozenset)

    assert control.accept() is None

    control.close()
