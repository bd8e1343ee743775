"""The engine `local`: all nodes are servers on this machine, and end with this process."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from zmqtriton_addons.fleet.engine import Report
from zmqtriton_addons.fleet.node_server import NodeServer


class LocalEngine:
    def __init__(self, count: int, options: Sequence[str]) -> None:
        self._names = [f"node-{number}" for number in range(1, count + 1)]
        self._options = options
        self._servers: dict[str, NodeServer] = {}

    def start(self) -> None:
        self._servers = {name: NodeServer(name, self._options) for name in self._names}

    def look(self) -> dict[str, Report]:
        return {name: server.look() for name, server in self._servers.items()}

    def stop(self) -> None:
        with ThreadPoolExecutor(max(1, len(self._servers))) as threads:
            list(threads.map(NodeServer.stop, self._servers.values()))
        self._servers.clear()
