"""Limits of bearer tokens, over both protocols together."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from email.message import Message

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException

from tests.support.clients import infer_inputs
from tests.support.server import Server, exchange, tensor
from zmqtriton_floor import token_file
from zmqtriton_floor.token_file import Grant

pytestmark = pytest.mark.system

_TOKENS = {"slow": "zmqt_of-the-night-0123456789", "watcher": "zmqt_of-a-page-0123456789"}
_ONES = np.ones((1, 16), np.float32)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("limits")
    slow, watcher = (token_file.digest(token) for token in _TOKENS.values())
    # one inference, and the next after a thousand seconds
    grants = [
        Grant("slow", slow, frozenset({"infer"}), requests_per_second=0.001),
        Grant("watcher", watcher, frozenset({"metrics"})),
    ]
    path = directory / "tokens"
    path.write_text("".join(f"{grant.line()}\n" for grant in grants))
    path.chmod(0o600)
    with Server(directory / "s", ["add_sub"], options=[f"--tokens={path}"]) as server:
        yield server


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {_TOKENS[name]}"}


def infer(server: Server) -> tuple[int, Message]:
    """Return status and headers of an inference over HTTP."""
    inputs = [tensor(f"INPUT{n}", "FP32", [1] * 16, [1, 16]) for n in range(2)]
    body = json.dumps({"inputs": inputs}).encode()
    answer = server.exchange("/v2/models/add_sub/infer", body, bearer("slow"))
    return answer.status, answer.headers


def counts(server: Server) -> dict[str, float]:
    """Return the metrics of the slow token."""
    request = urllib.request.Request(server.metrics_url, headers=bearer("watcher"))
    text = exchange(request).body.decode()
    rows = re.findall(r'^zmqtriton_token_(\w+)_total\{token="slow"\} (\S+)$', text, re.MULTILINE)
    return {name: float(value) for name, value in rows}


def test_a_token_has_one_rate_over_both_protocols_and_metrics_by_its_name(server: Server) -> None:
    before = counts(server)

    first, second = infer(server), infer(server)
    with grpc_client.InferenceServerClient(server.grpc_address) as over_grpc:
        inputs = infer_inputs(grpc_client, INPUT0=_ONES, INPUT1=_ONES)
        with pytest.raises(InferenceServerException, match=r"0\.001 times a second") as refused:
            over_grpc.infer("add_sub", inputs, headers=bearer("slow"))

    assert {} == before
    assert (200, 429) == (first[0], second[0])
    assert "1" == second[1]["Retry-After"]
    assert "StatusCode.RESOURCE_EXHAUSTED" == refused.value.status()
    assert {"requests": 1.0, "refused": 2.0} == counts(server)
