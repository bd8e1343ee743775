"""Answers of ports that are no HTTP port, or none that answers."""

from __future__ import annotations

import socket
import threading

import pytest

from zmqtriton.ctl.client import NoServerError
from zmqtriton.ctl.inferring.http_service import HttpService, RefusedRequest, parse_headers
from zmqtriton_floor.errors import DeadlineExceeded, InvalidArgument


def ask(answer: bytes, timeout_s: float = 10.0) -> bytes:
    """Ask a server that sends this answer, and closes; with an empty one it says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = threading.Event()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)
                if not answer:
                    done.wait(30)

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            return HttpService(url, {}, timeout_s).request("/").body
        finally:
            done.set()
            thread.join()


def test_a_port_with_tls_is_recognized() -> None:
    alert = b"\x15\x03\x03\x00\x02\x02\x46"

    with pytest.raises(NoServerError, match="does not speak HTTP; if it has TLS"):
        ask(alert + b"\r\n")


def test_a_server_that_says_nothing_is_not_waited_for() -> None:
    with pytest.raises(DeadlineExceeded, match=r"no answer within 0\.1 s"):
        ask(b"", 0.1)


def test_a_port_on_which_nobody_listens_is_named() -> None:
    with pytest.raises(NoServerError, match=r"no server answers at http://127\.0\.0\.1:1: "):
        HttpService("http://127.0.0.1:1/", {}, 10.0).request("/v2")


@pytest.mark.parametrize("body", [b'{"error": "no room"}', b"no room\n"])
def test_a_refusal_has_the_text_and_the_status(body: bytes) -> None:
    head = f"HTTP/1.1 503 Busy\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    with pytest.raises(RefusedRequest) as refused:
        ask(head + body)

    assert "no room (HTTP 503)" == refused.value.text


def test_headers_are_names_and_values() -> None:
    assert {"A": "b: c"} == parse_headers(("A: b: c",))
    with pytest.raises(InvalidArgument, match="is not 'NAME: VALUE'"):
        parse_headers(("A",))
