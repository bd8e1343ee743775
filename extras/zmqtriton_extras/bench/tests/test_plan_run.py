"""A plan whose requests cannot be sent, get odd answers, or none."""

from __future__ import annotations

import base64
import itertools
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.standard.ctl.answering import answering
from tests.support.certificates import Authority
from zmqtriton_extras.bench import connections
from zmqtriton_extras.bench.connections import RequestFailed, make_connection
from zmqtriton_extras.bench.worker import Connections, PlanRun

pytestmark = pytest.mark.slow

REQUEST = base64.b64encode(b"POST / HTTP/1.1\r\n\r\n").decode()


def plan(address: str = "127.0.0.1:9", **more: Any) -> dict[str, Any]:
    of_one = {"concurrency": 1, "rate": 0.0, "seconds": 0.2, "timeout_s": 30.0}
    of_grpc = {"headers": {}, "is_decoupled": True}
    to = {"kind": "http", "address": address, "has_tls": False, "request": REQUEST}
    return {**of_one, **of_grpc, **to, **more}


def run(load: dict[str, Any], stop: threading.Event | None = None) -> dict[str, Any]:
    made = [make_connection(load) for _ in range(load["concurrency"])]
    return PlanRun(load, made, stop or threading.Event()).run()


def address_of(url: str) -> str:
    return url.partition("://")[2]


def test_a_place_where_nobody_listens_is_a_failure() -> None:
    report = run(plan("127.0.0.1:99999", concurrency=2))

    assert report["latencies"] == []
    assert [text[:15] for text in report["failures"]] == ["cannot connect,"]


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "has no Content-Length"),
        (b"Content-Length: 9\r\n\r\n{}", "the server has closed the connection; see its log"),
        (b"Content-Len", "the server has closed the connection; see its log"),
    ],
)
def test_an_answer_that_cannot_be_followed_is_a_failure(head: bytes, reason: str) -> None:
    with answering(b"HTTP/1.1 200 OK\r\n" + head) as url:
        report = run(plan(address_of(url)))

    assert report["latencies"] == []
    assert any(reason in text for text in report["failures"])


@pytest.mark.smoke
def test_an_answer_in_many_pieces_is_one_answer() -> None:
    length = 5_000_000
    answer = b"HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: %d\r\n\r\n" % length + bytes(length)
    with answering(answer) as url:
        connection = make_connection(plan(address_of(url)))
        assert connection.ask() == []
        connection.close()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"error": "%s"}' % (b"no" * 70_000), "no" * 150),
        (b"something else", "HTTP/1.1 400 Bad Request"),
    ],
)
def test_a_refusal_is_a_failure_with_its_text(body: bytes, text: str) -> None:
    head = b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n" % len(body)
    with answering(head + body) as url:
        connection = make_connection(plan(address_of(url)))
        with pytest.raises(RequestFailed) as failed:
            connection.ask()
        connection.close()

    assert text == str(failed.value)


def test_a_server_with_tls_is_asked_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert))
    connections._tls.cache_clear()

    def serve(listener: socket.socket) -> None:
        plain, _ = listener.accept()
        with context.wrap_socket(plain, server_side=True) as accepted:
            accepted.recv(65536)
            accepted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as server:
        served = server.submit(serve, listener)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        connection = make_connection(plan(address, has_tls=True))
        assert connection.ask() == []
        connection.close()
        served.result(30)
    connections._tls.cache_clear()


@pytest.mark.parametrize("kind", ["http", "grpc", "stream"])
def test_an_answer_that_does_not_come_is_a_failure_after_the_time_limit(kind: str) -> None:
    with answering(b"") as url:
        report = run(plan(address_of(url), kind=kind, timeout_s=0.3))

    assert report["latencies"] == []
    assert "no answer within 0.3 s" in report["failures"]


@pytest.mark.parametrize("kind", ["http", "grpc", "stream"])
def test_a_client_without_an_answer_ends_at_the_stop(kind: str) -> None:
    stop = threading.Event()
    with answering(b"") as url:
        timer = threading.Timer(0.5, stop.set)
        timer.start()
        report = run(plan(address_of(url), kind=kind, seconds=60.0), stop)
        timer.join()

    assert (report["latencies"], report["failures"]) == ([], {})
    assert report["seconds"] < 30.0


class AnsweredAtOnce:
    """A connection whose answers cost no time."""

    def __init__(self, count_to: int, stop: threading.Event) -> None:
        self._count_to = count_to
        self._stop = stop
        self.count = 0

    def open(self) -> None:
        """Do nothing."""

    def ask(self) -> list[float]:
        self.count += 1
        if self.count == self._count_to:
            self._stop.set()
        return []

    def interrupt(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class Broken(AnsweredAtOnce):
    def ask(self) -> list[float]:
        raise ValueError("odd")


def test_what_ends_a_client_is_a_failure() -> None:
    stop = threading.Event()

    report = PlanRun(plan(), [Broken(8, stop), Broken(8, stop)], stop).run()

    assert report["failures"] == {"odd": 2}


def test_a_client_that_is_answered_as_it_is_stopped_asks_no_more() -> None:
    stop = threading.Event()
    connection = AnsweredAtOnce(8, stop)

    report = PlanRun(plan(seconds=20.0), [connection], stop).run()

    assert (connection.count, len(report["latencies"])) == (8, 8)


def test_a_machine_without_threads_for_all_clients_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    started, start = itertools.count(), threading.Thread.start

    def start_one(thread: threading.Thread) -> None:
        if next(started) >= 1:
            raise RuntimeError("can't start new thread")
        start(thread)

    stop = threading.Event()
    pair = [AnsweredAtOnce(8, stop) for _ in range(2)]
    monkeypatch.setattr(threading.Thread, "start", start_one)

    report = PlanRun(plan(), pair, stop).run()

    assert {"can't start new thread"} == set(report["failures"])


def test_a_warm_up_opens_the_connections_that_are_measured() -> None:
    pool = Connections()
    warm_up = pool.of_plan(plan(concurrency=2, seconds=0.1))

    assert warm_up is pool.of_plan(plan(concurrency=2, seconds=5.0, rate=3.0))
    assert len(pool.of_plan(plan(concurrency=3))) == 3
