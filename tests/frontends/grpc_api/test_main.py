"""The process itself: started, opened and stopped over its lifeline, with an echoing broker."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.frontends.fake_gateway import version_info
from tests.frontends.grpc_api.fake_gateway import SETTINGS
from tests.supervisor.settings import frontend_settings
from tests.support.routers import FakeRouter
from zmqtriton import addons
from zmqtriton_floor import endpoints, wire
from zmqtriton_floor.lifeline import Lifeline, pair
from zmqtriton_floor.settings.codec import encode

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[3]
SMOKE = Path(__file__).with_name("smoke.py")
TOKEN = bytes(16)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'stub'}:{ROOT / 'frontends'}"}


def echo(body: bytes) -> bytes:
    request = wire.decode_request(body)
    outputs = [tensor._replace(name="OUTPUT0") for tensor in request.inputs]
    return wire.encode_body(wire.ResponseBody({}, outputs))


@contextmanager
def echoing_broker(directory: str) -> Iterator[None]:
    """Welcomes everybody and answers every inference with its own input."""
    router = FakeRouter(endpoints.requests_address(directory, 1))
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            if not router.poll(20):
                continue
            peer, header, *bodies = router.receive()
            message = wire.decode(header)
            if isinstance(message, wire.Hello):
                assert message == wire.Hello(5, TOKEN, 1)
                router.send([peer, wire.encode(wire.Welcome(1))])
            elif isinstance(message, wire.Infer):
                replies = [wire.Reply(row.id, 0, "", wire.FINAL) for row in message.requests]
                frames = [wire.encode(wire.Replies(replies)), *map(echo, bodies)]
                router.send([peer, *frames])

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        router.close()


class Process:
    """A gRPC frontend and this end of its lifeline."""

    def __init__(self, python: Path, directory: Path, settings: dict[str, Any]) -> None:
        ours, theirs = pair()
        self.lifeline = Lifeline(ours)
        self._received: list[Any] = []
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            self.port = bound.getsockname()[1]
            settings = {**SETTINGS, "grpc_port": self.port, **settings}
            passed = theirs.fileno(), bound.fileno()
            command = [python, "-m", "zmqtriton_frontends.grpc_api"]
            command += ["--lifeline", passed[0], "--socket", passed[1]]
            self.process = subprocess.Popen(
                [str(part) for part in command],
                pass_fds=passed,
                env=environment(),
                stderr=subprocess.PIPE,
                text=True,
            )
        theirs.close()
        document = encode(frontend_settings("grpc", **settings))
        self.lifeline.send(wire.Bootstrap(5, TOKEN, "grpc", str(directory), 1, document))
        self.lifeline.send(version_info("m"))

    def open(self) -> str:
        """The address that it says it listens on."""
        self.lifeline.send(wire.Listen())
        said = self.receive()
        assert said.service == "GRPCInferenceService"
        address: str = said.address
        return address

    def receive(self) -> Any:
        """The next message, but for reports of its loop."""
        while not self._received:
            assert self.lifeline.wait(20)
            messages = [message for message, _ in self.lifeline.receive()]
            self._received += [each for each in messages if not isinstance(each, wire.Call)]
        return self._received.pop(0)

    def stop(self) -> int:
        self.lifeline.send(wire.Shutdown(5000))
        return self.process.wait(20)

    def written(self) -> str:
        """Everything it wrote; it must have ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def end(self) -> None:
        self.lifeline.close()
        self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()


@contextmanager
def born(
    directory: Path, python: Path = Path(sys.executable), **settings: Any
) -> Iterator[Process]:
    with echoing_broker(str(directory)):
        process = Process(python, directory, settings)
        try:
            yield process
        finally:
            process.end()


def smoke(address: str, python: Path = Path(sys.executable)) -> str:
    """Return what the smoke test finds wrong."""
    done = subprocess.run(
        [str(python), str(SMOKE), address, "m"],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    return done.stderr if done.returncode else ""


def test_it_serves_between_open_and_stop(tmp_path: Path) -> None:
    with born(tmp_path) as frontend:
        assert smoke(frontend.open()) == ""

        assert (0, "") == (frontend.stop(), frontend.written())


def test_it_runs_beside_protobuf_7(tmp_path: Path, python_with_protobuf7: Path) -> None:
    with born(tmp_path, python_with_protobuf7) as frontend:
        assert smoke(frontend.open(), python_with_protobuf7) == ""

        assert frontend.stop() == 0


def test_it_shows_what_it_is(tmp_path: Path) -> None:
    with born(tmp_path) as frontend:
        frontend.open()

        assert Path(f"/proc/{frontend.process.pid}/comm").read_text() == "zmqtriton-grpc\n"


def test_it_does_not_listen_before_it_is_opened(tmp_path: Path) -> None:
    with born(tmp_path) as frontend:
        port = frontend.port
        frontend.lifeline.send(wire.Sync(1))
        assert frontend.receive() == wire.Synced(1)

        with socket.socket() as client:
            assert client.connect_ex(("127.0.0.1", port)) != 0

        assert frontend.open() == f"127.0.0.1:{port}"
        with socket.socket() as client:
            assert client.connect_ex(("127.0.0.1", port)) == 0


def test_a_stop_before_it_was_opened_ends_it_too(tmp_path: Path) -> None:
    with born(tmp_path) as frontend:
        assert frontend.stop() == 0


def test_the_end_of_the_lifeline_ends_it(tmp_path: Path) -> None:
    with born(tmp_path) as frontend:
        frontend.open()

        frontend.lifeline.close()

        assert frontend.process.wait(20) == 1


@pytest.mark.addons
def test_an_address_that_is_not_ours_is_an_error_that_says_so(tmp_path: Path) -> None:
    """Only grpcio binds by itself."""
    own: dict[str, Any] = {"grpc_transport": "grpcio", "parts": {"grpcio": addons.part("grpcio")}}
    with born(tmp_path, grpc_address="192.0.2.1", grpc_port=9, **own) as frontend:
        frontend.lifeline.send(wire.Listen())

        assert frontend.process.wait(20) == 1
        assert "192.0.2.1:9" in frontend.written()
