"""Connections to servers that answer in every form, end when they like, or are none."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from zmqtriton_extras.pytriton.client.wire.calls import ServerError, TritonUrl
from zmqtriton_extras.pytriton.client.wire.http_transports import (
    AsyncHttpTransport,
    HttpCalls,
    HttpRequest,
    HttpResponse,
    HttpTransport,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LIMIT_S = 10.0

Ask = Callable[..., list[HttpResponse]]


class ScriptedServer:
    """A server that sends one piece of each connection's script after each request."""

    def __init__(self, listener: socket.socket, scripts: list[list[bytes]]) -> None:
        self.url = TritonUrl("http", *listener.getsockname())
        self.requests: list[bytes] = []
        self._listener = listener
        self._scripts = scripts

    def run(self) -> None:
        for script in self._scripts:
            connection, _ = self._listener.accept()
            with connection:
                for answer in script:
                    self.requests.append(self._receive(connection))
                    connection.sendall(answer)

    def _receive(self, connection: socket.socket) -> bytes:
        request = b""
        while b"\r\n\r\n" not in request:
            request += connection.recv(65536)
        return request


@contextmanager
def serving(*scripts: list[bytes]) -> Iterator[ScriptedServer]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = ScriptedServer(listener, [*scripts])
        thread = threading.Thread(target=server.run)
        thread.start()
        yield server
        thread.join(LIMIT_S)
        assert not thread.is_alive()


def _ask_from_a_thread(
    url: TritonUrl, *requests: HttpRequest, within_s: float = LIMIT_S
) -> list[HttpResponse]:
    transport = HttpTransport(url)
    try:
        return [transport.exchange(request, {}, within_s) for request in requests]
    finally:
        transport.close()


def _ask_from_a_loop(
    url: TritonUrl, *requests: HttpRequest, within_s: float = LIMIT_S
) -> list[HttpResponse]:
    async def ask() -> list[HttpResponse]:
        transport = AsyncHttpTransport(url)
        try:
            return [await transport.exchange(request, {}, within_s) for request in requests]
        finally:
            await transport.close()

    return asyncio.run(ask())


@pytest.fixture(params=[_ask_from_a_thread, _ask_from_a_loop], ids=["thread", "loop"])
def ask(request: pytest.FixtureRequest) -> Ask:
    return request.param


GET = HttpRequest("GET", "/")


def test_one_connection_carries_many_requests(ask: Ask) -> None:
    with serving([OK, OK]) as server:
        answers = ask(server.url, GET, HttpRequest("POST", "/x", [b"ab", b"c"]))

    assert [(200, b"ok")] * 2 == [(answer.status, bytes(answer.body)) for answer in answers]
    host = server.url.without_scheme.encode()
    assert [
        b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n",
        b"POST /x HTTP/1.1\r\nHost: " + host + b"\r\nContent-Length: 3\r\n\r\nabc",
    ] == server.requests


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"ok"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"
            b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: t\r\n\r\n",
            b"abcde",
        ),
    ],
)
def test_forms_of_answers(ask: Ask, answer: bytes, body: bytes) -> None:
    with serving([answer, OK]) as server:
        first, second = ask(server.url, GET, GET)

    assert (body, b"ok") == (bytes(first.body), bytes(second.body))


def test_a_server_that_closes_is_connected_to_anew(ask: Ask) -> None:
    closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"

    with serving([closing], [OK]) as server:
        answers = ask(server.url, GET, GET)

    assert [200, 200] == [answer.status for answer in answers]


def test_a_connection_that_has_ended_meanwhile_is_not_used() -> None:
    """Its end is seen before anything is sent, so that nothing is sent twice."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = TritonUrl("http", *listener.getsockname())
        transport = HttpTransport(url)
        clients: list[socket.socket] = []

        def serve() -> None:
            for _ in range(2):
                connection, _ = listener.accept()
                connection.recv(65536)
                clients.append(connection)
                connection.sendall(OK)

        thread = threading.Thread(target=serve)
        thread.start()
        transport.exchange(GET, {}, LIMIT_S)
        clients[0].close()
        answer = transport.exchange(GET, {}, LIMIT_S)
        thread.join(LIMIT_S)
        transport.close()
        clients[1].close()

    assert 200 == answer.status


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"],
)
def test_an_answer_that_breaks_off_is_an_error_and_the_request_is_not_repeated(
    ask: Ask, answer: bytes
) -> None:
    with (
        serving([answer]) as server,
        pytest.raises(ConnectionError, match="the server has closed the connection"),
    ):
        ask(server.url, GET)

    assert 1 == len(server.requests)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"220 mail.example.org ESMTP\r\n", "b'220 mail"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "a length of '-1'"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxy\r\n", "a length of b'xy"),
    ],
)
def test_whoever_speaks_no_http_is_an_error(ask: Ask, answer: bytes, problem: str) -> None:
    with (
        serving([answer]) as server,
        pytest.raises(ConnectionError, match=f"no HTTP answer: {problem}"),
    ):
        ask(server.url, GET)


def test_a_refusal_may_come_before_the_request_is_sent() -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno"

    with serving([refusal]) as server:
        [answer] = _ask_from_a_thread(server.url, HttpRequest("POST", "/", [bytes(64 << 20)]))

    assert (413, b"no") == (answer.status, bytes(answer.body))


def test_an_answer_that_does_not_come(ask: Ask) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = TritonUrl("http", *silent.getsockname())
        with pytest.raises(TimeoutError, match="timed out"):
            ask(url, GET, within_s=0.05)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"error": "no such model"}', "no such model"),
        (b"<h1>Bad Gateway</h1>", "<h1>Bad Gateway</h1>"),
        (b"[]", "[]"),
        (b"", "the server answers with status 502 and no text"),
    ],
)
def test_errors_of_servers_and_of_what_stands_before_them(body: bytes, text: str) -> None:
    call = HttpCalls().model_config("m", "")

    with pytest.raises(ServerError) as caught:
        call.read(HttpResponse(502, {}, memoryview(body)))

    assert text == str(caught.value)


def test_names_of_models_are_quoted() -> None:
    calls = HttpCalls()

    assert "/v2/models/a%2Fb%3F/versions/1/ready" == calls.model_ready("a/b?", "1").request.path
    assert "/v2/repository/models/a%2Fb/unload" == calls.unload_model("a/b").request.path
