from __future__ import annotations

import asyncio
import socket
import zlib
from collections.abc import Awaitable, Callable

import pytest

from tests.support.scenarios import scenario
from zmqtriton_floor.errors import Unavailable
from zmqtriton_frontends.http1 import MAX_FIELDS, MAX_LINE_BYTES
from zmqtriton_frontends.process.hosts import AllowedHosts
from zmqtriton_frontends.serving import page_server
from zmqtriton_frontends.serving.page_server import Negotiate, PageServer

GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
Conversation = Callable[[PageServer, "tuple[str, int]"], Awaitable[None]]


async def page() -> str:
    return "the page\n"


def play(
    conversation: Conversation,
    scrape: Callable[[], Awaitable[str]] = page,
    listening: str = "0.0.0.0",
    negotiate: Negotiate | None = None,
) -> None:
    async def all_of_it() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        hosts = AllowedHosts(listening, [])
        form = "text/plain; charset=utf-8"
        served = PageServer("/metrics", form, scrape, hosts, negotiate=negotiate)
        await served.start(listener)
        try:
            await asyncio.wait_for(conversation(served, listener.getsockname()), 20)
        finally:
            await served.stop(1.0)

    asyncio.run(all_of_it())


async def talk(address: tuple[str, int], data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    answer = await reader.read()
    writer.close()
    return answer


def closing(request: bytes) -> bytes:
    return request[:-2] + b"Connection: close\r\n\r\n"


@scenario(play)
async def test_the_page_is_served_to_one_scrape_after_another(
    served: PageServer, address: tuple[str, int], /
) -> None:
    answer = await talk(address, GET + GET + closing(GET))

    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert answer.count(b"Content-Type: text/plain; charset=utf-8\r\n") == 3
    assert answer.endswith(b"Connection: close\r\n\r\nthe page\n")


@pytest.mark.parametrize(
    ("request_head", "status", "body"),
    [
        (b"GET /nope HTTP/1.1\r\nHost: x", b"404 Not Found", b'{"error": "Not Found"}'),
        (b"GET / HTTP/1.1\r\nHost: x", b"404 Not Found", b'{"error": "Not Found"}'),
        (
            b"POST /metrics HTTP/1.1\r\nHost: x",
            b"405 Method Not Allowed",
            b'{"error": "Method Not Allowed"}',
        ),
        (b"GET /metrics?x=1 HTTP/1.1\r\nHost: x", b"200 OK", b"the page\n"),
        (b"GET /metrics/ HTTP/1.1\r\nHost: x", b"200 OK", b"the page\n"),
        (b"GET /metrics// HTTP/1.1\r\nHost: x", b"404 Not Found", b'{"error": "Not Found"}'),
        (b"GET http://x/metrics HTTP/1.1\r\nHost: x", b"200 OK", b"the page\n"),
        (b"GET /metrics HTTP/1.0", b"200 OK", b"the page\n"),
        (
            b"GET /metrics HTTP/1.1",
            b"400 Bad Request",
            b'{"error": "Header host is missing: send it"}',
        ),
        (b"nonsense", b"400 Bad Request", b'{"error": "Malformed request line"}'),
        (b"GET /metrics SSH-2.0", b"400 Bad Request", b'{"error": "Malformed request line"}'),
        (
            b"GET /metrics HTTP/1.1\r\nHost: x" + b"\r\nx: y" * MAX_FIELDS,
            b"431 Request Header Fields Too Large",
            b'{"error": "Request can have at most 100 header fields"}',
        ),
    ],
    ids=lambda value: value[:20].decode(),
)
@scenario(play)
async def test_anything_else_is_refused(
    served: PageServer, address: tuple[str, int], /, request_head: bytes, status: bytes, body: bytes
) -> None:
    answer = await talk(address, request_head + b"\r\nConnection: close\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert answer.endswith(b"\r\n\r\n" + body)


@pytest.mark.parametrize(
    "field",
    [
        b"Content-Length: 40",
        b"Transfer-Encoding: chunked",
        b"Content-Length: 40\r\nContent-Length: 0",
        b"Content-Length: 0\r\nTransfer-Encoding : chunked",
    ],
)
@scenario(play)
async def test_a_body_is_never_taken_for_the_next_request(
    served: PageServer, address: tuple[str, int], /, field: bytes
) -> None:
    assert (await talk(address, GET[:-2] + field + b"\r\n\r\n" + GET)).count(b"HTTP/1.1 ") == 1


def test_an_error_of_the_server_keeps_its_status_and_text() -> None:
    async def scrape() -> str:
        raise Unavailable("no broker")

    async def conversation(served: PageServer, address: tuple[str, int]) -> None:
        answer = await talk(address, closing(GET))

        assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert answer.endswith(b'{"error": "no broker"}')

    play(conversation, scrape)


def test_a_scrape_under_way_is_finished_at_the_end_and_idle_connections_are_closed() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def scrape() -> str:
        begun.set()
        await go.wait()
        return "late\n"

    async def conversation(served: PageServer, address: tuple[str, int]) -> None:
        idle_reader, idle_writer = await asyncio.open_connection(*address)
        busy = asyncio.ensure_future(talk(address, GET))
        await begun.wait()

        stopping = asyncio.ensure_future(served.stop(10.0))
        await asyncio.sleep(0)
        go.set()

        assert (await busy).endswith(b"late\n")
        assert await idle_reader.read() == b""
        await stopping
        idle_writer.close()

    play(conversation, scrape)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8002", b"200 OK"),
        ("127.0.0.1", b"200 OK"),
        ("[::1]:8002", b"200 OK"),
        ("attacker.example", b"421 Misdirected Request"),
        ("localhost.attacker.example", b"421 Misdirected Request"),
        ("a b", b"400 Bad Request"),
    ],
)
@scenario(play, listening="127.0.0.1")
async def test_on_loopback_it_answers_to_its_own_names_only(
    served: PageServer, address: tuple[str, int], /, host: str, status: bytes
) -> None:
    head = f"GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"

    answer = await talk(address, head.encode())

    assert answer.startswith(b"HTTP/1.1 " + status)
    assert (b"421" in status) == (b"--http-allowed-host=" + host.encode() in answer)


@scenario(play)
async def test_half_requests_keep_nobody_out(
    served: PageServer, address: tuple[str, int], /, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_server, "MAX_CONNECTIONS", 3)

    halves = [await asyncio.open_connection(*address) for _ in range(10)]
    for _, writer in halves:
        writer.write(b"GET /metrics HTTP/1.1\r\nHo")
        await writer.drain()

    assert (await talk(address, closing(GET))).startswith(b"HTTP/1.1 200 OK")
    for _, writer in halves:
        writer.close()


@scenario(play)
async def test_head_is_get_without_its_body(
    served: PageServer, address: tuple[str, int], /
) -> None:
    head = GET.replace(b"GET", b"HEAD")
    of_get, of_head = await talk(address, closing(GET)), await talk(address, closing(head))
    missing = await talk(address, head.replace(b"/metrics", b"/") + closing(head))
    too_long = await talk(address, head + b"GET /" + b"x" * MAX_LINE_BYTES)

    assert of_get == of_head + b"the page\n"
    assert missing.startswith(b"HTTP/1.1 404 ")
    assert missing.endswith(of_head)
    assert too_long.endswith(b'{"error": "Request line can have at most 8192 bytes"}')


@pytest.mark.parametrize(
    ("accepted", "coding", "wbits"),
    [(b"gzip", b"gzip", 31), (b"deflate, gzip;q=0", b"deflate", 15)],
)
def test_a_long_page_is_compressed_if_that_is_accepted(
    accepted: bytes, coding: bytes, wbits: int
) -> None:
    text = 'zmqtriton_ready{model="m"} 1\n' * 500

    async def long_page() -> str:
        return text

    async def conversation(served: PageServer, address: tuple[str, int]) -> None:
        request = GET[:-2] + b"Accept-Encoding: " + accepted + b"\r\n\r\n"
        head, _, body = (await talk(address, closing(request))).partition(b"\r\n\r\n")

        assert b"Content-Encoding: " + coding + b"\r\n" in head + b"\r\n"
        assert b"Content-Length: %d\r\n" % len(body) in head
        assert text == zlib.decompress(body, wbits).decode()
        assert len(body) * 10 < len(text)

    play(conversation, long_page)


@pytest.mark.parametrize("field", [b"", b"Accept-Encoding: br, identity\r\n"])
def test_a_page_is_plain_otherwise(field: bytes) -> None:
    async def long_page() -> str:
        return "x" * 5000

    async def conversation(served: PageServer, address: tuple[str, int]) -> None:
        answer = await talk(address, closing(GET[:-2] + field + b"\r\n"))

        assert answer.endswith(b"\r\n\r\n" + b"x" * 5000)

    play(conversation, long_page)


def test_the_form_may_be_another_by_what_a_scraper_accepts() -> None:
    async def negotiate(accept: str, content_type: str, text: str) -> tuple[str, str]:
        return ("x/y", text.upper()) if accept == "x/y,*/*" else (content_type, text)

    async def conversation(served: PageServer, address: tuple[str, int]) -> None:
        wish = b"Accept: x/y\r\nAccept: */*\r\n\r\n"

        answer = await talk(address, GET[:-2] + wish + closing(GET))

        assert answer.count(b"Content-Type: x/y\r\n") == 1
        assert answer.count(b"Content-Type: text/plain; charset=utf-8\r\n") == 1
        assert (1, 1) == (answer.count(b"THE PAGE"), answer.count(b"the page"))

    play(conversation, negotiate=negotiate)
