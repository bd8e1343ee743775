"""Commands for a server whose broker has no time to answer."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.support.server import Server
from tests.system.operations.commands import OPTION, ctl

pytestmark = pytest.mark.system

FRONTENDS = ()
MODELS = ["add_sub"]
OPTIONS = (OPTION, "--id=busy")


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # the server has replaced it
            os.kill(pid, signal.SIGCONT)


@pytest.mark.long(
    "supervisor/control/test_control.py::test_a_broker_that_does_not_answer_holds_up_the_status_for_a_moment_only"
)
@pytest.mark.row("L13")
def test_a_server_is_found_by_its_name_whatever_its_broker_does(server: Server) -> None:
    [broker] = server.pids()["broker"]
    with stopped(broker):
        listed = ctl(server, "servers")
        models = ctl(server, "--server", "busy", "models")

    assert "busy" in listed.stdout
    assert (0, "") == (models.exit_code, models.stderr)
