from __future__ import annotations

import json
from typing import Any

import pytest

from zmqtriton_extras.openai.choices import read_calls
from zmqtriton_floor.errors import InternalError


def test_a_model_tells_its_calls_in_either_form() -> None:
    document = [
        {"name": "f", "arguments": {"a": "é"}},
        {"id": "call_1", "type": "function", "function": {"name": "g", "arguments": '{"b": 2}'}},
        {"name": "h"},
    ]

    f, g, h = read_calls("tool_calls", json.dumps(document).encode(), 3)

    assert (f.number, f.name, f.arguments) == (3, "f", '{"a": "é"}')
    assert (g.number, g.name, g.arguments, g.id) == (4, "g", '{"b": 2}', "call_1")
    assert (h.number, h.name, h.arguments) == (5, "h", "{}")
    assert f.id != h.id


@pytest.mark.parametrize("data", [b"", b" ", b"null", b"[]"])
def test_there_need_be_no_calls(data: bytes) -> None:
    assert read_calls("tool_calls", data, 0) == []


@pytest.mark.parametrize(
    "data", [b"{", b"7", b'{"name": "f"}', b"[7]", b'[{"name": ""}]', b"[" * 100_000, b"\xff"]
)
def test_what_is_no_list_of_calls_is_the_model_s_error(data: Any) -> None:
    with pytest.raises(InternalError, match="'tool_calls' must hold"):
        read_calls("tool_calls", data, 0)
