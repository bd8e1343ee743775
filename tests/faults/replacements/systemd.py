"""systemd, as far as a server with sockets of systemd's sees it: listens, starts, passes, stops."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack

from tests.support.server import Server

#: Does between fork and exec what systemd does: names the descriptors from 3 on.
_EXEC = """
import os, sys
names, *descriptors, end = sys.argv[1].split(","), *map(int, sys.argv[2].split(",")), 0
for number, descriptor in enumerate(descriptors[: len(names)]):
    os.dup2(descriptor, 3 + number)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(names))}
os.environ["LISTEN_FDNAMES"] = ":".join(names)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Systemd:
    """Two sockets, and the server that has them."""

    def __init__(self, server: Server, names: str) -> None:
        self.server = server
        self._names = names
        self._sockets = [socket.create_server(("127.0.0.1", 0), backlog=4096) for _ in range(2)]
        server.http_port, server.grpc_port = (s.getsockname()[1] for s in self._sockets)
        server.url = f"http://127.0.0.1:{server.http_port}"
        server.grpc_address = f"127.0.0.1:{server.grpc_port}"

    def start(self) -> None:
        # Far from 3 and 4, so that none is written over before it is moved there.
        passed = [os.dup(held.fileno()) for held in self._sockets]
        with self.server.log.open("ab") as log, ExitStack() as copies:
            for number in passed:
                copies.callback(os.close, number)
            self.server.process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    _EXEC,
                    self._names,
                    ",".join(map(str, passed)),
                    *self.server.command,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=passed,
            )

    def restart(self) -> None:
        assert 0 == self.server.stop()
        self.start()

    def close(self) -> None:
        if self.server.returncode is None:
            self.server.stop()
        for held in self._sockets:
            held.close()
