"""One try of a webhook, over sockets of this machine."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.scenarios import scenario
from zmqtriton_extras.jobs.process.webhooks import posting
from zmqtriton_extras.jobs.process.webhooks.posting import Resolve, TryFailed, post, resolve
from zmqtriton_extras.jobs.process.webhooks.receivers import Allowed, Receiver

_FIELDS = {"webhook-id": "an-id"}
_BODY = b'{"type":"job.succeeded"}'


class Listener:
    """Takes a request a connection, and answers with these bytes."""

    def __init__(self, answer: bytes) -> None:
        self.requests: list[bytes] = []
        self._answer = answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.requests.append(head + await reader.readexactly(len(_BODY)))
        writer.write(self._answer)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def _listening(
    answer: bytes, context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Listener, int]]:
    listener = Listener(answer)
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield listener, server.sockets[0].getsockname()[1]


def _resolving(*answers: list[str]) -> Resolve:
    left = list(answers)

    async def resolver(host: str, port: int) -> list[str]:
        return left.pop(0)

    return resolver


def _play(coroutine: Callable[[], object]) -> None:
    asyncio.run(coroutine)  # type: ignore[arg-type]


play = scenario(_play)


@play
async def test_the_body_arrives_as_a_post_of_the_host_s_name() -> None:
    async with _listening(b"HTTP/1.1 204 No Content\r\n\r\n") as (listener, port):
        receiver = Receiver(False, "app.example", port, "/done?x=1")
        allowed = Allowed(["127.0.0.0/8"])

        status = await post(receiver, allowed, _FIELDS, _BODY, _resolving(["127.0.0.1"]))

    assert status == 204
    [request] = listener.requests
    lines = request.split(b"\r\n")
    assert lines[0] == b"POST /done?x=1 HTTP/1.1"
    assert {b"Host: app.example:%d" % port, b"webhook-id: an-id"} < set(lines)
    assert lines[-1] == _BODY


@play
async def test_a_name_is_resolved_once_and_what_was_checked_is_connected_to() -> None:
    async with _listening(b"HTTP/1.1 200 OK\r\n\r\n") as (listener, port):
        receiver, allowed = Receiver(False, "app.example", port, "/"), Allowed(["127.0.0.1"])
        # a second question would raise
        resolver = _resolving(["169.254.169.254", "::ffff:169.254.169.254", "127.0.0.1"])

        assert await post(receiver, allowed, {}, _BODY, resolver) == 200
    assert len(listener.requests) == 1


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "::ffff:7f00:1", "::1"])
@play
async def test_an_address_that_is_not_public_is_not_connected_to(address: str) -> None:
    async with _listening(b"HTTP/1.1 200 OK\r\n\r\n") as (listener, port):
        receiver, allowed = Receiver(False, "app.example", port, "/"), Allowed(["app.example"])

        with pytest.raises(TryFailed, match=r"app.example: .* is not public"):
            await post(receiver, allowed, {}, _BODY, _resolving([address]))

    assert listener.requests == []


@pytest.mark.parametrize("name", ["localhost", "2130706433", "0x7f000001", "0177.0.0.1"])
@play
async def test_spellings_that_the_resolver_knows_are_addresses_too(name: str) -> None:
    async with _listening(b"HTTP/1.1 200 OK\r\n\r\n") as (listener, port):
        with pytest.raises(TryFailed, match=r"is not public|not known"):
            await post(Receiver(False, name, port, "/"), Allowed([name]), {}, _BODY, resolve)

    assert listener.requests == []


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", 200),
        (b"HTTP/1.0 302 Found\r\nLocation: http://127.0.0.1/\r\n\r\n", 302),
        (b"HTTP/1.1 500 \r\n\r\n", 500),
        (b"", "ended without a response"),
        (b"HTTP/1.1 200", "ended without a response"),
        (b"x" * (64 << 10), "ended without a response"),
        (b"220 smtp.example ESMTP\r\n", "must respond in HTTP/1.1"),
        (b"HTTP/2 200\r\n\r\n", "must respond in HTTP/1.1"),
    ],
)
@play
async def test_of_an_answer_the_status_is_read(answer: bytes, status: int | str) -> None:
    async with _listening(answer) as (listener, port):
        receiver, allowed = Receiver(False, "127.0.0.1", port, "/"), Allowed(["127.0.0.1"])
        posting = post(receiver, allowed, {}, _BODY, _resolving(["127.0.0.1"]))

        if isinstance(status, int):
            assert status == await posting
        else:
            with pytest.raises(TryFailed, match=status):
                await posting
        assert len(listener.requests) == 1  # whatever it says, nothing is followed


@pytest.mark.slow
@play
async def test_https_needs_a_certificate_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    trusted = ssl.create_default_context(cafile=str(authority.cert))
    allowed, here = Allowed(["127.0.0.1"]), ["127.0.0.1"]
    async with _listening(b"HTTP/1.1 200 OK\r\n\r\n", context) as (listener, port):
        with pytest.raises(TryFailed, match="CERTIFICATE_VERIFY_FAILED"):
            await post(Receiver(True, "localhost", port, "/"), allowed, {}, _BODY, _resolving(here))
        monkeypatch.setattr(posting, "_context", lambda: trusted)
        with pytest.raises(TryFailed, match="CERTIFICATE_VERIFY_FAILED"):
            await post(Receiver(True, "other", port, "/"), allowed, {}, _BODY, _resolving(here))
        assert listener.requests == []

        receiver = Receiver(True, "localhost", port, "/")
        assert await post(receiver, allowed, {}, _BODY, _resolving(here)) == 200
