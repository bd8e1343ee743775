"""The connections of a page, such as /metrics: GET and HEAD in turn, no bodies.

Heads, their time and the number of connections are limited. Knows nothing of metrics.

The connections of HTTP's processes could serve the page as well. But their imports take 19 MB, and
70 ms at each start of a process that needs 27 MB and 120 ms without them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.settings.frontends import FrontendSettings
from zmqtriton_floor.token_file import METRICS
from zmqtriton_frontends import http1
from zmqtriton_frontends.access import refusals
from zmqtriton_frontends.access.bearer_tokens import HEADER, BearerTokens, bearer_tokens_of
from zmqtriton_frontends.process import codecs
from zmqtriton_frontends.process.hosts import AllowedHosts, host_refusal

_log = logging.getLogger(__name__)

#: Bytes of a read, and the limit of the buffer that asyncio reads ahead into.
_READ_BYTES = 16 << 10
MAX_CONNECTIONS = 256
#: Seconds for the head of a request: a scraper often stays connected for its next scrape.
HEAD_WITHIN_S = 75.0
WRITE_WITHIN_S = 30.0

_METHODS = ("GET", "HEAD")
#: Minimum bytes of a page that is compressed; a smaller one fits into a packet anyway.
_LEAST_COMPRESSED_BYTES = 1024

Scrape = Callable[[], Awaitable[str]]
#: Takes a header Accept, content type and text; returns these in the form that it prefers.
Negotiate = Callable[[str, str, str], Awaitable[tuple[str, str]]]


class PageServer:
    """The server of one page for scrapers."""

    def __init__(
        self,
        path: str,
        content_type: str,
        scrape: Scrape,
        hosts: AllowedHosts,
        tokens: BearerTokens | None = None,
        negotiate: Negotiate | None = None,
    ) -> None:
        """Set up; without `negotiate` there is one form of the page."""
        self._path = path
        self._content_type = content_type
        self._scrape = scrape
        self._hosts = hosts
        self._tokens = tokens
        self._negotiate = negotiate
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._busy: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    @classmethod
    def of(
        cls, settings: FrontendSettings, listener: socket.socket, scrape: Scrape, **form: Any
    ) -> PageServer:
        """Return a server for a bound socket, with the allowed hosts and tokens of the settings."""
        hosts = AllowedHosts(listener.getsockname()[0], settings.http.allowed_hosts)
        return cls(scrape=scrape, hosts=hosts, tokens=bearer_tokens_of(settings), **form)

    async def start(self, listener: socket.socket) -> None:
        self._server = await asyncio.start_server(
            self._converse, sock=listener, limit=_READ_BYTES, backlog=128
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
        requests = http1.RequestReader()
        try:
            while await self._serve_one(task, reader, requests, answers):
                requests.head = None
        except (asyncio.TimeoutError, ConnectionError):
            _log.debug("a scraper's connection ended early")
        except asyncio.CancelledError:
            _log.debug("closed a connection: at the end, or for another one")
        finally:
            self._open.pop(task, None)
            self._busy.discard(task)
            writer.close()

    def _make_room(self) -> bool:
        """Close the oldest connection without a request; return False if all have one."""
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
        requests: http1.RequestReader,
        answers: _Answers,
    ) -> bool:
        """Serve a request; True if the connection may be used again."""
        self._busy.discard(task)
        answers.method = ""
        try:
            head = await asyncio.wait_for(_receive_head(reader, requests), HEAD_WITHIN_S)
        except http1.Refused as error:
            await answers.refuse(HTTPStatus(error.status), keep_alive=False, text=error.text)
            return False
        self._busy.add(task)
        answers.method = head.method
        # a body, which nobody reads, ends the connection
        keep_alive = head.keeps_alive and head.body_bytes == 0 and not self._is_stopping
        for host in _values(head, "host"):
            if not self._hosts.admits(host):
                status, text = HTTPStatus.MISDIRECTED_REQUEST, host_refusal(host)
                refusals.report_text(_source(head, answers.writer), refusals.NOT_PERMITTED, text)
                await answers.refuse(status, keep_alive=False, text=text)
                return False
        try:
            if self._tokens is not None:
                self._tokens.check(_values(head, HEADER), _address(answers.writer), METRICS, "")
        except refusals.AccessRefused as error:
            refusals.report(_source(head, answers.writer), error)
            status = HTTPStatus(error.http_status)
            await answers.refuse(status, keep_alive, text=error.text, headers=error.headers)
            return keep_alive
        await self._respond(answers, head, keep_alive)
        return keep_alive and not self._is_stopping  # it may have begun to stop meanwhile

    async def _respond(self, answers: _Answers, head: http1.Head, keep_alive: bool) -> None:
        path = head.target.partition(b"?")[0].decode("latin-1")
        if path not in (self._path, f"{self._path}/"):
            await answers.refuse(HTTPStatus.NOT_FOUND, keep_alive)
        elif head.method not in _METHODS:
            await answers.refuse(HTTPStatus.METHOD_NOT_ALLOWED, keep_alive)
        elif self._is_stopping:
            await answers.refuse(HTTPStatus.SERVICE_UNAVAILABLE, False, text="Server exiting")
        else:
            try:
                page = await self._scrape()
            except ZmqTritonError as error:
                await answers.refuse(HTTPStatus(error.http_status), keep_alive, text=error.text)
            else:
                form = self._content_type
                if self._negotiate is not None:
                    form, page = await self._negotiate(
                        ",".join(_values(head, "accept")), form, page
                    )
                coding = codecs.choose(",".join(_values(head, "accept-encoding")))
                data, headers = await _encode(page.encode(), coding)
                await answers.write(HTTPStatus.OK, form, data, keep_alive, headers)


def _address(writer: asyncio.StreamWriter) -> str:
    place = writer.get_extra_info("peername")
    return place[0] if isinstance(place, tuple) else ""


def _source(head: http1.Head, writer: asyncio.StreamWriter) -> refusals.Source:
    path = head.target.partition(b"?")[0].decode("latin-1")
    return refusals.Source("http", _address(writer), f"{head.method} {path}")


async def _encode(page: bytes, coding: str) -> tuple[bytes, refusals.Headers]:
    """Return the page in a coding, and the headers about that coding."""
    if not coding or len(page) < _LEAST_COMPRESSED_BYTES:
        return page, ()
    # in a thread, since agent checks must not wait for a page of thousands of models
    data = await codecs.threads.run(codecs.deflate, (page,), coding)
    return data, (("Content-Encoding", coding), ("Vary", "Accept-Encoding"))


async def _receive_head(reader: asyncio.StreamReader, requests: http1.RequestReader) -> http1.Head:
    """Return the next head. Raises Refused, and ConnectionError at the end of the connection."""
    while requests.read() is None or (head := requests.head) is None:
        data = await reader.read(_READ_BYTES)
        if not data:
            raise ConnectionError("the scraper has closed the connection")
        requests.held += data
    return head


def _values(head: http1.Head, name: str) -> list[str]:
    """Return the values of a header, given in lower case."""
    return [value.decode("latin-1") for key, value in head.fields if key == name.encode()]


class _Answers:
    """Writes the answers of one connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        #: Method of the current request; "" until its head was read.
        self.method = ""

    async def refuse(
        self,
        status: HTTPStatus,
        keep_alive: bool,
        *,
        text: str = "",
        headers: refusals.Headers = (),
    ) -> None:
        data = json.dumps({"error": text or status.phrase}).encode()
        await self.write(status, "application/json", data, keep_alive, headers)

    async def write(
        self,
        status: HTTPStatus,
        content_type: str,
        data: bytes,
        keep_alive: bool,
        headers: refusals.Headers = (),
    ) -> None:
        rows = [("Content-Type", content_type), ("Content-Length", str(len(data))), *headers]
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            rows.append(("Allow", ", ".join(_METHODS)))
        head = http1.status_line(status.value) + http1.fields(
            (name.encode("latin-1"), value.encode("latin-1")) for name, value in rows
        )
        head += b"\r\n" if keep_alive else http1.CLOSE + b"\r\n"
        self.writer.write(head if http1.has_no_body(self.method, status.value) else head + data)
        await asyncio.wait_for(self.writer.drain(), WRITE_WITHIN_S)
