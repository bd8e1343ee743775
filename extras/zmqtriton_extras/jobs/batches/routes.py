"""The routes of files and batches in the HTTP frontend; the process of jobs answers.

Files pass through as they arrive. Nothing is stored here. /openapi.json has the description.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import falcon
import falcon.asgi

from zmqtriton.sdk.frontend import (
    Gateway,
    HttpRequest,
    JsonSchema,
    Operation,
    Route,
    RouteDescriptions,
)
from zmqtriton.sdk.wire import InvalidArgument, Unavailable, errors, numbers, shown
from zmqtriton_extras.jobs.channel import Answer, Channel
from zmqtriton_extras.jobs.messages import Document, new_id
from zmqtriton_extras.jobs.routes import check, owner_of, stream
from zmqtriton_extras.openai.problems import RefusedField

Responder = Callable[..., Awaitable[None]]

_CATEGORY, _GENERAL = "openai", "inference"
#: Ids of the process of jobs; any other text is no id, and never part of a path.
_FILE_ID = re.compile(r"file-[0-9A-HJKMNP-TV-Z]{26}")
_BATCH_ID = re.compile(r"batch_[0-9A-HJKMNP-TV-Z]{26}")
#: Maximum bytes of an upload with its form. OpenAI takes 512 MB.
MAX_UPLOAD_BYTES = 512 << 20
_MAX_FILES, _MAX_BATCHES, _USUAL_BATCHES = 10_000, 100, 20
_USUAL_FILES = 1000
_MAX_METADATA, _MAX_KEY, _MAX_VALUE = 16, 64, 512
_WINDOW = re.compile(r"([1-9][0-9]{0,8})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}
_JSON = "application/json"
_METADATA: dict[str, Any] = {"type": "object", "additionalProperties": JsonSchema.STRING}


def _list_of(name: str) -> dict[str, Any]:
    return JsonSchema.object_of(
        {
            "object": JsonSchema.STRING,
            "data": JsonSchema.array_of(JsonSchema.named(name)),
            "first_id": JsonSchema.STRING,
            "last_id": JsonSchema.STRING,
            "has_more": JsonSchema.BOOLEAN,
        },
        "object",
        "data",
        "has_more",
    )


DESCRIPTIONS = RouteDescriptions(
    operations={
        "FileRoutes.create": Operation(
            "Keep a file of requests: a form with `purpose`, which is `batch`, and `file`",
            "",
            "OpenAIFile",
            _JSON,
        ),
        "FileRoutes.list_all": Operation(
            "The files of the client's token: `purpose`, `limit`, `order`, `after`",
            "",
            "OpenAIFiles",
            _JSON,
        ),
        "FileRoutes.show": Operation("One file", "", "OpenAIFile", _JSON),
        "FileRoutes.content": Operation("What the file contains"),
        "FileRoutes.delete": Operation("Remove a file"),
        "BatchRoutes.create": Operation(
            "Execute each line of a file", "BatchRequest", "OpenAIBatch", _JSON
        ),
        "BatchRoutes.list_all": Operation(
            "The batches of the client's token, the newest first: `limit`, `after`",
            "",
            "OpenAIBatches",
            _JSON,
        ),
        "BatchRoutes.show": Operation("One batch", "", "OpenAIBatch", _JSON),
        "BatchRoutes.cancel": Operation(
            "Cancel a batch; what its lines have answered is kept", "", "OpenAIBatch", _JSON
        ),
    },
    schemas={
        "OpenAIFile": JsonSchema.object_of(
            {
                "id": JsonSchema.STRING,
                "object": JsonSchema.STRING,
                "bytes": JsonSchema.COUNT,
                "created_at": JsonSchema.COUNT,
                "expires_at": JsonSchema.COUNT,
                "filename": JsonSchema.STRING,
                "purpose": JsonSchema.STRING,
                "status": JsonSchema.STRING,
            },
            "id",
            "object",
            "bytes",
            "created_at",
            "filename",
            "purpose",
            "status",
        ),
        "OpenAIFiles": _list_of("OpenAIFile"),
        "BatchRequest": JsonSchema.object_of(
            {
                "input_file_id": JsonSchema.STRING,
                "endpoint": JsonSchema.STRING,
                "completion_window": JsonSchema.STRING,
                "metadata": _METADATA,
            },
            "input_file_id",
            "endpoint",
            "completion_window",
        ),
        "OpenAIBatch": JsonSchema.object_of(
            {
                "id": JsonSchema.STRING,
                "object": JsonSchema.STRING,
                "endpoint": JsonSchema.STRING,
                "input_file_id": JsonSchema.STRING,
                "completion_window": JsonSchema.STRING,
                "status": JsonSchema.STRING,
                "errors": {},
                "output_file_id": {"type": ["string", "null"]},
                "error_file_id": {"type": ["string", "null"]},
                "request_counts": JsonSchema.object_of(
                    {
                        "total": JsonSchema.COUNT,
                        "completed": JsonSchema.COUNT,
                        "failed": JsonSchema.COUNT,
                    },
                    "total",
                    "completed",
                    "failed",
                ),
                "metadata": {},
            },
            "id",
            "object",
            "endpoint",
            "input_file_id",
            "completion_window",
            "status",
        ),
        "OpenAIBatches": _list_of("OpenAIBatch"),
    },
)


def routes(gateway: Gateway) -> list[Route]:
    files, batches = FileRoutes(gateway), BatchRoutes(gateway)
    rows: list[tuple[str, str, Responder]] = [
        ("POST", "/v1/files", files.create),
        ("GET", "/v1/files", files.list_all),
        ("GET", "/v1/files/{file:name}", files.show),
        ("GET", "/v1/files/{file:name}/content", files.content),
        ("DELETE", "/v1/files/{file:name}", files.delete),
        ("POST", "/v1/batches", batches.create),
        ("GET", "/v1/batches", batches.list_all),
        ("GET", "/v1/batches/{batch:name}", batches.show),
        ("POST", "/v1/batches/{batch:name}/cancel", batches.cancel),
    ]
    return [Route(method, path, _CATEGORY, act, _GENERAL) for method, path, act in rows]


class _Asking:
    def __init__(self, gateway: Gateway) -> None:
        self._channel = Channel.of(gateway)

    async def _ask(self, req: HttpRequest, verb: str, **more: Any) -> Answer:
        document = {"verb": verb, "owner": owner_of(req), **more}
        answer = await self._channel.ask(document)
        check(answer.document)
        return answer

    async def _answer(
        self, req: HttpRequest, resp: falcon.asgi.Response, verb: str, **more: Any
    ) -> None:
        answer = await self._ask(req, verb, **more)
        resp.data = json.dumps(answer.document).encode()


class FileRoutes(_Asking):
    async def create(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        if (req.header(b"content-encoding") or "identity").strip().lower() != "identity":
            await req.drop_body()
            raise falcon.HTTPError(415, description="a file must come without content-encoding")
        document = {
            "verb": "file create",
            "owner": owner_of(req),
            "content_type": req.header(b"content-type") or "",
        }
        answer = await self._channel.send_in_frames(document, _parts(req))
        check(answer.document)
        resp.data = json.dumps(answer.document).encode()

    async def list_all(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        order = req.get_param("order") or "desc"
        if order not in ("asc", "desc"):
            raise RefusedField("'order' must be 'asc' or 'desc'", "order")
        page = _page(req, _FILE_ID, _USUAL_FILES, _MAX_FILES)
        purpose = req.get_param("purpose") or ""
        await self._answer(req, resp, "file list", **page, order=order, purpose=purpose)

    async def show(self, req: HttpRequest, resp: falcon.asgi.Response, file: str) -> None:
        await self._answer(req, resp, "file show", id=_checked(_FILE_ID, file))

    async def content(self, req: HttpRequest, resp: falcon.asgi.Response, file: str) -> None:
        answer = await self._ask(req, "file content", id=_checked(_FILE_ID, file))
        resp.content_type = "application/octet-stream"
        stream(resp, answer)

    async def delete(self, req: HttpRequest, resp: falcon.asgi.Response, file: str) -> None:
        await self._ask(req, "file show", id=_checked(_FILE_ID, file))
        await self._answer(req, resp, "file delete", id=file)


class BatchRoutes(_Asking):
    async def create(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        text = await req.read_control()
        own_id = f"batch_{new_id()}"
        await self._answer(req, resp, "batch create", id=own_id, **_request(text))

    async def list_all(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        page = _page(req, _BATCH_ID, _USUAL_BATCHES, _MAX_BATCHES)
        await self._answer(req, resp, "batch list", **page)

    async def show(self, req: HttpRequest, resp: falcon.asgi.Response, batch: str) -> None:
        await self._answer(req, resp, "batch show", id=_checked(_BATCH_ID, batch))

    async def cancel(self, req: HttpRequest, resp: falcon.asgi.Response, batch: str) -> None:
        await req.drop_body()
        await self._answer(req, resp, "batch cancel", id=_checked(_BATCH_ID, batch))


async def _parts(req: HttpRequest) -> AsyncIterator[bytes]:
    """Yield the pieces of the body as they arrive, one at a time. Raises if it is incomplete."""
    read = req.begin_body()
    while True:
        for piece in read.pieces:
            yield piece
        req.hold(-sum(map(len, read.pieces)))
        read.pieces.clear()
        if not read.has_more:
            break
        await req.read_piece(read, MAX_UPLOAD_BYTES)
    if read.is_refused:
        raise Unavailable(errors.NO_MEMORY)
    if read.size > MAX_UPLOAD_BYTES:
        text = f"a file and its form must have no more than {MAX_UPLOAD_BYTES} bytes"
        raise falcon.HTTPError(413, description=text)


def _checked(form: re.Pattern[str], name: str) -> str:
    """Return an id as the process of jobs makes them. Raises the error of any other name."""
    if not form.fullmatch(name):
        raise falcon.HTTPError(
            404, description=f"There is no '{shown(name)}': list yours without an id"
        )
    return name


def _page(req: HttpRequest, form: re.Pattern[str], usual: int, maximum: int) -> Document:
    """Return the part of a list that a client requests."""
    text, after = req.get_param("limit"), req.get_param("after")
    try:
        limit = numbers.integer(
            "limit", usual if text is None else numbers.in_text(text), 1, maximum
        )
    except InvalidArgument as error:
        raise RefusedField(error.text, "limit") from None
    return {"limit": limit, "after": after and _checked(form, after)}


def _request(body: bytes) -> Document:
    """Return a client's request for a batch. Raises RefusedField."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RefusedField(f"the request must be JSON: {error}", "") from None
    if type(fields) is not dict:
        raise RefusedField("the request must be a JSON object", "")
    for name in ("input_file_id", "endpoint", "completion_window"):
        if type(fields.get(name)) is not str:
            raise RefusedField(f"'{name}' must be a text", name)
    expiry = fields.get("output_expires_after") or {}
    if type(expiry) is not dict:
        raise RefusedField("'output_expires_after' must be an object", "output_expires_after")
    window = fields["completion_window"]
    match = _WINDOW.fullmatch(window)
    if match is None:
        raise RefusedField("'completion_window' must be a time such as '24h'", "completion_window")
    return {
        "input": _checked(_FILE_ID, fields["input_file_id"]),
        "endpoint": fields["endpoint"],
        "window": window,
        "window_s": int(match[1]) * _SECONDS[match[2]],
        "metadata": _metadata(fields.get("metadata")),
        "output_expires_after": expiry,
    }


def _metadata(metadata: Any) -> dict[str, str] | None:
    if metadata is None:
        return None
    is_right = type(metadata) is dict and len(metadata) <= _MAX_METADATA
    for name, value in metadata.items() if is_right else ():
        is_right = is_right and len(name) <= _MAX_KEY
        is_right = is_right and type(value) is str and len(value) <= _MAX_VALUE
    if not is_right:
        text = (
            f"'metadata' must be at most {_MAX_METADATA} texts of up to {_MAX_VALUE} characters, "
            f"with names of up to {_MAX_KEY}"
        )
        raise RefusedField(text, "metadata")
    return dict(metadata)
