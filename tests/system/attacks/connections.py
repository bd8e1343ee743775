"""Connections that attacks hold, and others that are served."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack

from tests.support.raw_http import raw_request, send_raw
from tests.support.server import Server

INFER = "/v2/models/identity_fp32/infer"
ONE = {"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1.0]}


def connect(server: Server, stack: ExitStack, data: bytes, room: int = 0) -> socket.socket:
    """Connect and send; the receive buffer has so much room, if that is given."""
    connection = stack.enter_context(socket.socket())
    if room:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    connection.settimeout(60)
    connection.connect(("127.0.0.1", server.http_port))
    connection.sendall(data)
    return connection


def is_served(server: Server) -> bool:
    """Return whether an inference over HTTP is answered."""
    data = raw_request("POST", INFER, json.dumps({"inputs": [ONE]}).encode(), Connection="close")
    return [200] == send_raw(server.http_port, data, 60).statuses
