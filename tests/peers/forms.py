"""The form of a call's answer: its kind, its names, the types of its tensors; never its values.

The programs that call print forms, in other Pythons; so this module needs the standard library
alone. A table says what a form has at least.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

WITHIN_S = 60


async def outcome(call: Callable[[], Any]) -> Any:
    """Return what a call comes to: its answer, all that it generates, or the error."""
    try:
        answer = call()
        if isinstance(answer, Future):
            answer = answer.result(WITHIN_S)
        if inspect.isawaitable(answer):
            answer = await asyncio.wait_for(answer, WITHIN_S)
        if inspect.isasyncgen(answer):
            return [item async for item in answer]
        if inspect.isgenerator(answer):
            return [*answer]
    except Exception as error:  # noqa: BLE001 - it is what the call comes to
        return error
    return answer


def form(answer: Any) -> Any:
    """Return the form of an answer, as JSON has it."""
    if answer is None or isinstance(answer, bool):
        return answer
    if isinstance(answer, BaseException):
        return {"error": type(answer).__name__, "status": status_of(answer)}
    if isinstance(answer, (str, bytes, int, float)):
        return type(answer).__name__
    if isinstance(answer, dict):
        return {"keys": sorted(answer)}
    if isinstance(answer, (list, tuple)):
        return [form(each) for each in answer[:1]] if isinstance(answer, list) else "tuple"
    if hasattr(answer, "get_response"):
        return {"outputs": outputs_of(answer)}
    return {"object": type(answer).__name__}


def outputs_of(result: Any) -> dict[str, str]:
    """Return types and shapes of the outputs of an inference, by name."""
    response = result.get_response()
    outputs = response["outputs"] if isinstance(response, dict) else response.outputs
    names = [each["name"] if isinstance(each, dict) else each.name for each in outputs]
    arrays = {name: result.as_numpy(name) for name in sorted(names)}
    return {name: f"{array.dtype.name}{list(array.shape)}" for name, array in arrays.items()}


def status_of(error: BaseException) -> str:
    """Return the status that an error of a client has, or ""."""
    status = getattr(error, "status", None)
    found = status() if callable(status) else getattr(error, "status_code", "")
    return str(found or "")


def public_methods(kind: type) -> list[str]:
    """Return the names of the methods of a class that users call."""
    return sorted(
        name
        for name, member in inspect.getmembers(kind)
        if not name.startswith("_") and callable(member)
    )


def fits(expected: Any, found: Any) -> bool:
    """Return whether a form has all that a table says: a set is of keys, a list of its first."""
    if isinstance(expected, (set, frozenset)):
        return isinstance(found, dict) and expected <= set(found.get("keys", ()))
    if isinstance(expected, list):
        return (
            isinstance(found, list)
            and len(found) >= len(expected)
            and all(map(fits, expected, found))
        )
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(
            name in found and fits(each, found[name]) for name, each in expected.items()
        )
    return bool(expected == found)
