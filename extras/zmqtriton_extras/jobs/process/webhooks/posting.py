"""One try of a webhook: a POST over a connection of its own, to an address that was checked.

The host is resolved once, and the connection goes to exactly that address, so a later change of the
name has no effect. Redirects count as ordinary responses, and no proxy is used.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cache

from zmqtriton.sdk.frontend import Threads
from zmqtriton.sdk.wire import Unavailable
from zmqtriton_extras.jobs.process.webhooks.receivers import Allowed, NotAllowed, Receiver

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: .*)?\r?\n")
_MAX_LINE = 16 << 10
_resolving = Threads("webhook-dns", 16)

Resolve = Callable[[str, int], Awaitable[list[str]]]


class TryFailed(Exception):
    """Raised when there was no response; the text is for the job's owner."""


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host. Raises OSError.

    In a thread of its own: the resolver of one host may hang without delaying 15 others.
    """

    def look() -> list[str]:
        try:
            rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError as error:
            raise OSError(str(error)) from error
        return [str(row[4][0]) for row in rows]

    try:
        return await _resolving.run(look)
    except Unavailable as error:
        raise OSError(error.text) from None


async def post(
    receiver: Receiver,
    allowed: Allowed,
    fields: Mapping[str, str],
    body: bytes,
    resolver: Resolve = resolve,
) -> int:
    """Send the body; return the status of the response, without reading the rest.

    Raises TryFailed.
    """
    try:
        line = await _connect(receiver, allowed, await resolver(receiver.host, receiver.port))
    except OSError as error:
        raise TryFailed(
            f"{receiver.host} cannot be reached, check the URL: {error.strerror or error}"
        ) from error
    try:
        reader, writer = await asyncio.open_connection(
            sock=line,
            limit=_MAX_LINE,
            ssl=_context() if receiver.is_secure else None,
            server_hostname=receiver.host if receiver.is_secure else None,
        )
    except BaseException as error:
        line.close()
        if isinstance(error, OSError):
            raise TryFailed(f"{receiver.host}: {error}") from error
        raise
    try:
        writer.write(_head(receiver, fields, len(body)) + body)
        return await _read_status(reader)
    except (OSError, EOFError, asyncio.LimitOverrunError) as error:
        raise TryFailed(
            "the connection ended without a response in HTTP/1.1; check the URL"
        ) from error
    finally:
        writer.transport.abort()


async def _connect(receiver: Receiver, allowed: Allowed, addresses: Iterable[str]) -> socket.socket:
    """Connect to the first address that is allowed and answers. Raises TryFailed."""
    problem: Exception = TryFailed(
        f"{receiver.host} has no address in DNS; correct the webhook's URL"
    )
    for address in dict.fromkeys(addresses):
        try:
            allowed.check_address(receiver, address)
        except NotAllowed as error:
            problem = TryFailed(f"{receiver.host}: {error}")
            continue
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        line = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        line.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(line, (address, receiver.port))
        except BaseException as error:
            line.close()
            if not isinstance(error, OSError):
                raise
            problem = TryFailed(
                f"{receiver.host} ({address}) cannot be reached, check the URL: "
                f"{error.strerror or error}"
            )
            continue
        return line
    raise problem


@cache
def _context() -> ssl.SSLContext:
    return ssl.create_default_context()


def _head(receiver: Receiver, fields: Mapping[str, str], size: int) -> bytes:
    rows = {"Host": receiver.authority, **fields, "Content-Length": size, "Connection": "close"}
    lines = [f"POST {receiver.target} HTTP/1.1", *(f"{name}: {rows[name]}" for name in rows)]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


async def _read_status(reader: asyncio.StreamReader) -> int:
    while True:
        match = _STATUS.fullmatch(await reader.readuntil(b"\n"))
        if match is None:
            raise TryFailed("the receiver must respond in HTTP/1.1")
        status = int(match[1])
        if status >= 200 or status == 101:
            return status
        while (await reader.readuntil(b"\n")).strip():
            continue  # the fields of an interim answer
