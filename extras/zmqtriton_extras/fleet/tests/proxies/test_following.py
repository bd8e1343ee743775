"""A configuration that follows servers, which are sockets of the test."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from zmqtriton_extras.fleet.proxies.following import Follower, Running, Target, serve_receiver
from zmqtriton_extras.fleet.servers.membership import MISSES
from zmqtriton_extras.fleet.servers.nodes import Node
from zmqtriton_floor.errors import InvalidArgument

pytestmark = pytest.mark.slow


@contextmanager
def answering() -> Iterator[str]:
    """The address of a server that answers whatever it is asked with a refusal."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(403)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def announcement(http: str, at_s: float = 1.0, state: str = "ready") -> dict[str, Any]:
    about = {"format": 1, "interval_s": 5, "state": state, "started_s": 1.0, "at_s": at_s}
    return {**about, "addresses": {"http": http}, "models": [{"name": "m", "ready": True}]}


class Following:
    """A follower of a directory, looked after by hand."""

    def __init__(
        self,
        directory: Path,
        *words: str,
        reload: str = "",
        running: Running | None = None,
    ) -> None:
        self.path = directory / "proxy.cfg"
        self.lines: list[str] = []
        target = Target(self.path, reload, running)
        self.follower = Follower(words, {}, target, self._render, self.lines.append)

    @staticmethod
    def _render(nodes: list[Node]) -> str:
        return "".join(f"{node.http} {node.models}\n" for node in nodes)

    def look(self) -> list[str]:
        """The servers in the configuration after a look."""
        self.follower.look()
        return [line.split()[0] for line in self.path.read_text().splitlines()]


@pytest.fixture
def announced(tmp_path: Path) -> Path:
    directory = tmp_path / "announced"
    directory.mkdir()
    return directory


def announce(directory: Path, name: str, http: str, **changes: Any) -> None:
    (directory / f"{name}.json").write_text(json.dumps(announcement(http, **changes)))


def test_a_server_stays_while_it_answers_whoever_tells_of_it(
    announced: Path, tmp_path: Path
) -> None:
    following = Following(tmp_path, str(announced))
    with answering() as a:
        announce(announced, "a", a)
        announce(announced, "b", "127.0.0.1:9")
        assert {a, "127.0.0.1:9"} == set(following.look())

        # the announcer of a is dead, and b with its announcer
        announce(announced, "a", a, at_s=2.0, state="ended")
        (announced / "b.json").unlink()
        for _ in range(MISSES):
            following.look()
        assert [a] == following.look()

        (announced / "a.json").unlink()
        announced.rmdir()
        for _ in range(2 * MISSES):
            assert [a] == following.look(), "all that told of it is gone"
        assert sum(str(announced) in line for line in following.lines) == 1, "it is said once"

        later = Following(tmp_path, str(announced))
        assert [a] == later.look(), "a later run knows it"

    for _ in range(MISSES):
        later.look()
    assert [a] == later.look(), "a configuration without servers helps nobody"
    assert later.follower._membership.nodes == []


def reload_script(directory: Path, end: str = "") -> tuple[Path, Path]:
    """Make a script in place of a reload; return it, and the file in which it says so."""
    script, log = directory / "reload", directory / "log"
    script.write_text(f"#!/bin/sh\necho told >> {log}\n{end}")
    script.chmod(0o755)
    return script, log


def test_the_proxy_is_told_of_changes_alone_and_again_if_it_did_not_hear(
    announced: Path, tmp_path: Path
) -> None:
    script, log = reload_script(tmp_path, f"[ -e {tmp_path}/up ]\n")
    following = Following(tmp_path, str(announced), reload=str(script))
    announce(announced, "a", "127.0.0.1:9")

    following.look()
    following.look()
    assert log.read_text().count("told") == 2, "it has failed"
    assert sum("status 1" in line for line in following.lines) == 1
    (tmp_path / "up").touch()
    for _ in range(3):
        following.look()
    assert log.read_text().count("told") == 3

    later = Following(tmp_path, str(announced), reload=str(script))
    for _ in range(2):
        later.look()
    assert log.read_text().count("told") == 4, "the earlier run may have ended amid its change"


class Proxy:
    """Takes commands, and refuses those for which there are problems."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, str]] = []
        self.problems: list[Exception] = []
        self.has_servers = True

    def change(self, before: str, after: str) -> None:
        self.changes.append((before, after))
        if self.problems:
            raise self.problems.pop()

    def has_servers_of(self, configuration: str) -> bool:
        return self.has_servers


def test_the_proxy_is_reloaded_if_it_does_not_take_a_change(
    announced: Path, tmp_path: Path
) -> None:
    proxy = Proxy()
    script, log = reload_script(tmp_path)
    following = Following(tmp_path, str(announced), reload=str(script), running=proxy)

    def look(server: str) -> int:
        announce(announced, server, f"127.0.0.1:{server}")
        following.look()
        return log.read_text().count("told")

    assert look("1") == 1, "what it has before is not known"
    first = following.path.read_text()
    assert look("2") == 1
    assert [(first, following.path.read_text())] == proxy.changes
    proxy.problems.append(InvalidArgument("a name"))
    assert look("3") == 2
    proxy.problems.append(ConnectionRefusedError("nobody is there"))
    assert look("4") == 3
    assert [line for line in following.lines if line.startswith("it is reloaded")] == [
        "it is reloaded: a name",
        "it is reloaded: nobody is there",
    ]

    assert look("5") == 3
    proxy.has_servers = False
    assert look("5") == 4, "a process that has ended had the command"
    assert look("5") == 4, "it does not help"


def test_a_proxy_without_a_command_to_reload_it_is_left_as_it_is(
    announced: Path, tmp_path: Path
) -> None:
    proxy = Proxy()
    following = Following(tmp_path, str(announced), running=proxy)
    announce(announced, "a", "127.0.0.1:1")
    following.look()
    announce(announced, "b", "127.0.0.1:2")
    following.look()
    proxy.has_servers = False

    assert {"127.0.0.1:1", "127.0.0.1:2"} == set(following.look())
    assert len(proxy.changes) == 1


def post(port: int, document: Any, token: str) -> int:
    url = f"http://127.0.0.1:{port}/"
    headers = {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(url, json.dumps(document).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_servers_announce_themselves_with_a_token(tmp_path: Path) -> None:
    following = Following(tmp_path)
    receiver = serve_receiver(("127.0.0.1", 0), "secret", following.follower.receive)
    port = receiver.server_address[1]
    try:
        assert post(port, announcement("127.0.0.1:9"), "other") == 401
        assert post(port, "nothing", "secret") == 400
        assert post(port, {**announcement("127.0.0.1:9"), "models": 1}, "secret") == 400
        assert post(port, announcement("127.0.0.1:9", 5.0), "secret") == 204
        assert post(port, announcement("127.0.0.1:9", 4.0, "starting"), "secret") == 204
    finally:
        receiver.shutdown()
        receiver.server_close()

    assert following.follower._changed.is_set()
    assert following.look() == ["127.0.0.1:9"]
    assert following.path.read_text() == "127.0.0.1:9 ('m',)\n", "the later word counts"


def test_one_that_goes_silent_is_asked(tmp_path: Path) -> None:
    following = Following(tmp_path)
    with answering() as a:
        following.follower.receive([announcement(a), announcement("127.0.0.1:9")])
        assert len(following.look()) == 2
        words, received_s = following.follower._received["127.0.0.1:9"]
        for http, (each, _) in list(following.follower._received.items()):
            following.follower._received[http] = each, received_s - 60
        for _ in range(MISSES):
            following.look()

        assert [a] == following.look()
    assert words["addresses"]["http"] not in following.follower._received, "nothing is kept of it"
