"""The process itself: started, opened and stopped over its lifeline, with an echoing broker."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.frontends.fake_server import ROOT, FakeServer
from tests.support.waiting import eventually
from zmqtriton import addons
from zmqtriton.options import Options
from zmqtriton_floor import wire

pytestmark = pytest.mark.system

SMOKE = Path(__file__).with_name("smoke.py")


@contextmanager
def born(
    directory: Path, python: Path = Path(sys.executable), **settings: Any
) -> Iterator[FakeServer]:
    """A frontend that knows its models and does not listen yet."""
    own = {"grpc_address": "127.0.0.1", **settings}
    with (
        open(directory / "stderr", "w") as log,
        FakeServer(
            directory, "zmqtriton_frontends.grpc_api", python=python, stderr=log, **own
        ) as frontend,
    ):
        frontend.introduce("grpc")
        yield frontend


def opened(frontend: FakeServer) -> str:
    """Let it listen; return the address that it says."""
    frontend.send(wire.Listen())
    eventually(lambda: frontend.opened, 60, "Opened")
    [said] = [each for message in frontend.opened for each in message.services]
    assert said.service == "GRPCInferenceService"
    return said.address


def stopped(frontend: FakeServer) -> int:
    frontend.send_stop(5000)
    return frontend.process.wait(20)


def smoke(address: str, python: Path = Path(sys.executable)) -> str:
    """Return what the smoke test finds wrong."""
    done = subprocess.run(
        [str(python), str(SMOKE), address, "identity"],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'stub'}:{ROOT / 'frontends'}"},
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    return done.stderr if done.returncode else ""


def test_it_serves_between_open_and_stop_and_shows_what_it_is(tmp_path: Path) -> None:
    with born(tmp_path) as frontend:
        assert smoke(opened(frontend)) == ""
        assert Path(f"/proc/{frontend.process.pid}/comm").read_text() == "zmqtriton-grpc\n"

        assert (0, "") == (stopped(frontend), (tmp_path / "stderr").read_text())


def test_it_runs_beside_protobuf_7(tmp_path: Path, python_with_protobuf7: Path) -> None:
    with born(tmp_path, python_with_protobuf7) as frontend:
        assert smoke(opened(frontend), python_with_protobuf7) == ""

        assert stopped(frontend) == 0


def test_it_does_not_listen_before_it_is_opened(tmp_path: Path) -> None:
    with born(tmp_path) as frontend:
        port = frontend.port
        frontend.send(wire.Sync(1))
        eventually(lambda: frontend.synced == [wire.Synced(1)], 60, "Synced")

        with socket.socket() as client:
            assert client.connect_ex(("127.0.0.1", port)) != 0

        assert opened(frontend) == f"127.0.0.1:{port}"
        with socket.socket() as client:
            assert client.connect_ex(("127.0.0.1", port)) == 0


def test_a_stop_before_it_was_opened_ends_it_too(tmp_path: Path) -> None:
    with born(tmp_path) as frontend:
        assert stopped(frontend) == 0


def test_the_end_of_the_lifeline_ends_it(tmp_path: Path) -> None:
    with born(tmp_path) as frontend:
        opened(frontend)

        frontend.close_lifeline()

        assert frontend.process.wait(20) == 1


@pytest.mark.addons
def test_an_address_that_is_not_ours_is_an_error_that_says_so(tmp_path: Path) -> None:
    """Only grpcio binds by itself."""
    own: dict[str, Any] = {
        "grpc_transport": "grpcio",
        "offers": addons.offers_in_use(Options().value),
    }
    with born(tmp_path, grpc_address="192.0.2.1", grpc_port=9, **own) as frontend:
        frontend.send(wire.Listen())

        assert frontend.process.wait(20) == 1
        assert "192.0.2.1:9" in (tmp_path / "stderr").read_text()
