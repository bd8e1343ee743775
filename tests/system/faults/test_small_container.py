"""A server with little memory: what does not fit is refused before the kernel acts."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from tests.support.clients import infer_inputs
from tests.support.server import Server
from tests.support.small_container import memory_group, oom_kills

pytestmark = pytest.mark.system

LIMIT = 400 << 20
SIZE = 40 << 20


def _post(server: Server, is_chunked: bool) -> int:
    """Send a large tensor over HTTP; the status, 0 if the connection broke."""
    tensor = {"name": "INPUT0", "shape": [SIZE // 4], "datatype": "FP32"}
    text = json.dumps(
        {
            "inputs": [{**tensor, "parameters": {"binary_data_size": SIZE}}],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    headers = {"Inference-Header-Content-Length": str(len(text))}
    if not is_chunked:
        headers["Content-Length"] = str(len(text) + SIZE)
    body = iter([text, *[bytes(1 << 20)] * (SIZE >> 20)])
    url = f"{server.url}/v2/models/identity_fp32/infer"
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, body, headers), timeout=60
        ) as answer:
            while answer.read(1 << 20):
                pass
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def _call(server: Server) -> str:
    """Send it over gRPC; the status."""
    with grpcclient.InferenceServerClient(server.grpc_address) as client:
        [tensor] = infer_inputs(grpcclient, INPUT0=np.zeros(SIZE // 4, np.float32))
        try:
            client.infer("identity_fp32", [tensor], client_timeout=60)
        except InferenceServerException as error:
            return str(error.status())
    return "OK"


@pytest.mark.parametrize(
    "way",
    [
        "http",
        *(
            pytest.param(
                way,
                marks=pytest.mark.long(
                    "system/faults/test_small_container.py::"
                    "test_ten_large_bodies_at_once_end_no_process",
                    "frontends/http_api/server/test_large_bodies.py::"
                    "test_bodies_in_the_arena_that_do_not_fit_beside_others_are_refused",
                ),
            )
            for way in ("chunked", "grpc")
        ),
    ],
)
def test_ten_large_bodies_at_once_end_no_process(tmp_path: Path, way: str) -> None:
    with memory_group(LIMIT) as prefix, ThreadPoolExecutor(10) as pool:
        frontends = ("grpc",) if way == "grpc" else ()
        server = Server(tmp_path / "s", models=["identity_fp32"], frontends=frontends)
        server.wrapper = prefix
        with server:
            before = server.pids()

            if way == "grpc":
                results: list[object] = list(pool.map(lambda _: _call(server), range(10)))
            else:
                results = list(pool.map(lambda _: _post(server, way == "chunked"), range(10)))

            assert 0 == oom_kills(server.pid), results
            assert before == server.pids()
            assert set(results) <= {
                200,
                503,
                "OK",
                "StatusCode.UNAVAILABLE",
                "StatusCode.RESOURCE_EXHAUSTED",
            }
            assert _post(server, False) in (200, 503)
