"""Runs a program where the machine has no address of IPv4, in a network namespace of its own.

    unshare --net python only_ipv6.py [--with-loopback] PROGRAM ARGUMENT...

With loopback it is like a pod of an IPv6 cluster, which has 127.0.0.1 too. It may
run as root, or with `--user --map-root-user`.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

#: An address that only documents have.
ADDRESS = "2001:db8::7"

_SET_ADDRESS, _SET_FLAGS, _UP = 0x8916, 0x8914, 0x1
_NAME = b"lo"


def set_up(*, has_loopback: bool) -> None:
    """Bring the one interface up with addresses of IPv6, and with 127.0.0.1 if it is to stay."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SET_FLAGS, struct.pack("=16sH22x", _NAME, _UP))
        if not has_loopback:
            nothing = struct.pack("=HH4s8x", socket.AF_INET, 0, bytes(4))
            fcntl.ioctl(control, _SET_ADDRESS, struct.pack("=16s16s8x", _NAME, nothing))
    Path("/proc/sys/net/ipv6/conf/lo/accept_dad").write_text("0")
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as control:
        address = socket.inet_pton(socket.AF_INET6, ADDRESS)
        row = struct.pack("=16sIi", address, 128, socket.if_nametoindex("lo"))
        fcntl.ioctl(control, _SET_ADDRESS, row)


if __name__ == "__main__":
    words = sys.argv[1:]
    has_loopback = words[0] == "--with-loopback"
    set_up(has_loopback=has_loopback)
    program = words[has_loopback:]
    os.execvp(program[0], program)
