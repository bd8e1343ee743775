"""HTTP by hand, for what no client would send.

answers = talk(server.http_port, request("GET", "/v2") * 2)
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import NamedTuple


class RawResponse(NamedTuple):
    """The bytes that came back over one connection."""

    data: bytes
    #: Whether the server has closed it.
    is_closed: bool

    @property
    def statuses(self) -> list[int]:
        return [int(part[:3]) for part in self.data.split(b"HTTP/1.1 ")[1:]]


def raw_request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """Return a request; `_` in header names becomes `-`.

    It gets no length if one is given, or another framing.
    """
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if body and not {"Content_Length", "Transfer_Encoding"} & headers.keys():
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def connect_narrow(port: int) -> socket.socket:
    """Return a connection whose client has room for 64 KiB, for those that read slowly."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
    connection.connect(("127.0.0.1", port))
    connection.settimeout(20)
    return connection


def read_some(connection: socket.socket, size: int) -> None:
    while size > 0:
        part = connection.recv(min(size, 1 << 16))
        assert part, "the connection has ended"
        size -= len(part)


def send_raw(
    port: int, data: bytes, patience_s: float = 60.0, *, is_half_closed: bool = False
) -> RawResponse:
    """Sends all and reads until the server closes, or nothing more has come for that long."""
    received: list[bytes] = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(patience_s)

        def send() -> None:
            # It may hang up on whoever talks nonsense.
            with suppress(OSError):
                connection.sendall(data)
                if is_half_closed:
                    connection.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        is_closed = False
        try:
            while piece := connection.recv(1 << 16):
                received.append(piece)
            is_closed = True
        except ConnectionError:
            is_closed = True
        except TimeoutError:
            pass
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        sender.join()
    return RawResponse(b"".join(received), is_closed)
