"""The files of a load in JSON: base64, decoded a part at a time."""

from __future__ import annotations

import base64
import os

import pytest

from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_frontends.http_api.control import repository
from zmqtriton_frontends.http_api.control.repository import decode


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "_STEP", 10)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 14, 15, 16, 100, 1001])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.encodebytes])
def test_content_is_decoded_whatever_its_size_and_lines(size: int, encode: object) -> None:
    content = os.urandom(size)
    assert callable(encode)

    assert {"file:a": content} == decode({"file:a": encode(content).decode()})


@pytest.mark.parametrize(
    "text", ["A", "AAAAAAAAAAA", "QQ==QQ==", "QQ==" + "\n" * 10 + "QQ==", "AAAAAAAAAAA!", "é" * 12]
)
def test_what_is_not_base64_is_refused_wherever_it_stands(text: str) -> None:
    with pytest.raises(InvalidArgument, match="'file:a' is not base64"):
        decode({"file:a": text})
