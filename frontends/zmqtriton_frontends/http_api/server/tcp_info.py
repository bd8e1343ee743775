"""The kernel's view of a client's connection: how much is acknowledged, and whether it is reset.

For clients that may have stopped reading, or left.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import Protocol

#: In the kernel's tcp_info: tcpi_bytes_acked, since Linux 4.1.
_ACKNOWLEDGED_AT, _INFO_BYTES = 120, 128
#: The state at its beginning: TCP_CLOSE.
_CLOSED = 7


class Descriptor(Protocol):
    def fileno(self) -> int:
        """Return the number of the descriptor."""


def acknowledged_bytes(own: Descriptor) -> int:
    """Return how many bytes; 0 if there is no descriptor to ask by."""
    (acknowledged,) = struct.unpack_from("=Q", _info(own), _ACKNOWLEDGED_AT)
    return int(acknowledged)


def is_reset(own: Descriptor) -> bool:
    """Return True if the client has ended the connection both ways."""
    return _info(own)[0] == _CLOSED


def _info(own: Descriptor) -> bytes:
    try:
        copy = os.dup(own.fileno())
    except OSError:
        return bytes(_INFO_BYTES)
    with socket.socket(fileno=copy) as connection:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    return info.ljust(_INFO_BYTES, b"\0")
