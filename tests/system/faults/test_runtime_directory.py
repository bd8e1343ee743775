"""The runtime directory is taken away under a running server, as cleaners of /tmp do."""

from __future__ import annotations

import shutil

import pytest

from tests.standard.ctl.system.commands import ctl
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
    directory = server.directory.parent / "run"
    own = (directory / "ctl").resolve().parent
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
