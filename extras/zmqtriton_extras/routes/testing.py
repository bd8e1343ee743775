"""Calls a model's routes in the test's own process, as a server with --routes does."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from zmqtriton.sdk.wire import InvalidArgument, NotFound, ZmqTritonError
from zmqtriton_extras.routes import names
from zmqtriton_extras.routes.backend import api


class RouteAnswer(NamedTuple):
    """The response of a route."""

    status: int
    #: Value that the route has returned; of one that yields, a list of its values.
    value: Any
    headers: Mapping[str, str] = {}


def call_route(
    directory: Path,
    config: Mapping[str, Any],
    infer: Callable[[dict[str, Any]], dict[str, Any]],
    text: str,
    *,
    json_document: Any,
    body: bytes,
    headers: Mapping[str, str],
) -> RouteAnswer:
    """Call a route such as "POST /ask?x=1"; `infer` executes a request of the model.

    Raises NotFound without a routes.py, and the route's exceptions, except RouteError.
    """
    method, _, target = text.partition(" ")
    place = urlsplit(target)
    data = json.dumps(json_document).encode() if json_document is not None else body
    fields = {name.lower(): value for name, value in headers.items()}
    head = {"method": method, "path": place.path, "query": place.query, "headers": fields}
    request = api.Request(head, memoryview(data))
    _load(directory)
    try:
        row, request.params = api.find(method, place.path)
        return asyncio.run(_answer(row.function, request, _Infer(config, infer)))
    except api.RouteError as error:
        return RouteAnswer(error.status, {"error": error.text})


async def _answer(function: Callable[..., Any], request: Any, infer: _Infer) -> RouteAnswer:
    value = function(request, infer)
    if inspect.isasyncgen(value):
        return RouteAnswer(200, [part async for part in value])
    if inspect.isawaitable(value):
        value = await value
    if not isinstance(value, api.Response):
        return RouteAnswer(200, value)
    parts = value.body
    body = [part async for part in parts] if hasattr(parts, "__aiter__") else parts
    return RouteAnswer(value.status, body, dict(value.headers))


def _load(directory: Path) -> None:
    """Run routes.py again, so that each test has its own module."""
    file = directory / names.FILE
    if not file.is_file():
        raise NotFound(f"there is no {file}; write the routes there")
    spec = importlib.util.spec_from_file_location("routes", file)
    assert spec is not None, "it is a file of Python"
    assert spec.loader is not None, "it is a file of Python"
    api.rows.clear()
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    if not api.rows:
        raise InvalidArgument(f"{file} has no function with @route; test an `app` by its framework")


class _Infer:
    """The second argument of a route, which calls models."""

    def __init__(
        self, config: Mapping[str, Any], infer: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> None:
        self._name = config.get("name", "")
        batch = [-1] if config.get("max_batch_size") else []
        self._declared = {
            row["name"]: (row["data_type"], [*batch, *row["dims"]])
            for row in config.get("input", ())
        }
        self._infer = infer

    async def __call__(self, inputs: dict[str, Any], model: str = "", **_: Any) -> dict[str, Any]:
        # only now: it imports what models import
        from zmqtriton_extras.routes.backend.model import InferError, tensor_of

        if model not in ("", self._name):
            raise InvalidArgument(
                f"a test of '{self._name}' can call only its own model, not '{model}': start a "
                "server"
            )
        arrays = {
            name: tensor_of(name, value, self._declared.get(name)).as_numpy()
            for name, value in inputs.items()
        }
        try:
            return self._infer(arrays)
        except ZmqTritonError as error:
            raise InferError(error.http_status, error.text) from None
