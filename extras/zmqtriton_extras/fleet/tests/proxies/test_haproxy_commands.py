"""Servers that a real HAProxy has by commands, without a reload."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.support.certificates import Authority
from tests.support.server import free_ports, status_of
from tests.support.waiting import eventually
from zmqtriton_extras.fleet.proxies import haproxy
from zmqtriton_extras.fleet.proxies.haproxy import HaproxyCommands
from zmqtriton_extras.fleet.proxies.layout import Layout
from zmqtriton_extras.fleet.servers.nodes import Node
from zmqtriton_extras.fleet.tests.proxies.programs import run_command
from zmqtriton_floor.errors import InvalidArgument

pytestmark = pytest.mark.system


class _Named(ThreadingHTTPServer):
    """Answers with its address, POST when it may."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.address = f"127.0.0.1:{self.server_port}"
        self.has_request, self.may_answer = Event(), Event()
        self.may_answer.set()
        self.gets = 0


class _Handler(BaseHTTPRequestHandler):
    server: _Named
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.gets += 1
        body = self.server.address.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.has_request.set()
        self.server.may_answer.wait(60)
        self.do_GET()

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


class _Haproxy:
    """One that runs, and the configuration that it has."""

    def __init__(self, directory: Path) -> None:
        self.http_port, self._grpc_port = free_ports(2)
        self._socket = directory / "socket"
        self.file = directory / "haproxy.cfg"
        self._commands = HaproxyCommands(self._socket)
        self._text = ""

    def layout(self, *servers: str, models: tuple[str, ...] = ("m",)) -> Layout:
        http, grpc = (f"127.0.0.1:{port}" for port in (self.http_port, self._grpc_port))
        nodes = tuple(Node(http=each, grpc=each) for each in servers)
        return Layout(nodes, models, http, grpc, "", "X-Sequence", socket=str(self._socket))

    def configure(self, layout: Layout) -> None:
        self._text = haproxy.render(layout)
        self.file.write_text(self._text)

    @contextmanager
    def followed(self, announcements: Path, reload: Path) -> Iterator[None]:
        """Have its configuration follow announcements."""
        where = [f"--http=127.0.0.1:{self.http_port}", f"--grpc=127.0.0.1:{self._grpc_port}"]
        words = ["proxy", "haproxy", str(announcements), "--follow", f"--write={self.file}"]
        words += [f"--reload={reload}", f"--socket={self._socket}", "--statistics=", *where]
        with subprocess.Popen([sys.executable, "-m", "zmqtriton.ctl.main", *words]) as process:
            try:
                yield
            finally:
                process.terminate()

    def change(self, layout: Layout) -> None:
        before, self._text = self._text, haproxy.render(layout)
        self._commands.change(before, self._text)

    def has_servers_of(self, layout: Layout) -> bool:
        return self._commands.has_servers_of(haproxy.render(layout))

    def ask(self, sequence: str = "", body: bytes | None = None) -> str:
        """Return the address of the server that has answered."""
        headers = {"X-Sequence": sequence} if sequence else {}
        url = f"http://127.0.0.1:{self.http_port}/v2/models/m/infer"
        request = urllib.request.Request(url, body, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.read().decode())

    def answering(self) -> set[str]:
        return {self.ask() for _ in range(10)}


@contextmanager
def _serving(tls: ssl.SSLContext | None = None) -> Iterator[_Named]:
    with _Named() as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.may_answer.set()
            server.shutdown()
            thread.join()


@contextmanager
def _running(proxy: _Haproxy) -> Iterator[None]:
    command = run_command("haproxy", proxy.file)
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            url = f"http://127.0.0.1:{proxy.http_port}/v2"
            eventually(lambda: status_of(url) == 200, 60, "HAProxy answers")
            yield
        finally:
            process.terminate()


def test_servers_come_and_go_without_a_reload(tmp_path: Path) -> None:
    proxy = _Haproxy(tmp_path)
    with ExitStack() as ends:
        old, new = (ends.enter_context(_serving()) for _ in range(2))
        proxy.configure(proxy.layout(old.address))
        ends.enter_context(_running(proxy))
        old.may_answer.clear()
        begun: list[str] = []
        first = Thread(target=lambda: begun.append(proxy.ask("7", b"begins")))
        first.start()
        assert old.has_request.wait(60)

        proxy.change(proxy.layout(old.address, new.address))
        eventually(lambda: proxy.answering() == {new.address}, 60, "it has the fewest requests")

        # a sequence whose first answer comes after the change stays, as no reload could have it
        old.may_answer.set()
        first.join(60)
        assert [old.address] * 6 == begun + [proxy.ask("7", b"goes on") for _ in range(5)]

        proxy.change(proxy.layout(new.address))
        assert {new.address} == proxy.answering()
        assert proxy.has_servers_of(proxy.layout(new.address))
        assert not proxy.has_servers_of(proxy.layout(new.address, "127.0.0.1:1"))
        proxy.change(proxy.layout(new.address, old.address))
        both = {old.address, new.address}
        eventually(lambda: proxy.answering() == both, 60, "both are checked, and answer")


def test_a_server_that_comes_by_a_command_is_checked_as_those_of_the_configuration(
    tmp_path: Path,
) -> None:
    proxy, authority = _Haproxy(tmp_path), Authority(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.issue("localhost"))
    [nobody] = free_ports(1)
    with ExitStack() as ends:
        old, new = (ends.enter_context(_serving(tls)) for _ in range(2))

        def layout(*servers: _Named) -> Layout:
            secure, agent = frozenset({"http", "grpc"}), f"127.0.0.1:{nobody}"
            nodes = tuple(Node(s.address, s.address, agent, secure) for s in servers)
            return proxy.layout()._replace(
                nodes=nodes, server_ca=str(authority.cert), server_name="localhost"
            )

        proxy.configure(layout(old))
        ends.enter_context(_running(proxy))

        proxy.change(layout(old, new))

        checks = new.gets
        eventually(lambda: new.gets > checks + 3, 60, "it is checked")
        assert {old.address, new.address} == proxy.answering()


def test_a_server_that_announces_itself_comes_by_a_command(tmp_path: Path) -> None:
    proxy = _Haproxy(tmp_path)
    reloads, script = tmp_path / "reloads", tmp_path / "reload"
    script.write_text(f"#!/bin/sh\necho >> {reloads}\n")
    script.chmod(0o755)
    (tmp_path / "announced").mkdir()

    def announce(server: _Named) -> None:
        addresses = {"http": server.address, "grpc": server.address}
        document = {"format": 1, "interval_s": 60, "state": "ready", "addresses": addresses}
        models = [{"name": "m", "ready": True}]
        path = tmp_path / "announced" / f"{server.server_port}.json"
        path.write_text(json.dumps({**document, "models": models}))

    with ExitStack() as ends:
        old, new = (ends.enter_context(_serving()) for _ in range(2))
        announce(old)
        ends.enter_context(proxy.followed(tmp_path / "announced", script))
        eventually(reloads.exists, 60, "HAProxy is told of its configuration")
        ends.enter_context(_running(proxy))

        announce(new)

        eventually(lambda: {old.address, new.address} == proxy.answering(), 60, "both are asked")
        assert new.address in proxy.file.read_text(), "for its next start"
        assert reloads.read_text() == "\n"


def test_haproxy_reads_its_configuration_again_for_all_else(tmp_path: Path) -> None:
    proxy = _Haproxy(tmp_path)
    with ExitStack() as ends:
        server = ends.enter_context(_serving())
        proxy.configure(proxy.layout(server.address))
        ends.enter_context(_running(proxy))
        for layout, text in (
            (proxy.layout(server.address, models=("m", "n")), "more than servers has changed"),
            (
                proxy.layout(server.address, "a.example:1", models=("m", "n")),
                "looks up 'a.example'",
            ),
        ):
            with pytest.raises(InvalidArgument, match=text):
                proxy.change(layout)
        assert {server.address} == proxy.answering()

    with pytest.raises(OSError, match=r"refused|No such file"):
        proxy.change(proxy.layout(server.address, "127.0.0.1:1", models=("m", "n")))
