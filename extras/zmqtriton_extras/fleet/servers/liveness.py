"""The check whether a server answers: any HTTP response counts, even a refusal."""

from __future__ import annotations

import http.client
import ssl
from contextlib import closing
from urllib.parse import urlsplit

from zmqtriton_extras.fleet.servers.nodes import Node

_PATH = "/v2/health/live"


def answers(node: Node, within_s: float) -> bool:
    """Return whether the HTTP port of a server answers in time."""
    parts = urlsplit(node.url)
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        # whose certificate it is decides about requests; here nothing is told
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(
            parts.hostname or "", parts.port, timeout=within_s, context=context
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=within_s)
    with closing(connection):
        try:
            connection.request("GET", _PATH)
            connection.getresponse()
        except (OSError, http.client.HTTPException):
            return False
    return True
