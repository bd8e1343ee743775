"""A stub's process with the test in the place of its supervisor and of the broker."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.routers import FakeRouter
from zmqtriton_floor import endpoints, execution_progress, wire
from zmqtriton_floor.lifeline import Lifeline, pair
from zmqtriton_floor.settings.codec import encode
from zmqtriton_floor.settings.stub import StubSettings

MAIN = Path(__file__).resolve().parents[2] / "stub" / "zmqtriton_stub" / "__main__.py"
_SERIAL = 7
_TOKEN = b"0123456789abcdef"
#: A machine under load starts an interpreter in seconds.
_TIMEOUT_S = 60.0


class RunningStub:
    """Everything is said and awaited one by one, so nothing has to be guessed."""

    def __init__(self, directory: Path, python: str = sys.executable, epoch: int = 1) -> None:
        end, page, listener = self._take_places(directory, epoch)
        descriptors = ["--lifeline", str(end.fileno()), "--progress", str(page)]
        descriptors += ["--listener", str(listener)]
        self.process = subprocess.Popen(
            [python, str(MAIN), *descriptors, "m", "m_0_0"],
            pass_fds=[end.fileno(), page, listener],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        )
        end.close()
        os.close(page)
        os.close(listener)

    def _take_places(self, directory: Path, epoch: int) -> tuple[socket.socket, int, int]:
        """Be supervisor and broker; return the stub's lifeline, progress page and listener."""
        self.directory = directory
        self.received_messages: list[Any] = []
        #: The bodies of the last hello.
        self.hello_bodies: list[bytes] = []
        self._epoch = epoch
        self._ids = itertools.count(1)
        self._identity = b""
        self._router = self._open(epoch)
        own_end, end = pair()
        self.lifeline = Lifeline(own_end)
        page = os.memfd_create("page")
        os.truncate(page, execution_progress.SIZE)
        self.progress = execution_progress.ProgressView(page)
        return end, page, endpoints.listen(str(directory), _SERIAL)

    def __enter__(self) -> RunningStub:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
        self.lifeline.close()
        self.progress.close()
        self._router.close()

    def _open(self, epoch: int) -> FakeRouter:
        return FakeRouter(endpoints.stubs_address(str(self.directory), epoch))

    # ------------------------------------------------------------ supervisor

    def send_message(self, message: Any) -> None:
        self.lifeline.send(message)

    def receive_message(self, kind: type[Any]) -> Any:
        """The next message of this kind on the lifeline; others are kept in `kept_messages`."""
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            for message in self.received_messages:
                if type(message) is kind:
                    self.received_messages.remove(message)
                    return message
            assert self.lifeline.wait(deadline - time.monotonic()), f"no {kind.__name__}"
            self.received_messages += [message for message, _ in self.lifeline.receive()]
            if self.lifeline.ended and not any(type(m) is kind for m in self.received_messages):
                raise AssertionError(
                    f"the stub ended without {kind.__name__}: {self.received_messages}"
                )

    def take_bootstrap(self) -> None:
        self.send_message(
            wire.Bootstrap(
                _SERIAL, _TOKEN, "stub", str(self.directory), self._epoch, encode(StubSettings())
            )
        )

    def load(self, model: Path, config: dict[str, Any], auto_complete: int = 0) -> dict[str, Any]:
        """Up to Completed; the configuration that it says."""
        self.take_bootstrap()
        path = str(model / "1" / "model.py")
        text = json.dumps(config)
        self.send_message(
            wire.LoadModel("m_0_0", "m", 1, "CPU", 0, str(model), path, text, auto_complete)
        )
        return json.loads(self.receive_message(wire.ConfigCompleted).config)

    def start(self, model: Path, config: dict[str, Any] | None = None) -> None:
        """Up to Loaded."""
        self.initialize(self.load(model, config or {"name": "m"}))

    def initialize(self, completed: dict[str, Any]) -> None:
        """Up to Loaded."""
        self.send_message(wire.Initialize(json.dumps(completed)))
        self.welcome_stub()
        self.receive_message(wire.ModelLoaded)

    def finish(self) -> int:
        """The exit status."""
        self.send_message(wire.Finalize())
        return self.process.wait(_TIMEOUT_S)

    # ---------------------------------------------------------------- broker

    def move_broker(self, epoch: int) -> None:
        """Closes this broker's socket, opens the next one's, and tells of it."""
        self._router.close()
        self._router = self._open(epoch)
        self._epoch = epoch
        self.send_message(wire.NewEpoch(epoch))

    def replace_broker(self) -> None:
        """Ends this broker when a stub has come, before its welcome; another one is there."""
        assert self._router.poll(int(_TIMEOUT_S * 1000))
        self._router.close()
        self._router = self._open(self._epoch)

    def welcome_stub(self) -> wire.Hello:
        """Awaits a Hello and answers it."""
        header, *self.hello_bodies = self._receive()
        hello: wire.Hello = wire.decode(header)
        assert (hello.serial, hello.token, hello.epoch) == (_SERIAL, _TOKEN, self._epoch)
        assert len(self.hello_bodies) == len(hello.unconfirmed)
        [held] = [wire.decode(frame) for frame in self._receive()]
        assert type(held) is wire.HeldBlocks
        self._send([wire.encode(wire.Welcome(self._epoch))])
        return hello

    def send_batches(self, *batches: list[wire.RequestBody], batch: int = 1) -> list[int]:
        """Sends one Execute; the ids of its requests."""
        works, bodies = [], []
        for number, requests in enumerate(batches, batch):
            for request in requests:
                works.append(wire.BatchedRequest(number, 3, next(self._ids), 0, 0, 0, 0))
                bodies.append(wire.encode_body(request))
        self._send([wire.encode(wire.Execute(works)), *bodies])
        return [work.id for work in works]

    def cancel_execution(self, own_id: int) -> None:
        self._send([wire.encode(wire.CancelExecution([wire.RequestKey(3, own_id)]))])

    def receive_results(self) -> tuple[wire.Results, list[bytes]]:
        """The next Results and its bodies."""
        header, *bodies = self._receive()
        results: wire.Results = wire.decode(header)
        assert type(results) is wire.Results
        return results, bodies

    def infer(self, *tensors: wire.Tensor) -> wire.ResponseBody | wire.Outcome:
        """Return what one request with these inputs gets: a body, or an outcome with an error."""
        self.send_batches([wire.RequestBody("", {}, [], list(tensors))])
        results, bodies = self.receive_results()
        [outcome] = results.outcomes
        return outcome if outcome.code else wire.decode_response(bodies[0])

    def answer_to(self, *tensors: wire.Tensor) -> wire.ResponseBody:
        """Return what one request with these inputs gets, which is no error."""
        response = self.infer(*tensors)
        assert isinstance(response, wire.ResponseBody)
        return response

    def _send(self, frames: list[bytes]) -> None:
        self._router.send([self._identity, *frames])

    def _receive(self) -> list[bytes]:
        assert self._router.poll(int(_TIMEOUT_S * 1000)), "nothing from the stub"
        self._identity, *frames = self._router.receive()
        return frames
