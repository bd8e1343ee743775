"""Numbers that are no limits are refused at the door, each where it would become one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.server import Server
from zmqtriton_extras.door.tests.raw_door import RawDoor, floats, tokens
from zmqtriton_extras.door.tests.system.test_door import path_of

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=["identity_fp32", "tokens"],
        options=(
            "--zmq-door",
            f"--zmq-door-group={os.getgid()}",
            "--runtime-directory=@DIRECTORY@/r",
        ),
        frontends=(),
    ),
]

NEVER = (float("nan"), float("inf"), 1e300, -1, -1.0, 1.5, True, 2**64 - 1, "1", None)


@pytest.fixture
def door(server: Server) -> Iterator[RawDoor]:
    with RawDoor(path_of(server)) as client:
        yield client


def refused(door: RawDoor, fields: dict[str, Any], *data: bytes) -> bool:
    kind, content, _ = door.ask("infer", fields, *data)
    return (kind, content.get("code")) == ("error", "INVALID_ARG")


@pytest.mark.parametrize("name", ["priority", "timeout_us", "deadline_us", "credit"])
def test_no_limit_of_a_request(door: RawDoor, name: str) -> None:
    assert [] == [v for v in NEVER if not refused(door, floats("identity_fp32", 1, **{name: v}))]


@pytest.mark.parametrize("name", ["offset", "byte_size", "classes"])
def test_no_number_of_an_output(door: RawDoor, name: str) -> None:
    fields = floats("identity_fp32", 1)
    for value in NEVER:
        fields["outputs"] = [{"name": "OUTPUT0", name: value}]
        assert refused(door, fields, bytes(4)), value


def test_no_credit_that_is_granted_later(door: RawDoor) -> None:
    fields, *data = tokens(1, credit=0)
    for value in NEVER:
        number = door.send("infer", fields, *data)
        door.send("credit", {"responses": value}, id=number)
        kind, answered, content, _ = door.receive()
        assert (kind, answered, content["code"]) == ("error", number, "INVALID_ARG"), value
        door.send("cancel", id=number)
        while not door.receive()[2].get("final"):
            pass
