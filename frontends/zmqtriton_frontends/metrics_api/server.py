"""Just enough HTTP/1.1 for a scraper: GET and HEAD of /metrics, one after another, no bodies.

Everything is limited: headers, the time they may take, connections. Knows nothing of metrics.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from zmqtriton_floor.access.token_file import METRICS
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_frontends.access.bearer_tokens import HEADER, BearerTokens, check_target
from zmqtriton_frontends.access.refusals import AccessRefused, Headers
from zmqtriton_frontends.process.hosts import AllowedHosts

_log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 16 * 1024
MAX_CONNECTIONS = 256
#: A scraper connects, asks and often stays for the next scrape.
HEAD_WITHIN_S = 75.0
WRITE_WITHIN_S = 30.0

_METHODS = ("GET", "HEAD")

Scrape = Callable[[], Awaitable[str]]


class Page:
    """The server of one page."""

    def __init__(
        self,
        path: str,
        content_type: str,
        scrape: Scrape,
        hosts: AllowedHosts,
        tokens: BearerTokens | None = None,
    ) -> None:
        self._path = path
        self._content_type = content_type
        self._scrape = scrape
        self._hosts = hosts
        self._tokens = tokens
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._busy: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    async def start(self, listener: socket.socket) -> None:
        self._server = await asyncio.start_server(
            self._converse, sock=listener, limit=MAX_HEAD_BYTES, backlog=128
        )

    async def stop(self, within_s: float) -> None:
        """Stop listening, let running scrapes end, and close the rest."""
        self._is_stopping = True
        if self._server is not None:
            self._server.close()
        if self._busy:
            await asyncio.wait(self._busy, timeout=within_s)
        for task in tuple(self._open):
            task.cancel()
        if self._open:
            await asyncio.wait(tuple(self._open), timeout=within_s)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._open) >= MAX_CONNECTIONS and not self._make_room():
            writer.close()
            return
        self._open[task] = writer
        answers = _Answers(writer)
        try:
            while await self._serve_one(task, reader, answers):
                pass
        except (asyncio.TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            _log.debug("a scraper's connection ended early")
        except asyncio.LimitOverrunError:
            await answers.refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, keep_alive=False)
        except asyncio.CancelledError:
            _log.debug("closed a connection: at the end, or for another one")
        finally:
            self._open.pop(task, None)
            self._busy.discard(task)
            writer.close()

    def _make_room(self) -> bool:
        """Close the oldest connection without a request; False if all have one."""
        for task in self._open:
            if task not in self._busy:
                del self._open[task]
                task.cancel()
                return True
        return False

    async def _serve_one(
        self,
        task: asyncio.Task[None],
        reader: asyncio.StreamReader,
        answers: _Answers,
    ) -> bool:
        """Serve a request; True if the connection may be used again."""
        self._busy.discard(task)
        answers.is_head = False
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_WITHIN_S)
        self._busy.add(task)
        line, *fields = head[:-4].decode("latin-1").split("\r\n")
        parts = line.split(" ")
        answers.is_head = parts[0] == "HEAD"
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            await answers.refuse(HTTPStatus.BAD_REQUEST, keep_alive=False)
            return False
        keep_alive = _keeps_alive(parts[2], fields) and not self._is_stopping
        if not self._is_called_right(fields):
            await answers.refuse(HTTPStatus.MISDIRECTED_REQUEST, keep_alive=False)
            return False
        try:
            self._check_token(fields, answers.writer)
        except AccessRefused as error:
            status = HTTPStatus(error.http_status)
            await answers.refuse(status, keep_alive, text=error.text, headers=error.headers)
            return keep_alive
        await self._respond(answers, parts[0], parts[1].partition("?")[0], keep_alive)
        return keep_alive and not self._is_stopping  # it may have begun to stop meanwhile

    def _is_called_right(self, fields: list[str]) -> bool:
        return all(self._hosts.admits(host) for host in _values(fields, "host"))

    def _check_token(self, fields: list[str], writer: asyncio.StreamWriter) -> None:
        if self._tokens is not None:
            place = writer.get_extra_info("peername")
            address = place[0] if isinstance(place, tuple) else ""
            grant = self._tokens.check(_values(fields, HEADER), address, METRICS)
            check_target(grant, METRICS, "")

    async def _respond(self, answers: _Answers, method: str, path: str, keep_alive: bool) -> None:
        if path not in (self._path, f"{self._path}/"):
            await answers.refuse(HTTPStatus.NOT_FOUND, keep_alive)
        elif method not in _METHODS:
            await answers.refuse(HTTPStatus.METHOD_NOT_ALLOWED, keep_alive)
        elif self._is_stopping:
            await answers.refuse(HTTPStatus.SERVICE_UNAVAILABLE, False, text="Server exiting")
        else:
            try:
                page = await self._scrape()
            except ZmqTritonError as error:
                status = HTTPStatus(error.http_status)
                await answers.refuse(status, keep_alive, text=error.text)
            else:
                await answers.write(HTTPStatus.OK, self._content_type, page.encode(), keep_alive)


def _values(fields: list[str], name: str) -> list[str]:
    """Return the values of a header, given in lower case."""
    rows = (field.partition(":") for field in fields)
    return [value.strip() for key, _, value in rows if key.lower() == name]


def _keeps_alive(version: str, fields: list[str]) -> bool:
    """True if the connection may be kept.

    A body, which would be read as the next request, ends it.
    """
    headers = {}
    for field in fields:
        name, _, value = field.partition(":")
        headers[name.strip().lower()] = value.strip().lower()
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        return False
    connection = headers.get("connection", "")
    return connection != "close" if version == "HTTP/1.1" else connection == "keep-alive"


class _Answers:
    """Writes the answers of one connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        #: The request is a HEAD, whose answer ends before the body.
        self.is_head = False

    async def refuse(
        self, status: HTTPStatus, keep_alive: bool, *, text: str = "", headers: Headers = ()
    ) -> None:
        data = json.dumps({"error": text or status.phrase}).encode()
        await self.write(status, "application/json", data, keep_alive, headers)

    async def write(
        self,
        status: HTTPStatus,
        content_type: str,
        data: bytes,
        keep_alive: bool,
        headers: Headers = (),
    ) -> None:
        lines = [
            f"HTTP/1.1 {status.value} {status.phrase}",
            f"Content-Type: {content_type}",
            f"Content-Length: {len(data)}",
            *(f"{name}: {value}" for name, value in headers),
        ]
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            lines.append(f"Allow: {', '.join(_METHODS)}")
        if not keep_alive:
            lines.append("Connection: close")
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        self.writer.write(head if self.is_head else head + data)
        await asyncio.wait_for(self.writer.drain(), WRITE_WITHIN_S)
