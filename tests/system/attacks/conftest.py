"""The checks after each attack; each file starts a server of its own as `running`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.server import Server
from tests.support.waiting import eventually


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    """After each attack all processes are the same."""
    pids = running.pids()
    yield running
    eventually(lambda: pids == running.pids(), 60, f"{pids} are all that runs")
