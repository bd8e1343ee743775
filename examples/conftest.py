"""Serves an example for its test."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

#: Seconds for an example to make its weights, or to answer; machines may be busy.
PATIENCE_S = 600


class Served(NamedTuple):
    """An example that answers on this port."""

    port: int

    def ask(self, name: str, document: Any = None, *, body: bytes = b"", kind: str = "") -> Any:
        """Post a document, or a body of some type; return the output, or those of all events."""
        data = body or json.dumps(document).encode()
        headers = {"Content-Type": kind or "application/json"}
        request = urllib.request.Request(f"http://localhost:{self.port}/{name}", data, headers)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            text = response.read().decode()
            if response.headers.get_content_type() == "text/event-stream":
                events = (event.removeprefix("data: ") for event in text.split("\n\n") if event)
                return [json.loads(event)["output"] for event in events]
            return json.loads(text)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--pictures", action="store_true", help="write page.webp of each example")


@pytest.fixture
def here(request: pytest.FixtureRequest) -> Path:
    """Return the directory of the example."""
    return request.path.parent


@pytest.fixture
def make(here: Path) -> Callable[[str], None]:
    """Return a function that runs a script of the example, unless what it makes is there."""

    def run(script: str, made: str) -> None:
        if not (here / made).exists():
            subprocess.run([sys.executable, script], cwd=here, check=True, timeout=PATIENCE_S)

    return run


@pytest.fixture
def serve(here: Path, tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Return a function that serves a file or a repository of the example until the test ends."""
    with ExitStack() as servers:

        def start(name: str, *options: str) -> Served:
            ports = free_ports(3)
            what = ["run", name] if name.endswith(".py") else [f"--model-repository={name}"]
            for kind, port in zip(("http", "grpc", "metrics"), ports, strict=True):
                what.append(f"--{kind}-port={port}")
            log = tmp_path / f"{ports[0]}.log"
            command = [sys.executable, "-m", "zmqtriton", *what, *options]
            with log.open("wb") as lines:
                server = servers.enter_context(
                    subprocess.Popen(command, cwd=here, stdout=lines, stderr=lines)
                )
            servers.callback(server.terminate)
            while not is_ready(ports[0]):
                assert server.poll() is None, log.read_text()
                time.sleep(0.1)
            if (here / "requests").exists():
                replay(here / "requests", ports[0])
            return Served(ports[0])

        yield start


def replay(requests: Path, port: int) -> None:
    """Send the captured requests to the server; responses can differ, but none is an error."""
    tool = Path(sys.executable).parent / "zmqtriton-ctl"
    command = [tool, "--server", str(port), "replay", requests, "--json"]
    printed = subprocess.run(command, stdout=subprocess.PIPE, timeout=PATIENCE_S, check=False)
    results = json.loads(printed.stdout)["results"]
    assert results
    assert "failed" not in results, results


def free_ports(count: int) -> list[int]:
    with ExitStack() as sockets:
        bound = [sockets.enter_context(socket.socket()) for _ in range(count)]
        for each in bound:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in bound]


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://localhost:{port}/v2/health/ready", timeout=60):
            return True
    except (urllib.error.URLError, ConnectionError):
        return False
