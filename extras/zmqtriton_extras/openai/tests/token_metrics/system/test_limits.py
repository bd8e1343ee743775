"""`tokens_per_minute` of bearer tokens, on a real server with several frontends."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.message import Message
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException

from tests.standard.ctl.system.commands import OPTION, ctl
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_extras.openai.tests.token_metrics.system.test_token_metrics import CONFIG, MODEL
from zmqtriton_floor import token_file
from zmqtriton_floor.token_file import Grant

pytestmark = pytest.mark.system

_TOKENS = {name: f"zmqt_of-a-{name}-0123456789" for name in ("desk", "free", "whole", "crowd")}
_TENSOR = {"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1]}
#: A request has 7 tokens of its prompt, and 6 are made.
_FORM = {"model": "counting", "prompt": "once"}
#: A model that answers with 400 bytes in one piece, once the file has gone, and counts nothing.
_AT_ONCE = """
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        while os.path.exists(HELD):
            time.sleep(0.01)
        text = pb_utils.Tensor("text_output", np.array([b"word" * 100], dtype=object))
        return [pb_utils.InferenceResponse([text]) for _ in requests]
"""
_AT_ONCE_CONFIG = """
backend: "python"
input [ { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "text_output" data_type: TYPE_STRING dims: [ 1 ] } ]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("limits")
    digests = {name: token_file.Grant.digest_of(token) for name, token in _TOKENS.items()}
    grants = [
        # one request, and the next after 13 minutes
        Grant("desk", digests["desk"], frozenset({"infer"}), tokens_per_minute=1),
        Grant("free", digests["free"], frozenset({"infer", "metrics"})),
        Grant("whole", digests["whole"], frozenset({"infer"}), tokens_per_minute=50),
        Grant("crowd", digests["crowd"], frozenset({"infer"}), tokens_per_minute=1),
    ]
    path = directory / "tokens"
    path.write_text("".join(f"{grant.line()}\n" for grant in grants))
    path.chmod(0o600)
    options = ["--allow-openai=true", "--token-metrics", f"--tokens={path}"]
    options.append(OPTION.replace("@DIRECTORY@", str(directory)))
    server = Server(directory / "s", ["identity_fp32"], options=options)
    code = server.repository / "counting" / "1" / "model.py"
    code.parent.mkdir(parents=True)
    code.write_text(f"COUNTS = True\n{MODEL}")
    (server.repository / "counting" / "config.pbtxt").write_text(CONFIG)
    code = server.repository / "at_once" / "1" / "model.py"
    code.parent.mkdir(parents=True)
    code.write_text(f"HELD = {str(server.scratch / 'held')!r}\n{_AT_ONCE}")
    (server.repository / "at_once" / "config.pbtxt").write_text(_AT_ONCE_CONFIG)
    with server:
        yield server


def ask(server: Server, token: str, path: str, form: Any = None) -> tuple[int, Message, bytes]:
    """Return status, headers and body."""
    body = None if form is None else json.dumps(form).encode()
    headers = {"authorization": f"Bearer {_TOKENS[token]}"}
    request = urllib.request.Request(f"{server.url}{path}", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def metrics(server: Server) -> str:
    headers = {"authorization": f"Bearer {_TOKENS['free']}"}
    request = urllib.request.Request(server.metrics_url, headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        page: bytes = answer.read()
    return page.decode()


def test_a_token_that_is_used_up_is_refused_by_all_protocols_until_its_debt_is_over(
    server: Server,
) -> None:
    answered = 0

    def refusal(path: str, form: Any) -> tuple[Message, bytes] | None:
        nonlocal answered
        status, headers, body = ask(server, "desk", path, form)
        answered += status == 200
        return (headers, body) if status == 429 else None

    # by each frontend, once it was told
    stream = "/v2/models/counting/generate_stream"
    for path, form in (("/v1/completions", _FORM), (stream, {"text_input": "x"})):
        headers, body = eventually(lambda p=path, f=form: refusal(p, f), 60)  # type: ignore[misc]
        # each that came before a frontend was told adds to the debt
        assert 600 < int(headers["Retry-After"]) <= 780 * answered
        assert "The token may use 1 tokens of text a minute, retry after " in body.decode()

    def refused_by_grpc() -> bool:
        text = grpc_client.InferInput("text_input", [1], "BYTES")
        text.set_data_from_numpy(np.array([b"once"], dtype=object))
        headers = {"authorization": f"Bearer {_TOKENS['desk']}"}
        answers: list[Any] = []
        with grpc_client.InferenceServerClient(server.grpc_address) as client:
            client.start_stream(lambda result, error: answers.append(error), headers=headers)
            client.async_stream_infer("counting", [text], enable_empty_final_response=True)
            eventually(lambda: answers, 60)
            client.stop_stream()
        error = answers[0]
        return isinstance(error, InferenceServerException) and "tokens of text" in str(error)

    eventually(refused_by_grpc, 60)

    # models that make no text are not concerned, nor are other tokens
    path = "/v2/models/identity_fp32/infer"
    assert ask(server, "desk", path, {"inputs": [_TENSOR]})[0] == 200
    assert ask(server, "free", "/v1/completions", _FORM)[0] == 200


def test_a_model_that_answers_at_once_and_counts_nothing_uses_up_tokens(server: Server) -> None:
    path, form = "/v2/models/at_once/generate", {"text_input": "x"}
    statuses = [ask(server, "whole", path, form)[0]]

    # one answer has an estimate of 100 tokens, and 50 are allowed
    assert eventually(lambda: _refused(server, "whole", path, form), 60) == 429
    assert statuses == [200]


def _refused(server: Server, token: str, path: str, form: Any) -> int | None:
    status, _, _ = ask(server, token, path, form)
    return status if status == 429 else None


def test_requests_at_the_same_time_do_not_all_pass(server: Server) -> None:
    path, form = "/v2/models/at_once/generate", {"text_input": "x"}
    held = server.scratch / "held"
    held.touch()
    with ThreadPoolExecutor(12) as pool:
        try:
            # more than there are frontends, of which each may admit one
            answers = [pool.submit(ask, server, "crowd", path, form) for _ in range(12)]
            eventually(lambda: any(answer.done() for answer in answers), 60)
            statuses = {answer.result()[0] for answer in answers if answer.done()}
        finally:
            held.unlink()

    assert {429} == statuses


def test_metrics_are_by_token_and_the_status_has_tokens_per_second(server: Server) -> None:
    assert ask(server, "free", "/v1/completions", _FORM)[0] == 200

    def has_them() -> bool:
        page = metrics(server)
        return 'zmqtriton_token_usage_total{token="free",model="counting"' in page

    eventually(has_them, 60)

    def rate() -> float:
        assert ask(server, "free", "/v1/completions", _FORM)[0] == 200
        status = json.loads(ask(server, "free", "/v2/zmqtriton/status")[2])
        (model,) = (each for each in status["models"] if each["name"] == "counting")
        return float(model.get("tokens_per_s") or 0)

    eventually(lambda: rate() > 0, 60)
    history = json.loads(ask(server, "free", "/v2/zmqtriton/history?model=counting")[2])
    assert any(history["models"]["counting:1"]["tokens_per_s"])


def test_ctl_shows_tokens_per_second(server: Server) -> None:
    def rows() -> dict[str, float | None] | None:
        assert ask(server, "free", "/v1/completions", _FORM)[0] == 200
        document = json.loads(ctl(server, "stats", "--total", "--output=json").stdout)
        rates = {row["model"]: row["tokens_per_s"] for row in document}
        return rates if rates["counting"] else None

    assert None is eventually(rows, 60)["identity_fp32"]
    head, *lines = ctl(server, "stats", "--total").stdout.splitlines()
    column = head.split("\t").index("Tokens/s")
    (row,) = (line for line in lines if "counting:1" in line)
    (other,) = (line for line in lines if "identity_fp32:1" in line)
    assert float(row.split("\t")[column]) > 0
    assert other.split("\t")[column] == "-"
