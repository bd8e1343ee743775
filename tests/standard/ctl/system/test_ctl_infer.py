"""`zmqtriton-ctl infer`, `wait` and `stats` against a real server."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.standard.ctl.system.commands import ctl, place
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=("add_sub", "string_upper", "raising", "tokens", "scripted"),
        load=("add_sub", "string_upper", "tokens", "scripted"),
    ),
]
ONES = ",".join("1" * 16)


def prepare(server: Server) -> None:
    server.block_imports("raising").touch()


def command(server: Server, *words: str) -> list[str]:
    return [sys.executable, "-m", "zmqtriton.ctl.main", place(server), *words]


@pytest.mark.row("L13")
def test_inputs_are_words_files_and_json(server: Server, tmp_path: Path) -> None:
    np.save(tmp_path / "twos.npy", np.full((16,), 2, np.float64))

    shown = ctl(server, "infer", "add_sub", f"INPUT0={ONES}", f"INPUT1=@{tmp_path}/twos.npy")
    assert (0, "") == (shown.exit_code, shown.stderr)
    assert "OUTPUT0  FP32 [1, 16]\n  [[3., 3.," in shown.stdout

    document = json.dumps({"INPUT0": [1] * 16, "INPUT1": [[2] * 16]})
    finished = ctl(server, "infer", "add_sub", "--json", "-", "-o", "json", text=document)
    outputs = {each["name"]: each["data"] for each in json.loads(finished.stdout)["outputs"]}
    assert [[-1.0] * 16] == outputs["OUTPUT1"]


def test_a_stream_is_shown_as_it_comes(server: Server) -> None:
    shown = ctl(server, "infer", "tokens", "COUNT=3")
    document = json.loads(ctl(server, "infer", "tokens", "COUNT=2", "-o", "json").stdout)
    empty = ctl(server, "infer", "tokens", "COUNT=0")
    refused = ctl(server, "infer", "tokens", "COUNT=3", "DELAY=1")

    assert (0, "") == (shown.exit_code, shown.stderr)
    assert ["token0", "token1", "token2"] == re.findall(r"^  (token\d)$", shown.stdout, re.M)
    responses = [each["outputs"][0]["data"] for each in document["responses"]]
    assert [["token0"], ["token1"]] == responses
    assert "the stream has ended without a response" in empty.stdout
    assert (1, True) == (refused.exit_code, "no input 'DELAY'" in refused.stderr)


def test_a_stream_that_fails_is_an_error(server: Server) -> None:
    failed = ctl(server, "infer", "scripted", "SCRIPT=raise KeyError('x')")

    assert 1 == failed.exit_code
    assert failed.stderr.startswith("error: Failed to process the request(s) for model")


def test_a_whole_request_may_be_given(server: Server) -> None:
    tensors = [
        {"name": name, "datatype": "FP32", "shape": [1, 16], "data": [1] * 16}
        for name in ("INPUT0", "INPUT1")
    ]
    document = json.dumps({"inputs": tensors, "outputs": [{"name": "OUTPUT0"}]})

    shown = ctl(server, "infer", "add_sub", "--json", "-", text=document)

    assert "OUTPUT0  FP32 [1, 16]\n  [[2., 2.," in shown.stdout
    assert "OUTPUT1" not in shown.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["add_sub"],
            "no inputs are given (--zeros fills them); it takes INPUT0 FP32 [-1, 16], INPUT1 FP32",
        ),
        (["add_sub", "INPUT0=1"], "input 'INPUT0' has the shape [1], but must have [-1, 16]"),
        (["ad_sub", "X=1"], "there is no model 'ad_sub'; did you mean 'add_sub'?"),
        (["add_sub", "--version=7", "X=1"], "'add_sub' version 7 is not found (HTTP 404)"),
        (["raising", "--zeros"], "`zmqtriton-ctl explain raising` may say why"),
        (["add_sub", "--header=x", "--zeros"], "--header 'x' must be 'NAME: VALUE'"),
        (["add_sub", "--url=127.0.0.1", "--zeros"], "--url '127.0.0.1' must be like http://"),
        (["add_sub", "--json=/no/file"], "--json /no/file cannot be read"),
    ],
)
def test_errors_help(server: Server, words: list[str], expected: str) -> None:
    refused = ctl(server, "infer", *words)

    assert (1, "") == (refused.exit_code, refused.stdout)
    assert expected in refused.stderr


@pytest.mark.row("L13")
def test_waiting_ends_when_the_model_is_ready(server: Server) -> None:
    ready = [ctl(server, "wait", *words) for words in (["add_sub"], [])]
    assert [("add_sub is ready\n", ""), ("the server is ready\n", "")] == [
        (waited.stdout, waited.stderr) for waited in ready
    ]
    missing = ctl(server, "wait", "raising", "--timeout", "0")
    assert (1, "") == (missing.exit_code, missing.stdout)
    # a file before may have had a model of that name
    why = "(nobody has loaded|an operator or a client has unloaded) it"
    assert re.search(f"error: not ready after 0 s: raising: not ready: {why}", missing.stderr)

    loading = subprocess.Popen(command(server, "load", "raising"), stdout=subprocess.PIPE)
    with (
        loading,
        subprocess.Popen(command(server, "wait", "raising"), stdout=subprocess.PIPE) as waiting,
    ):
        eventually(lambda: server.stub_pids("raising"), 60, "the start of its process")
        assert waiting.poll() is None
        (server.scratch / "raising.holds").unlink(missing_ok=True)
        assert b"raising is ready\n" == waiting.communicate(timeout=60)[0]
        assert 0 == waiting.returncode


@pytest.mark.row("L13")
def test_statistics_have_rates_and_means(server: Server) -> None:
    assert 0 == ctl(server, "infer", "add_sub", "--zeros").exit_code

    total = json.loads(ctl(server, "stats", "add_sub", "--total", "-o", "json").stdout)
    tables = ctl(server, "stats", "--interval=0.1", "--count=2").stdout.split("\n\n")

    assert ["add_sub"] == [row["model"] for row in total]
    assert total[0]["requests_per_s"] > 0
    assert total[0]["mean_ms"] >= total[0]["compute_ms"] > 0
    assert 1.0 == total[0]["batch_size"]
    assert 2 == len(tables)
    assert all("add_sub:1" in table for table in tables)


def test_the_live_view_ends_with_q(server: Server) -> None:
    assert "top needs a terminal" in ctl(server, "top").stderr
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            command(server, "top", "--interval=0.1"), stdin=theirs, stdout=theirs
        ) as live:
            shown = b""
            while b"add_sub:1" not in shown:
                shown += os.read(ours, 65536)
            os.write(ours, b"xq")
            assert 0 == live.wait(30)
    finally:
        os.close(ours)
        os.close(theirs)
