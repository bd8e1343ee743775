"""Commands that `zmqtriton run` says to type next."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from zmqtriton.options import Options, parse
from zmqtriton_extras.authoring import demo
from zmqtriton_extras.authoring.run import ctl_command, guide

pytestmark = pytest.mark.slow

CONFIG: dict[str, Any] = {
    "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": ["2"]}],
    "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": ["2"]}],
}


def options(address: str) -> Options:
    return parse(["--model-repository=.", f"--http-address={address}"])


@pytest.mark.parametrize(
    ("address", "expected"),
    [("::1", "[::1]:8000"), ("::", "localhost:8000"), ("10.0.0.7", "10.0.0.7:8000")],
)
def test_the_address_can_be_typed(address: str, expected: str) -> None:
    said = guide("m", options(address), 8000, CONFIG)

    assert f"A browser finds it on http://{expected}. " in said
    curl = next(line for line in said.splitlines() if line.startswith("  curl"))
    assert f"{expected}/v2/models/m/infer" == shlex.split(curl)[2]


def test_a_name_with_a_space_can_be_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{sys.prefix}/bin")
    said = guide("a model", options("127.0.0.1"), 8000, CONFIG).splitlines()

    curl, infer = (shlex.split(line) for line in said if line.startswith("  "))
    assert "127.0.0.1:8000/v2/models/a%20model/infer" == curl[2]
    assert ["zmqtriton-ctl", "infer", "--server", "8000", "a model", "--zeros"] == infer


def test_a_command_that_the_shell_does_not_find_is_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "a place" / "bin" / "zmqtriton-ctl"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "a place"))

    monkeypatch.setenv("PATH", str(program.parent))
    assert "zmqtriton-ctl" == ctl_command()
    monkeypatch.setenv("PATH", "/nowhere")
    assert [str(program)] == shlex.split(ctl_command())
    monkeypatch.chdir(tmp_path)
    assert ["a place/bin/zmqtriton-ctl"] == shlex.split(ctl_command())
    assert f"{ctl_command()} load m" in guide("m", options("127.0.0.1"), 8000, {})
    assert f"{ctl_command()} status" in demo.guide(tmp_path, "127.0.0.1:8000")
    program.unlink()
    assert [sys.executable, "-m", "zmqtriton.ctl.main"] == shlex.split(ctl_command())


def test_a_chat_gets_json_that_its_model_can_read() -> None:
    config = {
        "input": [{"name": name, "data_type": "TYPE_STRING", "dims": ["1"]} for name in "AB"],
        "output": CONFIG["output"],
        "parameters": {"openai_messages_input": {"string_value": "A"}},
    }

    said = guide("m", options("127.0.0.1"), 8000, config)

    words = shlex.split(next(line for line in said.splitlines() if line.startswith("  curl")))
    chat, text = (entry["data"][0] for entry in json.loads(words[-1])["inputs"])
    assert [{"role": "user", "content": "hello"}] == json.loads(chat)
    assert "hello" == text
