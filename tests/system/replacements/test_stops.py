"""A server is stopped while another one takes over from it: that one serves."""

from __future__ import annotations

import http.client
import json
import os
import signal
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.deaths import is_live
from tests.faults.replacements.ways import ByTakeOver
from tests.support.server import Server, ask_add_sub, tensor
from tests.support.waiting import eventually
from tests.system.replacements.replacing import SMALL

pytestmark = pytest.mark.system


def send(connection: http.client.HTTPConnection, **parameters: bool) -> int:
    """Send a request of a sequence over a kept connection; return the status."""
    inputs = [tensor("VALUE", "INT32", [1], [1, 1])]
    document = {"parameters": {"sequence_id": 7, **parameters}, "inputs": inputs}
    connection.request("POST", "/v2/models/sequences/infer", json.dumps(document))
    response = connection.getresponse()
    response.read()
    return response.status


def serves(server: Server) -> bool:
    """Return True if new connections of HTTP and gRPC are answered.

    Processes of a server that was killed may have accepted one and end a moment later.
    """
    try:
        return ask_add_sub(server) == 200 and is_live(server)
    except (OSError, http.client.HTTPException):
        return False


@pytest.mark.long(
    "supervisor/control/test_succession.py::test_a_server_that_stops_leaves_the_sockets_to_the_other_one",
    "frontends/serving/test_listener.py::test_a_listener_that_was_shut_down_elsewhere_listens_again",
)
def test_a_server_that_is_stopped_during_a_take_over_leaves_the_listeners(tmp_path: Path) -> None:
    way = ByTakeOver(tmp_path, SMALL)
    old, new = way.next(), way.next()
    way.servers += [old, new]
    # sequences wait for longer than the test takes
    old.edit_config("sequences", "microseconds: 20000000", "microseconds: 300000000")
    imports = new.block_imports("add_sub")
    imports.touch()
    try:
        old.start()
        with closing(http.client.HTTPConnection("127.0.0.1", way.http_port)) as connection:
            assert 200 == send(connection, sequence_start=True)
            new.launch()
            eventually(lambda: "loading: " in new.log_text(), 60, "it loads")
            os.kill(old.pid, signal.SIGTERM)
            eventually(lambda: "Waiting for in-flight" in old.log_text(), 60, "it stops")
            imports.unlink()
            eventually(lambda: "Started HTTPService" in new.log_text(), 60, "it listens")

            assert 200 == send(connection, sequence_end=True)
        assert 0 == old.wait(60), old.log_text()[-3000:]

        assert serves(new)
        assert "shut down elsewhere" not in new.log_text()
    finally:
        way.close()
