"""Memory of documents that a function refuses is free when their clients have the answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.process_memory import uss_mib
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

_SOURCE = """
from zmqtriton import model

@model
def box(x: dict) -> dict:
    return x
"""
#: Beyond the limits of the model's process, so that the error comes from there.
_BODY = b'{"x":{"a":[' + b"0.1234567," * 4_000_000 + b"1]}}"
#: What the C library keeps, and as much as one document is.
_KEPT_MIB = 64 + 40


def test_refused_documents_leave_nothing(tmp_path: Path) -> None:
    server = Server(tmp_path, frontends=())
    server.write_model("box", "", _SOURCE)
    with server:
        before = uss_mib(server, "http")
        for _ in range(4):
            answer = server.exchange("/box", _BODY, {"Content-Type": "application/json"})
            assert 422 == answer.status

        eventually(lambda: uss_mib(server, "http") < before + _KEPT_MIB, 60)
