"""HAProxy before the servers: it is started with the first of them, and told of each change."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from zmqtriton.supervisor import PROVEN_AFTER_S, Backoff
from zmqtriton_addons.fleet.proxies import haproxy
from zmqtriton_addons.fleet.proxies.layout import Layout, check_header, check_listener, is_plain
from zmqtriton_addons.fleet.servers.nodes import Node
from zmqtriton_floor.errors import NotFound
from zmqtriton_floor.prctl import die_with_parent

#: Debian has it where only root looks.
_PLACES = "/usr/sbin:/usr/local/sbin"
_STOP_WITHIN_S = 30.0


class Listeners(NamedTuple):
    """The addresses that clients come to, as HOST:PORT; "" for none."""

    http: str = "0.0.0.0:8000"
    grpc: str = "0.0.0.0:8001"
    statistics: str = "127.0.0.1:8404"


def find_program() -> str:
    """Return where HAProxy is. Raises NotFound."""
    program = shutil.which("haproxy") or shutil.which("haproxy", path=_PLACES)
    if program is None:
        raise NotFound(
            "HAProxy is not installed here: install it (apt install haproxy, dnf install haproxy), "
            "or leave the proxy to others by --no-proxy"
        )
    return program


class HaProxy:
    def __init__(self, configuration: Path, listeners: Listeners, sequence_header: str) -> None:
        """Raises InvalidArgument for an invalid address or name of a header, and NotFound."""
        for address in listeners:
            check_listener(address)
        check_header(sequence_header)
        self._configuration = configuration
        self._listeners = listeners
        self._sequence_header = sequence_header
        self._program = find_program()
        self._text = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._backoff = Backoff()
        self._started_s = self._may_start_s = 0.0

    def update(self, nodes: Sequence[Node], models: Collection[str]) -> None:
        """Route requests to these servers, if there are any: to nobody helps nobody.

        Those for one of the models get 503 while no server has it, and may be sent again.
        """
        text = self._render(nodes, models) if nodes else self._text
        has_ended = self._has_ended()
        if text == self._text and not has_ended:
            return
        draft = self._configuration.with_suffix(".new")
        draft.write_text(text, "utf-8")
        draft.replace(self._configuration)
        self._text = text
        if self._process is None or has_ended:
            if time.monotonic() >= self._may_start_s:
                self._start()
        else:
            # its master starts a worker with the new file, and the old one ends what it has begun
            self._process.send_signal(signal.SIGUSR2)

    def stop(self) -> None:
        """End it when all begun requests are answered."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGUSR1)
        try:
            self._process.wait(_STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _has_ended(self) -> bool:
        """Return whether it is to be started again, with pauses if it ends each time."""
        if self._process is None or self._process.poll() is None:
            return False
        if self._started_s:
            now_s = time.monotonic()
            had_worked = now_s - self._started_s > PROVEN_AFTER_S
            self._backoff.record_death(now_s, had_worked=had_worked)
            self._may_start_s, self._started_s = now_s + self._backoff.pause_s, 0.0
        return True

    def _start(self) -> None:
        self._started_s = time.monotonic()
        self._process = subprocess.Popen(
            [self._program, "-W", "-q", "-f", str(self._configuration)],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )

    def _render(self, nodes: Sequence[Node], models: Collection[str]) -> str:
        ordered = sorted(nodes, key=lambda node: node.http)
        layout = Layout(
            nodes=tuple(ordered),
            models=tuple(sorted(filter(is_plain, models))),
            **self._listeners._asdict(),
            sequence_header=self._sequence_header,
        )
        return haproxy.render(layout)
