"""Encryption of connections: TLS 1.2 at least, its handshakes, and clients without TLS.

The loop could do the handshakes itself, but hides its unsent bytes, so HTTP's connection.py could
not know which clients read and which stall; and clients without TLS would get no answer.

Certificates may change. With a root certificate clients must present one that it has signed.
grpcio, which has its own TLS, uses the files alone.
"""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from zmqtriton_floor.errors import Unavailable
from zmqtriton_floor.file_marks import mark_of
from zmqtriton_floor.settings.frontends import Tls
from zmqtriton_frontends.process.futures import Tasks, wake
from zmqtriton_frontends.process.own_threads import Threads

_log = logging.getLogger(__name__)

#: Seconds that a client has for its handshake, or to begin a request without TLS.
_HANDSHAKE_WITHIN_S = 9.0
#: Seconds that clients without TLS have to read their refusal.
_FAREWELL_S = 1.0

#: Makes a connection that encrypts for the given one.
Make = Callable[[Any], asyncio.BaseProtocol]
_Made = TypeVar("_Made")


class Certificates:
    """The files of a service, watched for changes."""

    def __init__(self, tls: Tls, service: str) -> None:
        self.cert, self.key = tls.server_cert, tls.server_key
        #: File of the authority that signs clients' certificates; "" if they need none.
        self.root = tls.root_cert
        self._service = service
        self._seen = self._look()
        self._warn_of_its_end()
        #: Reason why the newest files cannot be used; "" if they are in use.
        self._problem = ""

    def make_context(self) -> ssl.SSLContext:
        """Make a context of the files. Raises OSError if they cannot be used.

        Each call makes a new one: a context in use would keep an authority that was removed.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.cert, self.key, password="")
        if self.root:
            context.load_verify_locations(self.root)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def renewed(self, make: Callable[[], _Made]) -> _Made | None:
        """Make something of the files; None without a change, or if they cannot be used.

        Files that cannot be used are tried again at each call.
        """
        before, self._seen = self._seen, self._look()
        has_changed = self._seen != before
        if not (has_changed or self._problem):
            return None
        try:
            made = make()
        except OSError as error:  # perhaps only one of the files is new by now
            problem = str(error)
            if has_changed or problem != self._problem:
                _log.warning(
                    "the certificate of %s has changed and cannot be used, so the one before is "
                    "served: %s",
                    self._service,
                    problem,
                )
            self._problem = problem
            return None
        self._problem = ""
        _log.info("the certificate of %s was renewed", self._service)
        self._warn_of_its_end()
        return made

    def _warn_of_its_end(self) -> None:
        """Log an error if the certificate has expired: clients refuse it."""
        ends_s = not_after_s(self.cert)
        if ends_s <= time.time():
            day = time.strftime("%Y-%m-%d", time.gmtime(ends_s))
            _log.error(
                "the certificate of %s has expired, on %s: %s", self._service, day, self.cert
            )

    def _look(self) -> list[tuple[int, ...]]:
        return [mark_of(path) for path in (self.cert, self.key, self.root) if path]


def not_after_s(path: str) -> float:
    """Return the end of a certificate, by the wall clock; infinity if that cannot be read."""
    try:
        # the one function of the standard library that reads the dates of a file
        document = ssl._ssl._test_decode_cert(path)  # type: ignore[attr-defined]
        return float(ssl.cert_time_to_seconds(document["notAfter"]))
    except (OSError, KeyError, ValueError):
        return math.inf


class TlsRefusal(Protocol):
    """The responses to a client without TLS, in its own protocol. Does no I/O."""

    @property
    def is_complete(self) -> bool:
        """True if nothing more must be sent."""

    def answer(self, data: bytes, /) -> bytes:
        """Return the bytes to send after the client has sent `data`."""


class Handshakes:
    """The connections to one service that are not encrypted yet."""

    def __init__(
        self, tls: Tls, service: str, protocol: str, refusal: Callable[[], TlsRefusal]
    ) -> None:
        """Set up; ALPN offers `protocol`, and `refusal` answers clients that speak without TLS.

        Raises OSError for files that cannot be used.
        """
        self._files = Certificates(tls, service)
        self._protocol = protocol
        #: Settings of the connections that begin from now on.
        self.context = self._make_context()
        self._refusal = refusal
        self._tasks = Tasks()
        self._threads = Threads("certificates", 1)

    def _make_context(self) -> ssl.SSLContext:
        context = self._files.make_context()
        context.set_alpn_protocols([self._protocol])
        return context

    def renew(self) -> None:
        """Use the newest certificate soon; call this now and then.

        A thread reads it, because the file system may be slow.
        """
        with suppress(Unavailable):  # it goes on, or no thread can begin now
            self._threads.run(self.read_newest)

    def read_newest(self) -> None:
        """Read changed files now."""
        self.context = self._files.renewed(self._make_context) or self.context

    def before(self, make: Make) -> Callable[[], asyncio.Protocol]:
        """Return a listener's maker of protocols, which connects `make`'s after the handshake."""
        return lambda: _Opening(lambda opening: self._tasks.begin(self._open(make, opening)))

    def close(self) -> None:
        """Cancel the handshakes in progress."""
        self._tasks.close()

    async def _open(self, make: Make, opening: _Opening) -> None:
        plain = opening.transport
        begin_s = (loop := asyncio.get_running_loop()).time()
        try:
            await asyncio.wait((opening.first,), timeout=_HANDSHAKE_WITHIN_S)
            left_s = _HANDSHAKE_WITHIN_S - (loop.time() - begin_s)
            if plain.is_closing() or not opening.unread or left_s <= 0:
                plain.abort()
            elif opening.is_plain:
                await _refuse(opening, self._refusal(), left_s)
            else:
                await self._secure(make, plain, opening.unread, left_s)
        except asyncio.CancelledError:
            plain.abort()
            raise

    async def _secure(self, make: Make, plain: Any, unread: bytearray, within_s: float) -> None:
        loop, early = asyncio.get_running_loop(), _Early()
        upgrade = asyncio.ensure_future(
            loop.start_tls(
                plain,
                early,
                self.context,
                server_side=True,
                ssl_handshake_timeout=within_s,
            )
        )
        try:
            await asyncio.sleep(0)
            # by now the loop's own protocol is there, and in a turn it can take what came before
            loop.call_soon(_feed, plain.get_protocol(), unread)
            transport = await upgrade
        except OSError:  # not a client of ours
            plain.abort()
            return
        except BaseException:
            upgrade.cancel()
            plain.abort()
            raise
        if transport is None or early.has_ended:
            plain.abort()
            return
        connection: Any = make(plain)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if not early.data or plain.is_closing():
            return
        if isinstance(connection, asyncio.BufferedProtocol):
            _feed(connection, early.data)
        else:
            connection.data_received(bytes(early.data))


async def _refuse(opening: _Opening, refusal: TlsRefusal, within_s: float) -> None:
    """Answer a client without TLS, and give it time to read the answer."""
    opening.refuse(refusal)
    await asyncio.wait((opening.answer_sent,), timeout=within_s)
    plain = opening.transport
    if plain.can_write_eof() and not plain.is_closing():
        plain.write_eof()
    # closed at once, with something unread, the client might lose the answer
    await asyncio.wait((opening.lost,), timeout=_FAREWELL_S)
    plain.abort()


def _feed(protocol: Any, data: bytearray) -> None:
    """Pass bytes that were read early to a protocol."""
    while data:
        room = protocol.get_buffer(len(data))
        size = min(len(room), len(data))
        room[:size] = data[:size]
        del data[:size]
        protocol.buffer_updated(size)


class _Opening(asyncio.Protocol):
    """A connection that has not shown yet whether it uses TLS, or that does not use it."""

    def __init__(self, begin: Callable[[_Opening], object]) -> None:
        self._begin = begin
        loop = asyncio.get_running_loop()
        self.transport: Any = None
        #: Done when there is something in `unread`, or never will be.
        self.first: asyncio.Future[None] = loop.create_future()
        #: Done when the whole refusal was written, or the client has sent its end or gone.
        self.answer_sent: asyncio.Future[None] = loop.create_future()
        self.lost: asyncio.Future[None] = loop.create_future()
        self.unread = bytearray()
        self._refusal: TlsRefusal | None = None

    @property
    def is_plain(self) -> bool:
        """True if the bytes begin like a request: with a method, or with HTTP/2's preface."""
        return self.unread[:1].isupper()

    def refuse(self, refusal: TlsRefusal) -> None:
        """Answer all bytes of this connection, earlier and later ones, with a refusal."""
        self._refusal = refusal
        self._answer(bytes(self.unread))
        self.unread.clear()

    def _answer(self, data: bytes) -> None:
        refusal = self._refusal
        if refusal is None or refusal.is_complete:
            return
        text = refusal.answer(data)
        if text:
            self.transport.write(text)
        if refusal.is_complete:
            wake(self.answer_sent)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._begin(self)

    def data_received(self, data: bytes) -> None:
        if self._refusal is None:
            self.unread += data
        else:
            self._answer(data)
        wake(self.first)

    def eof_received(self) -> bool:
        wake(self.answer_sent)
        # who has sent all of a request reads the answer
        return self.is_plain and self._refusal is None

    def connection_lost(self, exc: Exception | None) -> None:
        wake(self.lost)
        wake(self.answer_sent)
        wake(self.first)


class _Early(asyncio.Protocol):
    """Keeps bytes that arrive between the end of the handshake and the next turn of the loop."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.has_ended = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> bool:
        self.has_ended = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.has_ended = True
