"""Answers of ports that are no HTTP port, or none that answers."""

from __future__ import annotations

import pytest

from tests.standard.ctl.answering import answering
from tests.support.refusals import refusal
from zmqtriton.control_client import NoServerError
from zmqtriton_floor.errors import DeadlineExceeded, InvalidArgument
from zmqtriton_standard.ctl.http_service import (
    Answer,
    HttpService,
    RefusedRequest,
    parse_headers,
)


def ask(answer: bytes, timeout_s: float = 10.0, *, ends: bool = False) -> bytes:
    with answering(answer, ends=ends) as url:
        return HttpService(url, {}, timeout_s).request("/").body


def test_a_port_with_tls_is_recognized() -> None:
    alert = b"\x15\x03\x03\x00\x02\x02\x46"

    with pytest.raises(NoServerError, match="does not speak HTTP; if it has TLS"):
        ask(alert + b"\r\n")


def test_a_server_that_says_nothing_is_not_waited_for() -> None:
    with pytest.raises(DeadlineExceeded, match=r"no response within 0\.1 s"):
        ask(b"", 0.1)


def test_a_port_on_which_nobody_listens_is_named() -> None:
    with pytest.raises(
        NoServerError, match=r"no server answers at http://127\.0\.0\.1:1, does it run"
    ):
        HttpService("http://127.0.0.1:1/", {}, 10.0).request("/v2")


@pytest.mark.parametrize("body", [b'{"error": "no room"}', b"no room\n"])
def test_a_refusal_has_the_text_and_the_status(body: bytes) -> None:
    head = f"HTTP/1.1 503 Busy\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    assert "no room (HTTP 503)" == refusal(RefusedRequest, ask, head + body)


def test_a_server_that_ends_is_not_one_with_tls() -> None:
    with pytest.raises(NoServerError, match=r"^http://\S+ ended the connection, "):
        ask(b"", 30.0, ends=True)
    with pytest.raises(NoServerError, match="ended the connection amid its response"):
        ask(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}")
    with pytest.raises(NoServerError, match="ended the connection amid its response"):
        ask(b"HTTP/1.1 400 Bad\r\nContent-Length: 9\r\n\r\n{}")


def test_a_page_is_no_answer_of_a_model_server() -> None:
    with pytest.raises(NoServerError, match="no response of a model server: '<html>'"):
        Answer({}, b"<html>").json()


@pytest.mark.parametrize(
    "url", ["", "localhost:8000", "ftp://a", "http://", "http://[::1", "http://a:99999"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument, match="must be like http://127"):
        HttpService(url, {}, 1.0)


@pytest.mark.parametrize(
    ("url", "address", "path"),
    [
        ("http://127.0.0.1:8000/", "127.0.0.1:8000", b"/v2"),
        ("https://models.example", "models.example:443", b"/v2"),
        ("http://[::1]/team/a", "[::1]:80", b"/team/a/v2"),
    ],
)
def test_a_url_has_an_address_and_may_have_a_path(url: str, address: str, path: bytes) -> None:
    service = HttpService(url, {}, 1.0)

    assert address == service.address
    assert service.raw_request("/v2", b"", {}).startswith(b"POST %b HTTP/1.1\r\n" % path)


def test_headers_are_names_and_values() -> None:
    assert {"A": "b: c"} == parse_headers(("A: b: c",))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("A", "must be 'NAME: VALUE'"),
        (": b", "must be 'NAME: VALUE'"),
        ("A b: c", "must be 'NAME: VALUE'"),
        ("\u00dc: c", "must be 'NAME: VALUE'"),
        ("A: \u2603", "must be printable ASCII"),
        ("A: b\r\nC: d", "must be printable ASCII"),
    ],
)
def test_what_no_header_can_have_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        parse_headers((text,))
