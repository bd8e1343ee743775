"""Requests to SageMaker and Vertex AI for the application, and the list of SageMaker's models.

On an endpoint with many models the platform adds a model as a directory, which becomes a repository
with the model under the platform's name. The supervisor keeps the list, because every HTTP process
needs it. A platform passes on few headers, so the length of the JSON before binary tensors is a
part of the content type.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import falcon
import falcon.asgi

from zmqtriton.sdk.frontend import (
    Gateway,
    HttpRequest,
    Route,
    Threads,
    json_documents,
    load,
    problems,
    refusals,
)
from zmqtriton.sdk.wire import InvalidArgument, ZmqTritonError, errors

TARGET_MODEL = b"x-amzn-sagemaker-target-model"

_CATEGORY = "model-repository"
_threads = Threads("repositories", 2, 64)
_ENSEMBLE = re.compile(r'platform:\s*"ensemble"')
_NOT_FOR_MODELS = ("/dev/", "/proc/", "/sys/")
_CONFIG = "config.pbtxt"
Scope = dict[str, Any]
Application = Callable[[Any, Any, Any], Awaitable[None]]
Event = dict[str, Any]

_CONTENT_TYPE = b"content-type"
_JSON_LENGTH = b"inference-header-content-length"
#: The platforms' own; an answer is never compressed for them.
_NOT_PASSED_ON = frozenset({_CONTENT_TYPE, _JSON_LENGTH, b"accept-encoding"})


class Target(NamedTuple):
    """The request that the application gets instead of the platform's."""

    method: str
    #: Path as in a request.
    path: str
    #: Content type of requests with binary tensors; the length of the JSON follows it.
    binary_type: str


async def pass_on(
    application: Application, scope: Scope, receive: Any, send: Any, target: Target
) -> None:
    """Let the application answer the request as one for the target."""
    try:
        headers = _headers(scope["headers"], target.binary_type)
    except InvalidArgument as error:
        await answer(send, *problems.response_to(error))
        return
    changed = {"path": unquote(target.path), "raw_path": target.path.encode(), "headers": headers}
    await application({**scope, **changed, "method": target.method}, receive, send)


def header(scope: Scope, name: bytes) -> str | None:
    """Return the value of a header, given in lower case."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value.decode("latin-1"))
    return None


async def refuse(send: Any, error: refusals.AccessRefused) -> None:
    """Answer the client with a refusal, without calling the application."""
    await answer(send, *problems.response_to(error), error.headers)


async def answer(
    send: Any, status: int, body: bytes = b"", headers: Iterable[tuple[str, str]] = ()
) -> None:
    """Answer without the application."""
    rows = [(b"content-type", b"application/json")] if body else []
    rows += [(name.lower().encode(), value.encode()) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": rows})
    await send({"type": "http.response.body", "body": body})


def _headers(fields: list[tuple[bytes, bytes]], binary_type: str) -> list[tuple[bytes, bytes]]:
    passed = [row for row in fields if row[0] not in _NOT_PASSED_ON]
    for name, value in fields:
        if name == _CONTENT_TYPE:
            before, separator, length = value.decode("latin-1").partition(binary_type)
            if not separator:
                continue
            if before:
                raise InvalidArgument(
                    f"expect MIME type for binary data starts with '{binary_type}', got: "
                    + value.decode("latin-1")
                )
            passed.append((_JSON_LENGTH, length.strip().encode("latin-1")))
    return passed


def with_length_in_type(send: Any, binary_type: str) -> Any:
    """Return a `send` that also adds the length of the JSON to the content type."""

    async def send_event(event: Event) -> None:
        if event["type"] == "http.response.start":
            event = {**event, "headers": _rows_with_length(event["headers"], binary_type)}
        await send(event)

    return send_event


def _rows_with_length(
    rows: list[tuple[bytes, bytes]], binary_type: str
) -> list[tuple[bytes, bytes]]:
    lengths = [value for name, value in rows if name.lower() == _JSON_LENGTH]
    if not lengths:
        return rows
    left = [row for row in rows if row[0].lower() not in (_JSON_LENGTH, _CONTENT_TYPE)]
    return [*left, (_CONTENT_TYPE, binary_type.encode() + lengths[0])]


class Place(NamedTuple):
    """A model in a directory: the directory as a repository, and the model's folder in it."""

    repository: str
    folder: str


class TargetModels:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._is_explicit = gateway.settings.models.control_mode == "explicit"
        #: Models and their repositories by the platform's name, as of the last message.
        self._models: dict[str, dict[str, str]] = {}

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/models", _CATEGORY, self.list),
            Route("POST", "/models", _CATEGORY, self.load),
            Route("POST", "/models/{name}", _CATEGORY, self.load),
            Route("GET", "/models/{name}", _CATEGORY, self.describe),
            Route("DELETE", "/models/{name}", _CATEGORY, self.unload),
        ]

    async def has(self, name: str, model: str) -> bool:
        """True if the platform has loaded a model under this name."""
        # asked again only where it may have changed
        if name not in self._models or not self._is_ready(model):
            await self._refresh()
        return name in self._models

    async def list(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        await self._refresh()
        rows = [(name, of) for name, of in self._models.items() if self._is_ready(of["model"])]
        _answer(resp, {"models": [_row(name, of) for name, of in rows]})

    async def describe(self, req: HttpRequest, resp: falcon.asgi.Response, name: str) -> None:
        await self._refresh()
        if name not in self._models:
            resp.status = falcon.HTTP_404
        else:
            _answer(resp, _row(name, self._models[name]))

    async def load(self, req: HttpRequest, resp: falcon.asgi.Response, name: str = "") -> None:
        document = json_documents.parse(await req.read_control() or b"{}")
        found, url = (_text(document, key) for key in ("model_name", "url"))
        model = req.header(TARGET_MODEL) or found
        # where it is not allowed, the refusal must not depend on what there is
        place = await _threads.run(_find_model, url) if self._is_explicit else Place(url, "")
        arguments = {"path": place.repository, "names": {place.folder: model}, "key": found}
        try:
            await self._gateway.call("repository.register", arguments)
        except errors.AlreadyExists as error:
            resp.status = falcon.HTTP_409
            _answer(resp, {"error": error.text})
            return
        try:
            await load(self._gateway, model, {}, {})
        except ZmqTritonError:
            await self._gateway.call("repository.unregister", {"path": place.repository})
            raise

    async def unload(self, req: HttpRequest, resp: falcon.asgi.Response, name: str) -> None:
        await self._refresh()
        entry = self._models.pop(name, None)
        if entry is None:
            resp.status = falcon.HTTP_404
            return
        model, path = req.header(TARGET_MODEL) or entry["model"], entry["path"]
        await self._gateway.call("unload", {"model": model, "unload_dependents": True})
        for member in await _threads.run(_members, path, entry["folder"]):
            await self._gateway.call("unload", {"model": member})
        await self._gateway.call("repository.unregister", {"path": path})

    async def _refresh(self) -> None:
        self._models = await self._gateway.call("repository.keys", {})

    def _is_ready(self, model: str) -> bool:
        try:
            return self._gateway.catalogue.is_model_ready(model)
        except ZmqTritonError:
            return False


def _find_model(url: str) -> Place:
    """Find the model in a directory; of several, the ensemble. Raises InvalidArgument."""
    path = Path(url).absolute()
    if any(str(path.resolve()).startswith(prefix) for prefix in _NOT_FOR_MODELS):
        raise InvalidArgument(f"'{url}' must be a directory of models")
    if not url or not path.is_dir():
        raise InvalidArgument(f"failed to register '{url}', repository not found")
    if (path / _CONFIG).is_file():
        return Place(str(path.parent), path.name)
    folders = _folders(str(path))
    if not folders:
        raise InvalidArgument(f"failed to register '{url}', put a model into it")
    ensembles = [name for name in folders if _is_ensemble(path / name / _CONFIG)]
    return Place(str(path), (ensembles or folders)[-1])


def _members(path: str, folder: str) -> list[str]:
    """Return the models that came with an ensemble."""
    if not _is_ensemble(Path(path, folder, _CONFIG)):
        return []
    return [other for other in _folders(path) if other != folder]


def _folders(path: str) -> list[str]:
    try:
        return sorted(one.name for one in Path(path).glob("[!.]*") if one.is_dir())
    except OSError:
        return []


def _is_ensemble(config: Path) -> bool:
    try:
        return _ENSEMBLE.search(config.read_text("utf-8", "replace")) is not None
    except OSError:
        return False


def _row(name: str, of: dict[str, str]) -> dict[str, str]:
    return {"modelName": name, "modelUrl": of["path"]}


def _answer(resp: falcon.asgi.Response, document: Any) -> None:
    resp.data = json_documents.write(document)


def _text(document: Any, key: str) -> str:
    value = document.get(key, "") if type(document) is dict else ""
    if type(value) is not str:
        raise InvalidArgument(f"'{key}' must be a string")
    return value
