"""A broker and a stub as processes, and a gateway in the test, which is their supervisor.

    async with chain(tmp_path, code) as it:
        items = [item async for item in it.gateway.stream(it.request(count=3))]

The model is called m and takes parameters, no inputs.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import zmq

from tests.supervisor.settings import settings
from zmqtriton_floor import endpoints, execution_progress, wire
from zmqtriton_floor.lifeline import Lifeline, pair
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.inference.admission import CheckedRequest, SchedulingOptions, prepare

ROOT = Path(__file__).resolve().parents[2]
STUB_MAIN = ROOT / "stub" / "zmqtriton_stub" / "__main__.py"
TOKEN = b"0123456789abcdef"
BROKER, STUB, GATEWAY = 1, 2, 3
TIMEOUT_S = 60.0


class Process:
    """One of ours and its lifeline."""

    def __init__(self, command: list[str], *words: str, descriptors: Sequence[int] = ()) -> None:
        own, theirs = pair()
        self.lifeline = Lifeline(own)
        self.received_messages: list[Any] = []
        self.process = subprocess.Popen(
            [*command, "--lifeline", str(theirs.fileno()), *words],
            pass_fds=[theirs.fileno(), *descriptors],
            cwd=ROOT,
            start_new_session=True,
        )
        theirs.close()
        for number in descriptors:
            os.close(number)

    def send_messages(self, *messages: Any) -> None:
        for message in messages:
            self.lifeline.send(message)

    def receive_message(self, kind: type[Any]) -> Any:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            for message in self.received_messages:
                if type(message) is kind:
                    self.received_messages.remove(message)
                    return message
            assert self.lifeline.wait(deadline - time.monotonic()), f"no {kind.__name__}"
            self.received_messages += [message for message, _ in self.lifeline.receive()]
            assert not self.lifeline.ended, self.received_messages

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.lifeline.close()


class ProcessChain:
    def __init__(self, directory: Path, code: str, *, is_decoupled: bool) -> None:
        self._directory = directory / "r"
        self._directory.mkdir()
        self._model = directory / "m" / "1" / "model.py"
        self._model.parent.mkdir(parents=True)
        imports = "import triton_python_backend_utils as pb_utils\n"
        self._model.write_text(imports + textwrap.dedent(code))
        policy = {"decoupled": is_decoupled}
        self.config = json.dumps({"name": "m", "model_transaction_policy": policy})
        begun = os.memfd_create("begun")
        os.truncate(begun, 1 << 16)
        command = [sys.executable, "-m", "zmqtriton.broker"]
        self.broker = Process(command, "--begun", str(begun), descriptors=(begun,))
        page = os.memfd_create("page")
        os.truncate(page, execution_progress.SIZE)
        listener = endpoints.listen(str(self._directory), STUB)
        words = ["--progress", str(page), "--listener", str(listener), "m", "m_0_0"]
        command = [sys.executable, str(STUB_MAIN)]
        self.stub = Process(command, *words, descriptors=(page, listener))
        own, theirs = pair()
        self._lifeline = Lifeline(own)
        self.gateway = Gateway(Lifeline(theirs))

    def _bootstrap(self, serial: int, role: str) -> wire.Bootstrap:
        document = settings().document(role)
        return wire.Bootstrap(serial, TOKEN, role, str(self._directory), 1, document)

    async def start(self) -> None:
        self.broker.send_messages(
            self._bootstrap(BROKER, "broker"),
            wire.ExpectPeer(STUB, TOKEN, "stub", "m_0_0", 0),
            wire.ExpectPeer(GATEWAY, TOKEN, "grpc", "grpc", 0),
            wire.Sync(0),
        )
        self.broker.receive_message(wire.Synced)
        model = self._model
        directory = str(model.parent.parent)
        self.stub.send_messages(
            self._bootstrap(STUB, "stub"),
            wire.LoadModel("m_0_0", "m", 1, "CPU", 0, directory, str(model), self.config, 0),
            wire.Initialize(self.config),
        )
        self.stub.receive_message(wire.ModelLoaded)
        self.broker.send_messages(
            wire.AddGeneration(4, "m", 1, self.config),
            wire.AttachInstance(4, STUB, "m_0_0"),
            wire.Sync(1),
        )
        self.broker.receive_message(wire.Synced)
        self._lifeline.send(self._bootstrap(GATEWAY, "grpc"))
        self._lifeline.send(wire.VersionInfo(4, "m", 1, "READY", None, 1, self.config, b""))
        await asyncio.wait_for(self.gateway.start(), TIMEOUT_S)

    def request(self, **parameters: Any) -> CheckedRequest:
        body = wire.RequestBody("", parameters, [], [])
        return prepare(
            self.gateway.catalogue, self.gateway.catalogue.find("m"), body, SchedulingOptions()
        )

    def close(self) -> None:
        self.stub.close()
        self.broker.close()
        self._lifeline.close()
        if self.gateway.serial:
            self.gateway.close()
        # The gateway's own, which would stay for the whole session.
        zmq.Context.instance().term()


@asynccontextmanager
async def chain(
    directory: Path, code: str, *, is_decoupled: bool = True
) -> AsyncIterator[ProcessChain]:
    it = ProcessChain(directory, code, is_decoupled=is_decoupled)
    try:
        await it.start()
        yield it
    finally:
        it.close()
