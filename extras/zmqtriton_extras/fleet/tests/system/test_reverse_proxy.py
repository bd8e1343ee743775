"""nginx and Caddy as the guide configures them: HTTP, events, WebSockets and gRPC on one port."""

from __future__ import annotations

import json
import re
import shutil
import ssl
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import pytest
import tritonclient.grpc
from websockets.sync.client import connect

from tests.support.certificates import Authority, CertificatePair
from tests.support.clients import infer_inputs
from tests.support.needs import ROOT, skip_missing
from tests.support.server import Server, Written, free_ports, is_open
from tests.support.waiting import eventually
from tests.system.docs.examples import read_blocks

PAGE = ROOT / "docs/guides/reverse-proxy.md"
CONFIG = """
backend: "python"
model_transaction_policy { decoupled: true }
input [ { name: "GATE" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "NUMBER" data_type: TYPE_INT32 dims: [ 1 ] } ]
"""
#: Sends 1, and 2 once the file that its input names exists.
CODE = """
import asyncio, os
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    async def execute(self, requests):
        await asyncio.gather(*map(self.answer, requests))

    async def answer(self, request):
        gate = pb_utils.get_input_tensor_by_name(request, "GATE").as_numpy()[0]
        sender = request.get_response_sender()
        for number in (1, 2):
            while number == 2 and not (os.path.exists(gate) or sender.is_cancelled()):
                await asyncio.sleep(0.01)
            tensor = pb_utils.Tensor("NUMBER", np.array([number], np.int32))
            sender.send(pb_utils.InferenceResponse([tensor]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
NGINX = """
daemon off;
pid {0}/pid;
error_log {0}/proxy.log;
events {{ }}
http {{
    access_log off;
    {1}
    include {0}/site.conf;
}}
"""
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(models=["identity_fp32", Written("gate", CONFIG, CODE)]),
]


class Proxy(NamedTuple):
    port: int
    authority: Path

    @property
    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.authority)

    def open(self, path: str, document: Any = None) -> Any:
        body = None if document is None else json.dumps(document).encode()
        url = f"https://localhost:{self.port}{path}"
        return urllib.request.urlopen(url, body, timeout=60, context=self.context)

    def grpc(self) -> tritonclient.grpc.InferenceServerClient:
        return tritonclient.grpc.InferenceServerClient(
            f"localhost:{self.port}", ssl=True, root_certificates=str(self.authority)
        )


def configuration(number: int, server: Server) -> str:
    """Return a configuration of the page, for this server."""
    blocks = [each for each in read_blocks(PAGE, ROOT) if each.note("tested")]
    text = blocks[number].text
    assert {"127.0.0.1:8000", "127.0.0.1:8001"} == {*re.findall(r"127[\d.]+:\d+", text)}
    text = text.replace("127.0.0.1:8000", f"127.0.0.1:{server.http_port}")
    return text.replace("127.0.0.1:8001", server.grpc_address)


def nginx(directory: Path, server: Server, port: int, pair: CertificatePair) -> list[str]:
    text = configuration(0, server).replace("listen 443", f"listen 127.0.0.1:{port}")
    text = text.replace("server_name models.example", "server_name localhost")
    text = re.sub(r"/etc/letsencrypt/\S+/fullchain.pem", str(pair.cert), text)
    text = re.sub(r"/etc/letsencrypt/\S+/privkey.pem", str(pair.key), text)
    (directory / "site.conf").write_text(text)
    places = " ".join(f"{name}_temp_path {directory}/{name};" for name in TEMPORARY)
    (directory / "nginx.conf").write_text(NGINX.format(directory, places))
    return ["nginx", "-c", str(directory / "nginx.conf"), "-e", str(directory / "proxy.log")]


def caddy(directory: Path, server: Server, port: int, pair: CertificatePair) -> list[str]:
    text = configuration(1, server).replace(
        "models.example {", f"https://localhost:{port} {{\ntls {pair.cert} {pair.key}"
    )
    options = "{\nadmin off\nauto_https disable_redirects\n}\n"
    (directory / "Caddyfile").write_text(options + text)
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(directory / "Caddyfile")]


@pytest.fixture(params=[nginx, caddy], ids=["nginx", "caddy"])
def proxy(request: pytest.FixtureRequest, server: Server, tmp_path: Path) -> Iterator[Proxy]:
    make: Callable[..., list[str]] = request.param
    [port] = free_ports(1)
    authority = Authority(tmp_path)
    command = make(tmp_path, server, port, authority.issue("proxy"))
    program = shutil.which(command[0], path="/usr/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        skip_missing(command[0])
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin"}
    with (tmp_path / "output").open("wb") as output:
        process = subprocess.Popen(
            [program, *command[1:]], stdout=output, stderr=output, env=environment
        )
    try:
        eventually(lambda: is_open(port) or process.poll() is not None, 30)
        yield Proxy(port, authority.cert)
    finally:
        process.terminate()
        process.wait(30)


def test_requests_pass_over_http_and_grpc(proxy: Proxy) -> None:
    values = np.arange(1 << 20, dtype=np.float32)
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [3], "data": [1, 2, 3]}

    with proxy.open("/v2/models/identity_fp32/infer", {"inputs": [tensor]}) as response:
        [output] = json.load(response)["outputs"]
    with proxy.grpc() as client:
        result = client.infer("identity_fp32", infer_inputs(tritonclient.grpc, INPUT0=values))

    assert [1, 2, 3] == output["data"]
    assert np.array_equal(values, result.as_numpy("OUTPUT0"))


def test_events_pass_at_once(proxy: Proxy, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    with proxy.open("/v2/models/gate/generate_stream", {"GATE": str(gate)}) as response:
        first = next(line for line in response if line.strip())
        gate.touch()
        second = next(line for line in response if line.strip())

    assert (b'"NUMBER":1' in first, b'"NUMBER":2' in second) == (True, True)


def test_a_web_socket_passes(proxy: Proxy, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    tensor = {"name": "GATE", "datatype": "BYTES", "shape": [1], "data": [str(gate)]}

    url = f"wss://localhost:{proxy.port}/v2/models/gate/stream"
    with connect(url, ssl=proxy.context) as socket:
        socket.send(json.dumps({"id": "a", "inputs": [tensor]}))
        first = json.loads(socket.recv(60))
        gate.touch()
        second = json.loads(socket.recv(60))

    assert [[1], [2]] == [each["outputs"][0]["data"] for each in (first, second)]


def test_a_stream_passes_over_grpc(proxy: Proxy, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    inputs = infer_inputs(tritonclient.grpc, GATE=np.array([str(gate).encode()], np.object_))
    came: SimpleQueue[tuple[Any, Any]] = SimpleQueue()

    with proxy.grpc() as client:
        client.start_stream(lambda result, error: came.put((result, error)))
        client.async_stream_infer("gate", inputs)
        first, error = came.get(timeout=60)
        assert error is None
        gate.touch()
        second, _ = came.get(timeout=60)
        client.stop_stream()

    assert [[1], [2]] == [each.as_numpy("NUMBER").tolist() for each in (first, second)]
