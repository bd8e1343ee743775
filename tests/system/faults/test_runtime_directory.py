"""The runtime directory is taken away under a running server, as cleaners of /tmp do."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.faults.mixed_clients import StreamClient
from tests.standard.ctl.system.commands import ctl
from tests.support.foreign_sockets import needs_pidfd_getfd, tear
from tests.support.server import Server, ask_add_sub
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=("add_sub", "tokens"),
        options=("--runtime-directory=@DIRECTORY@/run", "--zmq-door"),
        frontends=(),
    ),
]


def runtime(server: Server) -> Path:
    """The directory that is named."""
    return server.directory.parent / "run"


def own_directory(server: Server) -> Path:
    """The server's own directory, in the one that is named."""
    return (runtime(server) / "ctl").resolve().parent


@pytest.mark.parametrize(
    "what",
    [
        "the directory",
        pytest.param(
            "what is in it",
            marks=pytest.mark.long(
                "system/faults/test_runtime_directory.py::test_it_is_made_again_and_everything_connects_as_before",
                "supervisor/machine/directories/test_runtime.py::test_what_is_taken_away_is_noticed_and_made_again",
            ),
        ),
    ],
)
def test_it_is_made_again_and_everything_connects_as_before(server: Server, what: str) -> None:
    directory, own = runtime(server), own_directory(server)
    brokers = server.pids()["broker"]
    if what == "the directory":
        # the server may be writing there
        shutil.rmtree(directory.rename(f"{directory}.aside"))
    else:
        for path in own.iterdir():
            if not path.is_dir():
                path.unlink()

    eventually(lambda: not ctl(server, "status").exit_code, 60, "zmqtriton-ctl is answered")
    eventually(lambda: set(server.pids().get("broker", [])) - set(brokers), 60, "another broker")
    assert 200 == ask_add_sub(server), "the stub that there was"

    server.replace_only("stub", "add_sub")
    eventually(server.is_ready, 60, "a new one")
    assert 200 == ask_add_sub(server)

    server.kill_only("broker")
    eventually(lambda: ask_add_sub(server) == 200, 60, "and the next broker")
    assert (directory / "door").is_socket()
    eventually(
        lambda: f"something has removed the runtime directory '{own}'" in server.log_text(), 60
    )


@needs_pidfd_getfd
@pytest.mark.long(
    "system/faults/test_runtime_directory.py::test_it_is_made_again_and_everything_connects_as_before",
    "system/faults/test_broker_death.py::test_streams_past_the_broker_find_their_way_again",
)
@pytest.mark.server(
    models=("add_sub", "tokens"),
    options=("--runtime-directory=@DIRECTORY@/run", "--zmq-door"),
    frontends=("grpc",),
)
def test_streams_find_a_new_frontend_past_the_broker(server: Server) -> None:
    directory = own_directory(server)
    [stub], [frontend] = server.stub_pids("tokens"), server.pids()["grpc"]
    for path in directory.glob("stream-*"):
        path.unlink()
    (directory / "ctl").unlink()
    eventually(lambda: not ctl(server, "status").exit_code, 60, "it is mended")

    os.kill(frontend, signal.SIGKILL)
    eventually(lambda: server.pids().get("grpc", [frontend]) != [frontend], 60, "a new frontend")
    streams = StreamClient(server, 0)
    eventually(lambda: streams.request() == "right", 60, "a stream")
    [frontend] = server.pids()["grpc"]

    eventually(lambda: streams.request() == "right" and tear(stub, frontend) > 0, 60, "straight")
    assert [stub] == server.stub_pids("tokens")
