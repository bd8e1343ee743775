"""Clients that people use: tritonclient, curl, h2load, Node.

Each repeats what it repeats by itself. Programs are left out where they are missing.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.http
from geventhttpclient.response import HTTPConnectionClosed
from tritonclient.utils import InferenceServerException

from tests.faults.replacements.clients import (
    PATIENCE_S,
    Client,
    Crowd,
    FailedError,
    add_sub,
    check,
    next_id,
)
from tests.faults.requests import INFER
from tests.support.clients import infer_inputs
from tests.support.server import tensor

_ROOT = Path(__file__).parents[3]
_NODE_MODULES = _ROOT / ".venv-clients/node/node_modules"
_PATH = "/v2/models/add_sub/infer"
_INPUTS = [tensor(name, "FP32", [1] * 16, [1, 16]) for name in ("INPUT0", "INPUT1")]
_BODY = json.dumps({"inputs": _INPUTS})


class TritonClient(Client):
    """One of tritonclient's, which blocks, and lives on a thread of its own."""

    library: Any

    def __init__(self, http_port: int, grpc_port: int) -> None:
        super().__init__(http_port, grpc_port)
        self._thread = ThreadPoolExecutor(1)
        self._client: Any = None

    async def ask(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._ask)

    def _ask(self) -> None:
        own = next_id() % 1000
        array = np.full((1, 16), own, np.float32)
        inputs = infer_inputs(self.library, INPUT0=array, INPUT1=array)
        try:
            self._client = self._client or self.make()
            values = self._client.infer("add_sub", inputs).as_numpy("OUTPUT0")
        except (InferenceServerException, HTTPConnectionClosed) as error:
            raise FailedError(str(error)) from None
        check([2.0 * own] * 16 == values.ravel().tolist(), "another's answer")

    def make(self) -> Any:
        """Return a new client of the library."""
        raise NotImplementedError

    async def close(self) -> None:
        if self._client is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._client.close)
            self._client = None


class TritonHttpClient(TritonClient):
    label = "tritonclient.http"
    library = tritonclient.http

    def make(self) -> Any:
        address = f"127.0.0.1:{self.http_port}"
        return tritonclient.http.InferenceServerClient(address, network_timeout=PATIENCE_S)


class TritonGrpcClient(TritonClient):
    label = "tritonclient.grpc"
    library = tritonclient.grpc

    def make(self) -> Any:
        options = [
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.min_reconnect_backoff_ms", int(PATIENCE_S * 1000)),
        ]
        address = f"127.0.0.1:{self.grpc_port}"
        return tritonclient.grpc.InferenceServerClient(address, channel_args=options)


class CurlClient(Client):
    """Each curl asks ten times over one connection."""

    label = "curl, ten requests over a connection"
    pause_s = 0.5

    async def ask(self) -> None:
        url = f"http://127.0.0.1:{self.http_port}{_PATH}"
        words = ["-sS", "-w", "%{http_code} ", "--rate", "10/s"]
        words += ["--data-binary", _BODY, *["-o", "/dev/null", url] * 10]
        process = await asyncio.create_subprocess_exec(
            "curl",
            *words,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said, complaint = await process.communicate()
        check(["200"] * 10 == said.decode().split(), f"{said!r} {complaint.decode()}")


class H2loadClient(Client):
    """Each h2load calls ten times over one connection, and repeats nothing.

    What it has not begun when it is told to go it gives up, and counts as failed. Here counts what
    it has begun, and that it was connected. If it hears that amid a call, it counts a next one as
    begun and done that it never sends; one that is cut is begun and not done.
    """

    label = "h2load, ten gRPC calls over a connection"
    pause_s = 0.5
    _NUMBERS = re.compile(r"(\d+) started, (\d+) done, (\d+) succ.*\((\d+)\) data\n", re.DOTALL)

    #: Of each right answer, as the first has it: an error comes with status 200, and no data.
    _answer_bytes = 0

    async def ask(self) -> None:
        message = add_sub(1).SerializeToString()
        words = ["-v", "-n", "10", "-c", "1", "-m", "1", "--rps", "20"]
        words += ["-H", "content-type: application/grpc", "-H", "te: trailers"]
        with NamedTemporaryFile() as body:
            body.write(struct.pack(">?I", False, len(message)) + message)
            body.flush()
            process = await asyncio.create_subprocess_exec(
                "h2load",
                *words,
                "-d",
                body.name,
                f"http://127.0.0.1:{self.grpc_port}{INFER}",
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            text = (await process.communicate())[0].decode()
        numbers = self._NUMBERS.search(text)
        check(numbers is not None and "Application protocol: h2c" in text, text[-500:])
        assert numbers is not None
        started, done, succeeded, size = map(int, numbers.groups())
        self._answer_bytes = self._answer_bytes or size // max(1, succeeded)
        check(started == done <= succeeded + 1, f"{succeeded} of {started} calls: {text}")
        check(size == succeeded * self._answer_bytes, f"{size} bytes in {succeeded}: {text}")


class NodeClient(Client):
    """A program of Node that asks until its input ends, with a line for each request."""

    protocol = ""

    async def run(self) -> None:
        message = base64.b64encode(add_sub(1).SerializeToString()).decode()
        arguments = {
            "http": (str(self.http_port), _PATH, _BODY),
            "grpc": (str(self.grpc_port), INFER, message),
        }
        process = await asyncio.create_subprocess_exec(
            "node",
            str(Path(__file__).with_name("client.js")),
            self.protocol,
            *arguments[self.protocol],
            env={**os.environ, "NODE_PATH": str(_NODE_MODULES)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        while line := await process.stdout.readline():
            document = json.loads(line)
            if document["error"]:
                self.failures.append((document["begun_s"], document["error"]))
            else:
                self.right += 1
            self.longest_s = max(self.longest_s, document["seconds"])
            if self.is_over and not process.stdin.is_closing():
                process.stdin.close()
        if await process.wait():
            self.failures.append((0.0, f"it has ended with status {process.returncode}"))


class NodeHttpClient(NodeClient):
    label = "Node, http with kept connections"
    protocol = "http"


class NodeGrpcClient(NodeClient):
    label = "Node, @grpc/grpc-js"
    protocol = "grpc"


def missing_programs() -> list[str]:
    """Return the names of clients that cannot be had here."""
    names = [name for name in ("curl", "h2load", "node") if shutil.which(name) is None]
    has_library = "node" not in names and (_NODE_MODULES / "@grpc").is_dir()
    return names if has_library else [*names, "@grpc/grpc-js"]


def library_crowd() -> Crowd:
    """Return one client of each kind that can be had here."""
    kinds: dict[type[Client], str] = {
        TritonHttpClient: "",
        TritonGrpcClient: "",
        CurlClient: "curl",
        H2loadClient: "h2load",
        NodeHttpClient: "node",
        NodeGrpcClient: "@grpc/grpc-js",
    }
    missing = missing_programs()
    return {kind: 1 for kind, name in kinds.items() if name not in missing}
