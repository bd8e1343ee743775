"""The process that adds up tokens: lines of frontends come in, and the page asks for the sums.

It tells all frontends which bearer tokens have used up what they allow.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from zmqtriton_addons.token_metrics import QUESTION, SUMS
from zmqtriton_addons.token_metrics.allowances import Allowances, Key
from zmqtriton_addons.token_metrics.counted import Counted
from zmqtriton_addons.token_metrics.sums import TokenSums
from zmqtriton_frontends.serving import Service

_log = logging.getLogger(__name__)

#: The limit of bytes that a frontend has not read; it is told no more then.
_MAX_UNREAD_BYTES = 1 << 20
_BALANCE_FIELDS = 3


class TokenMetrics(Service):
    def __init__(self, listener: socket.socket) -> None:
        """Set up with a bound socket."""
        self._listener = listener
        self._path = str(listener.getsockname())
        self._sums = TokenSums()
        self._allowances = Allowances()
        self._connections = 0
        self._frontends: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server

    async def open(self) -> Sequence[tuple[str, str]]:
        self._server = await asyncio.start_unix_server(self._take, sock=self._listener)
        return [("TokenMetrics", self._path)]

    async def end(self, within_s: float) -> None:
        with suppress(OSError):  # the directory is gone
            os.unlink(self._path)

    def end_idle(self) -> bool:
        # frontends end after their clients, and send until then
        return not self._connections

    async def close(self) -> None:
        self._server.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            while line := (await reader.readline()).rstrip():
                if line == QUESTION:
                    writer.write(self._sums.text().encode())
                    break
                if line == SUMS:
                    writer.write(self._sums.made().encode())
                    break
                self._take_line(json.loads(line), writer)
        except (ValueError, TypeError, ConnectionError):
            _log.exception("a frontend's counts of tokens are malformed")
        finally:
            self._connections -= 1
            self._frontends.discard(writer)
            writer.close()

    def _take_line(self, row: list[Any] | str, writer: asyncio.StreamWriter) -> None:
        """Take a request that has ended, or the name of a token that was refused; [] is a hello.

        Behind a hello are the balances that the frontend knows: those of this process are new.
        """
        now_ns = time.monotonic_ns()
        if isinstance(row, str):
            self._sums.refuse(row)
        elif not row:
            self._frontends.add(writer)
            writer.write(self._allowances.describe(now_ns))
        elif len(row) == _BALANCE_FIELDS:
            self._tell_debt(self._allowances.take(row, now_ns), now_ns)
        else:
            self._count(Counted(*row), now_ns)

    def _count(self, request: Counted, now_ns: int) -> None:
        self._sums.add(request)
        if not request.per_minute:
            return
        key = request.token, request.per_minute
        self._allowances.use(key, (request.prompt or 0) + request.made, now_ns)
        self._tell_debt(key, now_ns)

    def _tell_debt(self, key: Key, now_ns: int) -> None:
        """Tell all frontends of a bearer token that has nothing left."""
        if news := self._allowances.describe_debt(key, now_ns):
            for frontend in self._frontends:
                if frontend.transport.get_write_buffer_size() < _MAX_UNREAD_BYTES:
                    frontend.write(news)
