"""The server of one node, where it cannot even be started."""

from __future__ import annotations

import sys

import pytest

from tests.support.waiting import eventually
from zmqtriton_addons.fleet.node_server import NodeServer


def test_a_process_that_cannot_be_made_is_a_problem_of_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    server = NodeServer("node-1", [])
    try:
        eventually(lambda: "cannot be started: [Errno 2]" in server.look().problem, 60)
    finally:
        server.stop()
