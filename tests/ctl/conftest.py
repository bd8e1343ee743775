"""A server that a test plays, and a directory for it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ctl.fake_server import FakeServer


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="zt", dir="/tmp") as name:
        monkeypatch.setattr(tempfile, "tempdir", name)
        monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
        monkeypatch.setattr("zmqtriton.control_client.client.places", lambda: [Path(name)])
        monkeypatch.setattr("zmqtriton.control_client.client._SERVICE", Path(name) / "service")
        kernel = Path(name) / "kernel-sockets"
        monkeypatch.setattr("zmqtriton.control_client.client._KERNEL_SOCKETS", kernel)
        yield Path(name)


@pytest.fixture
def server(temporary: Path) -> Iterator[FakeServer]:
    server = FakeServer(temporary / "zmqtriton-1")
    yield server
    server.close()


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()
