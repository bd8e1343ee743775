"""Keeps a proxy's configuration up to date with the servers, as long as this runs.

The proxy works without this program, and without the sources of servers.
"""

from __future__ import annotations

import hmac
import json
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from zmqtriton.sdk.wire import InvalidArgument
from zmqtriton_extras.fleet.servers import liveness, sources
from zmqtriton_extras.fleet.servers.membership import Membership
from zmqtriton_extras.fleet.servers.nodes import Node, merge, node_of, parse_announcements

_LOOK_EVERY_S = 1.0
_ANSWER_WITHIN_S = 3.0
_RELOAD_WITHIN_S = 60.0
_MAX_BYTES = 16 << 20
#: File next to the configuration, with its servers, for the next run.
_MEMORY_SUFFIX = ".servers"


class Running(Protocol):
    """A running proxy that accepts commands."""

    def change(self, before: str, after: str) -> None:
        """Change from one configuration to another. Raises InvalidArgument and OSError."""

    def has_servers_of(self, configuration: str) -> bool:
        """Return whether the running proxy has all of these servers. Raises OSError."""


class Target(NamedTuple):
    """The file of a proxy's configuration, and the ways to apply a change."""

    path: Path
    #: The command that has the proxy read it again.
    reload: str = ""
    running: Running | None = None


class Follower:
    def __init__(
        self,
        words: Sequence[str],
        headers: Mapping[str, str],
        target: Target,
        render: Callable[[list[Node]], str],
        tell: Callable[[str], None],
    ) -> None:
        self._words, self._headers = words, headers
        self._target, self._render, self._tell = target, render, tell
        self._memory = target.path.with_name(target.path.name + _MEMORY_SUFFIX)
        self._membership = Membership(self._remembered())
        #: Last announcement of each server and its time, by address.
        self._received: dict[str, tuple[Mapping[str, Any], float]] = {}
        #: Last configuration. It is empty at first, so that the proxy is reloaded at least once: an
        #: earlier run may have ended between the file and the reload.
        self._text = ""
        #: Configuration with which the proxy was reloaded last.
        self._loaded = ""
        self._problems: dict[str, str] = {}
        self._threads = ThreadPoolExecutor(32, "asking")
        self._changed = threading.Event()

    def run(self) -> None:
        """Follow the servers for ever; may be killed at any time."""
        while True:
            try:
                self.look()
                self._report("files", "")
            except OSError as error:
                # such as a full disk; the proxy goes on with what it has
                self._report("files", str(error))
            self._changed.wait(_LOOK_EVERY_S)
            self._changed.clear()

    def receive(self, announcements: Iterable[Mapping[str, Any]]) -> None:
        """Record announcements of servers, the newest of each. Raises InvalidArgument."""
        for announcement in announcements:
            node = node_of(announcement)
            before = self._received.get(node.http) if node else None
            newest = node_of(before[0]) if before else None
            if node is not None and (newest is None or node.order >= newest.order):
                self._received[node.http] = announcement, time.monotonic()
        self._changed.set()

    def look(self) -> None:
        """Look once at all sources, and change the configuration if servers have come or gone."""
        self._membership.hear(merge([*self._find(), *self._heard()]))
        doubted = self._membership.doubted
        answers = self._threads.map(lambda n: liveness.answers(n, _ANSWER_WITHIN_S), doubted)
        for node, does_answer in zip(doubted, list(answers), strict=True):
            self._membership.judge(node.http, answers=does_answer)
        nodes = self._membership.nodes
        if not nodes:
            return  # a configuration without servers helps nobody
        try:
            text = self._render(nodes)
        except InvalidArgument as error:
            self._report("configuration", error.text)
            return
        self._report("configuration", "")
        if text != self._text:
            self._write(text, nodes)
        elif text != self._loaded and not self._has_servers():
            self._reload()

    def _find(self) -> list[Node]:
        nodes = []
        for word in self._words:
            try:
                nodes += sources.find_nodes([word], self._headers)
                self._report(word, "")
            except InvalidArgument as error:
                # its servers are asked
                self._report(word, error.text)
        return nodes

    def _heard(self) -> list[Node]:
        """Return the servers that have announced themselves here, including ended ones."""
        now_s = time.monotonic()
        members = {node.http for node in self._membership.nodes}
        nodes = []
        for http, (announcement, at_s) in list(self._received.items()):
            node = node_of(announcement, now_s - at_s)
            if node is not None and node.is_gone and http not in members:
                del self._received[http]
            elif node is not None:
                nodes.append(node)
        return nodes

    def _write(self, text: str, nodes: Sequence[Node]) -> None:
        _replace(self._target.path, text)
        _replace(self._memory, json.dumps([_document(node) for node in nodes]))
        before, self._text = self._text, text
        self._tell(f"{self._target.path}: {len(nodes)} servers")
        if not (before and self._is_changed(before, text)):
            self._reload()

    def _is_changed(self, before: str, after: str) -> bool:
        """Change the running proxy; False if it has to reload its configuration."""
        if self._target.running is None:
            return False
        try:
            self._target.running.change(before, after)
        except (InvalidArgument, OSError) as error:
            self._tell(f"it is reloaded: {error}")
            return False
        return True

    def _has_servers(self) -> bool:
        """Return False if servers are missing, since a reload has dropped a command."""
        with suppress(OSError):  # it does not run, and reads its configuration when it does
            return self._target.running is None or self._target.running.has_servers_of(self._text)
        return True

    def _reload(self) -> None:
        self._loaded = self._text
        if not self._target.reload:
            return
        try:
            done = subprocess.run(
                shlex.split(self._target.reload),
                stdin=subprocess.DEVNULL,
                timeout=_RELOAD_WITHIN_S,
                check=False,
            )
            problem = f"status {done.returncode}" if done.returncode else ""
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = str(error)
        if problem:
            self._text = ""  # it is tried again
        self._report(self._target.reload, problem)

    def _remembered(self) -> list[Node]:
        with suppress(FileNotFoundError, ValueError, TypeError):
            return [_node(document) for document in json.loads(self._memory.read_text("utf-8"))]
        return []

    def _report(self, subject: str, problem: str) -> None:
        """Log a problem once, and its end."""
        if self._problems.get(subject, "") != problem:
            self._problems[subject] = problem
            self._tell(f"{subject}: {problem or 'all right again'}")


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(text, "utf-8")
    draft.replace(path)


def _document(node: Node) -> dict[str, Any]:
    fields = node._asdict()
    return {key: sorted(v) if isinstance(v, frozenset) else v for key, v in fields.items()}


def _node(document: Mapping[str, Any]) -> Node:
    fields = dict(document)
    fields["tls"] = frozenset(fields["tls"])
    for key in ("models", "order"):
        fields[key] = None if fields[key] is None else tuple(fields[key])
    fields["ready"] = None if fields["ready"] is None else frozenset(fields["ready"])
    return Node(**fields)


def serve_receiver(
    address: tuple[str, int], token: str, receive: Callable[[list[dict[str, Any]]], None]
) -> ThreadingHTTPServer:
    """Start a server that receives announcements by POST, with a token if one is given."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self._answer(self._take())

        def _take(self) -> int:
            header = self.headers.get("Authorization", "")
            if token and not hmac.compare_digest(header.encode(), f"Bearer {token}".encode()):
                return 401
            try:
                size = int(self.headers.get("Content-Length", ""))
                if not 0 <= size <= _MAX_BYTES:
                    return 413
                receive(parse_announcements(self.rfile.read(size).decode("utf-8")))
            except (ValueError, InvalidArgument):
                return 400
            return 204

        def _answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Log nothing: each server announces itself every few seconds."""

    Handler.timeout = _ANSWER_WITHIN_S
    server = ThreadingHTTPServer(address, Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True, name="receiver").start()
    return server
