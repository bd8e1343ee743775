"""The process that pushes the log, as it comes and once more at the end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from contextlib import suppress
from pathlib import Path

from zmqtriton import otlp_destination
from zmqtriton_addons.metrics.model_metrics import head
from zmqtriton_addons.otlp_logs.exporter import DROPPED, RESULTS, LogsExporter
from zmqtriton_addons.otlp_logs.options import SERVICE, url
from zmqtriton_addons.otlp_metrics.pusher import POST_WITHIN_S, Pusher
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.process import in_own_thread

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
_ALL_LINES = 1 << 30
#: The file of the last number, beside the socket, for a process that replaces this one.
_PLACE = "otlp_logs.last"
_NAME = "zmqtriton_otlp_log_lines_total"


class LogsPusher(Pusher):
    def __init__(self, gateway: Gateway, listener: socket.socket) -> None:
        """Set up with a bound socket, at which the figures of this process are read."""
        super().__init__("OtlpLogs", gateway, listener, _LOOK_EVERY_S)
        server = gateway.settings.server
        options = {name: json.loads(text) for name, text in server.service_options}
        destination = otlp_destination.read(
            [("url", url({SERVICE: options[SERVICE]}))], os.environ, otlp_destination.LOGS
        )
        self._exporter = LogsExporter(self.with_instance(destination))
        self._place = Path(server.runtime_directory, _PLACE)
        with suppress(OSError, ValueError):
            self._exporter.after = int(self._place.read_text())

    async def push(self, within_s: float) -> float:
        exporter = self._exporter
        arguments = {"model": "", "after": exporter.after, "lines": _ALL_LINES}
        try:
            answer = await asyncio.wait_for(
                self.gateway.call("logs", arguments), min(within_s, POST_WITHIN_S)
            )
        except (ZmqTritonError, asyncio.TimeoutError) as error:
            _log.debug("no lines of the log: %r", error)
            return 0.0
        lost = answer["lost"]
        if lost:
            exporter.lines[DROPPED] += lost
            exporter.after += lost
        if not answer["lines"]:
            return 0.0
        lines = answer["lines"]
        pause_s = await in_own_thread(lambda: exporter.export(lines, within_s), "exporter")
        with suppress(OSError):  # the directory is gone
            self._place.write_text(str(exporter.after))
        return pause_s

    def figures(self) -> list[str]:
        lines = self._exporter.lines
        return [
            *head(_NAME, "Lines of the log that were pushed to a collector, by result", "counter"),
            *(f'{_NAME}{{result="{result}"}} {lines[result]}' for result in RESULTS),
        ]
