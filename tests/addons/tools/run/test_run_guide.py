"""Commands that `zmqtriton run` says to type next."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from zmqtriton.options import Options, parse
from zmqtriton_addons.tools.run import guide

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


def test_a_name_with_a_space_can_be_typed() -> None:
    said = guide("a model", options("127.0.0.1"), 8000, CONFIG).splitlines()

    curl, infer = (shlex.split(line) for line in said if line.startswith("  "))
    assert "127.0.0.1:8000/v2/models/a%20model/infer" == curl[2]
    assert ["zmqtriton-ctl", "infer", "--server", "8000", "a model", "--zeros"] == infer
