"""The process that is named in the error of a port in use."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest

from zmqtriton.supervisor.machine.processes import port_holder
from zmqtriton.supervisor.machine.processes.port_holder import describe_listener, is_listener

pytestmark = pytest.mark.slow

#: Names itself as its argument says, if there is one, and says that it runs.
_HOLDER = """
import pathlib, subprocess, sys, time
if sys.argv[1:]:
    pathlib.Path("/proc/self/comm").write_text(sys.argv[1])
print(flush=True)
time.sleep(600)
"""
#: The same with a worker that is named after it.
_PARENT = """
import pathlib, subprocess, sys
pathlib.Path("/proc/self/comm").write_text("program")
subprocess.run([sys.executable, "-c", sys.argv[1], "program-work"], close_fds=False)
"""


@pytest.mark.parametrize(
    "words",
    [["-c", _HOLDER], ["-c", _PARENT, _HOLDER]],
    ids=["a program", "a worker of one"],
)
def test_whoever_listens_is_named_without_its_options(words: list[str]) -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    port = listener.getsockname()[1]
    listener.set_inheritable(True)
    with subprocess.Popen(
        [sys.executable, *words], close_fds=False, stdout=subprocess.PIPE, start_new_session=True
    ) as holder:
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            listener.close()

            text = describe_listener(port)
        finally:
            os.killpg(holder.pid, signal.SIGKILL)

    assert f"process {holder.pid} ({sys.executable})" == text


def test_nobody_is_named_where_nobody_listens() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))

        assert "" == describe_listener(silent.getsockname()[1])


def test_one_that_is_hidden_may_have_any_name_if_it_is_this_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert not is_listener(port, "zmqtriton")

        monkeypatch.setattr(port_holder, "_open_files", lambda pid: iter(()))

        assert is_listener(port, "zmqtriton")
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
        assert not is_listener(port, "zmqtriton")
    assert not is_listener(port, "zmqtriton")
