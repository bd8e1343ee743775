"""Calls of tools that a model tells by an output of its own, as JSON."""

from __future__ import annotations

import json
from typing import Any

from zmqtriton_addons.web_apis.openai.tools.call_text import CallPart, new_id
from zmqtriton_floor.errors import InternalError


def read_calls(output: str, data: bytes, first: int) -> list[CallPart]:
    """Return the calls of a response, numbered on; "" and null have no call.

    Each is `{"name", "arguments"}`, on its own or as the `function` of an object with an `id`.
    Raises InternalError if they are none.
    """
    if not data.strip():
        return []
    try:
        calls = json.loads(data)
    except (ValueError, RecursionError):
        raise InternalError(f"output '{output}' must hold JSON") from None
    if type(calls) not in (list, type(None)):
        raise InternalError(f"output '{output}' must hold a list of calls")
    return [_call(output, one, first + number) for number, one in enumerate(calls or [])]


def _call(output: str, document: Any, index: int) -> CallPart:
    outer = document if type(document) is dict else {}
    inner = outer.get("function", outer)
    name = inner.get("name") if type(inner) is dict else None
    if type(name) is not str or not name:
        raise InternalError(f"output '{output}' must hold a list of calls, each with its name")
    arguments = inner.get("arguments", {})
    text = arguments if type(arguments) is str else json.dumps(arguments, ensure_ascii=False)
    call_id = outer.get("id") if outer is not inner else None
    own_id = call_id if type(call_id) is str and call_id else new_id()
    return CallPart(index, *(_sendable(one) for one in (text, own_id, name)))


def _sendable(text: str) -> str:
    # JSON may have lone surrogates, UTF-8 has none
    return text.encode("utf-8", "replace").decode()
