"""The number of bytes that a client has acknowledged, according to the kernel.

For clients that may have stopped reading.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import Protocol

#: In the kernel's tcp_info: tcpi_bytes_acked, since Linux 4.1.
_ACKNOWLEDGED_AT, _INFO_BYTES = 120, 128


class Descriptor(Protocol):
    def fileno(self) -> int:
        """Return the number of the descriptor."""


def acknowledged_bytes(own: Descriptor) -> int:
    """Return how many bytes; 0 if there is no descriptor to ask by."""
    try:
        copy = os.dup(own.fileno())
    except OSError:
        return 0
    with socket.socket(fileno=copy) as connection:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    (acknowledged,) = struct.unpack_from("=Q", info.ljust(_INFO_BYTES, b"\0"), _ACKNOWLEDGED_AT)
    return int(acknowledged)
