"""A server that a test plays, and a directory for it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.standard.ctl.fake_server import STATUS, FakeServer


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="zt", dir="/tmp") as name:
        monkeypatch.setattr(tempfile, "tempdir", name)
        monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
        monkeypatch.setattr("zmqtriton.control_client.places", lambda: [Path(name)])
        monkeypatch.setattr("zmqtriton.control_client._SERVICE", Path(name) / "service")
        kernel = Path(name) / "kernel-sockets"
        monkeypatch.setattr("zmqtriton.control_client._KERNEL_SOCKETS", kernel)
        yield Path(name)


@pytest.fixture
def server(temporary: Path) -> Iterator[FakeServer]:
    server = FakeServer(temporary / "zmqtriton-1")
    yield server
    server.close()


@pytest.fixture
def several(temporary: Path) -> Iterator[list[FakeServer]]:
    """The newest first; their ids are their names."""
    servers = [FakeServer(temporary / f"zmqtriton-{name}") for name in ("new", "old")]
    for number, (name, server) in enumerate(zip(("new", "old"), servers, strict=True)):
        supervisor = {**STATUS["processes"][0], "pid": 70 + number}
        identity = {**STATUS["server"], "id": name, "addresses": {"http": f"0.0.0.0:800{number}"}}
        server.answers["status"] = {**STATUS, "server": identity, "processes": [supervisor]}
        server.answers["index"] = [{"name": "m"}]
    os.utime(temporary / "zmqtriton-old" / "ctl", (100, 100))
    # Its directory changes with each of its stubs.
    os.utime(temporary / "zmqtriton-new", (50, 50))
    (temporary / "zmqtriton-dead").mkdir()
    yield servers
    for server in servers:
        server.close()


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()
