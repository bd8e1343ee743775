"""`zmqtriton demo`: what it copies, what it says, and that what it says is true."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.support.server import ROOT, Server
from tests.support.waiting import eventually
from zmqtriton.options import parse
from zmqtriton_extras.authoring import demo
from zmqtriton_extras.authoring.demo import ADDRESSES, guide, server_arguments
from zmqtriton_extras.authoring.example import copy_missing

pytestmark = pytest.mark.slow

MODELS = {"add_sub", "crashy", "doubled", "pipeline", "string_upper", "tokens"}


def test_the_models_are_copied_and_what_is_there_is_kept(tmp_path: Path) -> None:
    copy_missing(demo.MODELS, tmp_path)
    changed = tmp_path / "add_sub" / "1" / "model.py"
    changed.write_text("mine")
    (tmp_path / "crashy" / "config.pbtxt").unlink()

    copy_missing(demo.MODELS, tmp_path)

    assert {path.name for path in tmp_path.iterdir()} == MODELS
    assert changed.read_text() == "mine"
    assert (tmp_path / "crashy" / "config.pbtxt").exists()
    assert not list(tmp_path.rglob("__pycache__"))


@pytest.mark.parametrize(
    ("words", "mode", "models"),
    [
        ([], "explicit", ("*",)),
        (["--load-model=crashy"], "explicit", ("crashy",)),
        (["--model-control-mode=none"], "none", ()),
        (["--model-control-mode", "poll"], "poll", ()),
    ],
)
def test_all_models_are_loaded_unless_told_otherwise(
    tmp_path: Path, words: list[str], mode: str, models: tuple[str, ...]
) -> None:
    options = parse(server_arguments(tmp_path, words), usual=ADDRESSES)

    assert (options.model_control_mode, options.load_model) == (mode, models)
    assert (options.http_address, options.grpc_address, options.metrics_address) == (
        ("127.0.0.1",) * 3
    )


def _requests(text: str) -> list[tuple[str, bytes]]:
    """Return what the curl lines of the guide send."""
    calls = re.findall(r"curl -sN? (\S+) -d '(.*?)'", text, re.DOTALL)
    return [(f"http://{url}", body.encode()) for url, body in calls]


def _post(url: str, body: bytes) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, body, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.system
def test_what_the_demo_says_to_type_works_on_whatever_port_it_got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # which decides how the path of a program is shown
    words = ["--http-port=0", "--grpc-port=0", "--metrics-port=0"]
    output = tmp_path / "output"
    with output.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "zmqtriton", "demo", str(tmp_path / "demo"), *words],
            stdout=stream,
            stderr=stream,
            cwd=tmp_path,
            env=_environment(),
        )
    try:
        eventually(lambda: "Started HTTPService" in output.read_text(), 60, "the demo's start")
        [http] = re.findall(r"Started HTTPService at ([0-9.:]+)", output.read_text())
        said = guide(tmp_path / "demo", http)
        eventually(lambda: said in output.read_text(), 60, "the words after the start")
        answers = [_post(*request) for request in _requests(output.read_text())]
    finally:
        process.send_signal(signal.SIGINT)
        status = process.wait(60)

    assert status == 0
    added, upper, doubled, streamed, crashed = answers
    assert added[0] == upper[0] == doubled[0] == streamed[0] == 200
    events = [json.loads(line[6:]) for line in streamed[1].splitlines() if line]
    assert [event["TOKEN"] for event in events] == ["as", "it", "comes"]
    outputs = {o["name"]: o["data"] for o in json.loads(added[1])["outputs"]}
    assert outputs["OUTPUT0"][:3] == [1, 2, 3]
    assert json.loads(upper[1])["outputs"][0]["data"] == ["HELLO", "WORLD"]
    outputs = {o["name"]: o["data"] for o in json.loads(doubled[1])["outputs"]}
    assert outputs == {"LEFT_TWICE": [2 * i for i in range(16)], "RIGHT_TWICE": [2] * 16}
    assert crashed[0] == 503
    assert "killed by SIGSEGV" in crashed[1]


@pytest.mark.system
@pytest.mark.server(models=[demo.MODELS / "tokens"])
def test_a_client_that_leaves_amid_a_long_delay_holds_up_no_other(server: Server) -> None:
    path = "/v2/models/tokens/generate_stream"
    endless = json.dumps({"TEXT": "one two", "DELAY_MS": 2**31 - 1}).encode()
    with urllib.request.urlopen(f"{server.url}{path}", endless, timeout=60) as answer:
        assert b'"TOKEN":"one"' in answer.readline()

    answer = server.exchange(path, json.dumps({"TEXT": "three"}).encode())

    assert b'"TOKEN":"three"' in answer.body


def _environment() -> dict[str, str]:
    roots = os.pathsep.join(str(ROOT / root) for root in (".", "stub", "frontends"))
    return {**os.environ, "PYTHONPATH": roots}
