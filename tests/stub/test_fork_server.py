"""The fork server's own process; forks need a supervisor (tests/system)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest

from zmqtriton_stub import fork_server

pytestmark = pytest.mark.slow

_ROOTS = os.pathsep.join(sys.path)


def test_this_process_is_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "sitecustomize", raising=False)
    monkeypatch.setattr(threading, "active_count", lambda: 1)

    assert "" == fork_server.why_unfit()


@pytest.mark.parametrize("name", ["sitecustomize", "usercustomize"])
def test_code_that_has_to_run_in_each_process_makes_it_unfit(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    module = types.ModuleType(name)
    module.__file__ = f"/opt/agent/{name}.py"
    monkeypatch.setitem(sys.modules, name, module)

    assert f"/opt/agent/{name}.py has to run in each process" == fork_server.why_unfit()


def test_what_a_distribution_puts_into_the_library_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = types.ModuleType("sitecustomize")
    module.__file__ = os.path.join(os.path.dirname(os.__file__), "sitecustomize.py")
    monkeypatch.setitem(sys.modules, "sitecustomize", module)
    monkeypatch.setattr(threading, "active_count", lambda: 1)

    assert "" == fork_server.why_unfit()


def test_a_thread_makes_it_unfit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 2)

    assert "a thread" in fork_server.why_unfit()


def _shown(*arguments: str, room: int) -> list[bytes]:
    """Return what /proc/self/cmdline holds after it was told to show these."""
    code = (
        "import sys\n"
        "from zmqtriton_floor.prctl import CommandLine\n"
        "line = CommandLine()\n"
        "line.show(['x'])\n"  # a shorter one does not cost the room
        "line.show(sys.argv[1:-1])\n"
        "sys.stdout.buffer.write(open('/proc/self/cmdline', 'rb').read())\n"
    )
    command = [sys.executable, "-c", code, *arguments, " " * room]
    environment = {**os.environ, "PYTHONPATH": _ROOTS}
    shown = subprocess.run(command, capture_output=True, check=True, env=environment).stdout
    return shown.rstrip(b"\0").split(b"\0")


def test_a_command_line_is_shown_whole() -> None:
    assert [b"a", b"b c", "ü".encode()] == _shown("a", "b c", "ü", room=100)


def test_a_command_line_that_is_too_long_is_cut() -> None:
    longest = Path("/proc/self/cmdline").read_bytes()  # of any length: it only has to be a text

    (word,) = _shown("n" * (len(longest) + 4000), room=0)

    assert set(word.decode()) == {"n"}
