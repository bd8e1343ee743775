"""The routes of jobs in the HTTP frontend, which pass requests to the process of jobs.

Questions about states go there as well. Nothing is stored here. /openapi.json has the description.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Container, Sequence
from contextlib import suppress
from functools import partial, wraps
from typing import Any

import falcon
import falcon.asgi

from zmqtriton.sdk.frontend import (
    Gateway,
    HttpRequest,
    JsonSchema,
    NotLoaded,
    Operation,
    Route,
    RouteDescriptions,
    bearer_tokens,
    json_documents,
)
from zmqtriton.sdk.wire import InvalidArgument, Unavailable, ZmqTritonError, errors, numbers
from zmqtriton_extras.jobs.channel import Answer, Channel
from zmqtriton_extras.jobs.messages import Document, new_id
from zmqtriton_extras.openai import tensor_names

_CATEGORY = "inference"
_ASYNC = re.compile(r"(?:^|[,;\s])respond-async(?:$|[,;\s])", re.IGNORECASE)
#: Ids of the process of jobs; any other text is no job, and never part of a path.
_ID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")
#: Headers that are about the connection, or are secrets, or are for jobs themselves.
_LEFT_OUT = frozenset(
    (
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "cookie",
        "expect",
        "host",
        "idempotency-key",
        "keep-alive",
        "origin",
        "prefer",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "webhook",
        "x-request-timeout",
    )
)
_MAX_HEADER_BYTES = 32 << 10
#: Larger documents are not read before they are executed.
_MAX_DOCUMENT_BYTES = 64 << 10
_MAX_KEY = 255
#: No directory, so no model, has a longer name.
_MAX_MODEL_BYTES = 255
_MAX_PLACE = 1 << 62
_NONE = "there is no such job; GET /v2/jobs lists yours"
_UNDER_WAY = ("queued", "running")
_JSON = "application/json"
DESCRIPTIONS = RouteDescriptions(
    operations={
        "JobRoutes.list_all": Operation("The newest jobs of the client's token", "", "Jobs", _JSON),
        "JobRoutes.show": Operation(
            "State of a job; with the outputs once it has succeeded", "", "Job", _JSON
        ),
        "JobRoutes.result": Operation("The answer of a job, as the model's route would give it"),
        "JobRoutes.responses": Operation(
            "The responses of a stream so far, from the place `after` on", "", "Responses", _JSON
        ),
        "JobRoutes.delete": Operation("Cancel a job, or remove one that has ended"),
    },
    schemas={
        "Job": JsonSchema.object_of(
            {
                "id": JsonSchema.STRING,
                "path": JsonSchema.STRING,
                "state": {
                    "type": "string",
                    "enum": ["queued", "running", "succeeded", "failed", "cancelled"],
                },
                "place": JsonSchema.COUNT,
                "progress": {"type": "number"},
                "status": JsonSchema.COUNT,
                "reason": JsonSchema.STRING,
                "result": JsonSchema.STRING,
                "response": {},
                "webhook": JsonSchema.object_of(
                    {
                        "url": JsonSchema.STRING,
                        "state": {
                            "type": "string",
                            "enum": ["pending", "sending", "delivered", "failed"],
                        },
                        "tries": JsonSchema.COUNT,
                        "next": {"type": "number"},
                        "problem": JsonSchema.STRING,
                    },
                    "url",
                    "state",
                    "tries",
                ),
            },
            "id",
            "path",
            "state",
        ),
        "Responses": JsonSchema.object_of(
            {
                "state": JsonSchema.STRING,
                "tries": JsonSchema.COUNT,
                "next": JsonSchema.COUNT,
                "responses": JsonSchema.array_of({}),
            },
            "state",
            "tries",
            "next",
            "responses",
        ),
        "Jobs": JsonSchema.object_of(
            {"jobs": JsonSchema.array_of(JsonSchema.named("Job"))}, "jobs"
        ),
    },
)


def routes(gateway: Gateway) -> list[Route]:
    jobs = JobRoutes(gateway)
    return [
        Route("GET", "/v2/jobs", _CATEGORY, jobs.list_all),
        Route("GET", "/v2/jobs/{job:name}", _CATEGORY, jobs.show),
        Route("GET", "/v2/jobs/{job:name}/result", _CATEGORY, jobs.result),
        Route("GET", "/v2/jobs/{job:name}/responses", _CATEGORY, jobs.responses),
        Route("DELETE", "/v2/jobs/{job:name}", _CATEGORY, jobs.delete),
    ]


def with_jobs(gateway: Gateway, table: list[Route]) -> list[Route]:
    """Return the table with inference routes that make a job if the client prefers that."""
    submissions = Submissions(gateway)
    return [
        route._replace(responder=submissions.around(route))
        if route.method == "POST" and _CATEGORY in (route.category, route.general_category)
        else route
        for route in table
    ]


class Submissions:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._channel = Channel.of(gateway)
        self._max_bytes: int = gateway.settings.http.max_input_size
        #: Headers that are not kept on disk: also keys of restricted APIs, which are checked here.
        self._left_out = _LEFT_OUT.union(
            header.lower() for _, header, _ in gateway.settings.access.restrictions
        )

    def around(self, route: Route) -> Any:
        """Return the responder of an inference that may be a job."""
        inner = route.responder

        @wraps(inner)
        async def respond(req: HttpRequest, resp: falcon.asgi.Response, **named: Any) -> None:
            if _ASYNC.search(req.header(b"prefer") or ""):
                await self._submit(req, resp, **named)
            else:
                await inner(req, resp, **named)

        return respond

    async def _submit(
        self, req: HttpRequest, resp: falcon.asgi.Response, model: str = "", version: str = ""
    ) -> None:
        pieces, size = await req.read_pieces(self._max_bytes)
        if model:
            await self._check_model(model, version, req.deadline_ns)
        else:
            pieces = [b"".join(pieces)]
            model = await self._find_model(req, pieces[0])
        key = req.header(b"idempotency-key")
        if key is not None and not 0 < len(key) <= _MAX_KEY:
            raise InvalidArgument(f"the idempotency key must have 1 to {_MAX_KEY} characters")
        document = {
            "verb": "submit",
            # so it becomes one job, although it may be sent to a process and the next one
            "id": new_id(),
            "owner": owner_of(req),
            "key": key,
            "path": req.path,
            "query": req.query_string,
            "model": model,
            "headers": _kept_headers(req, self._left_out),
            "webhook": req.header(b"webhook") or _webhook_in(req, pieces, size),
        }
        answer = await self._channel.ask(document, pieces)
        check(answer.document)
        resp.status = 202
        location = f"/v2/jobs/{answer.document['id']}"
        resp.set_headers({"location": location, "preference-applied": "respond-async"})
        resp.data = _text(answer.document)

    async def _check_model(self, model: str, version: str, deadline_ns: int) -> None:
        """Raise the error of a missing model; a job waits for one that is not ready.

        A name that only the repositories can know is loaded, which shows whether there is a model.
        """
        catalogue = self._gateway.catalogue
        try:
            catalogue.find(model, version)
        except NotLoaded:
            if model not in catalogue.versions():
                with suppress(Unavailable, errors.DeadlineExceeded):
                    await catalogue.attempt(partial(catalogue.find, model, version), deadline_ns)
        except Unavailable:
            return

    async def _find_model(self, req: HttpRequest, text: bytes) -> str:
        """Return the model that a document of OpenAI's API names; "" if its route refuses it."""
        try:
            name = await json_documents.read(req.hold, text, _model_in)
            model = tensor_names.queue_of(self._gateway.catalogue, name) if name else ""
            if not (model and bearer_tokens.may_see(req.grant, model)):
                return ""
            await self._check_model(model, "", req.deadline_ns)
        except ZmqTritonError:
            return ""
        return model


class JobRoutes:
    def __init__(self, gateway: Gateway) -> None:
        self._channel = Channel.of(gateway)

    async def list_all(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        answer = await self._ask(req, "list")
        resp.data = _text({"jobs": answer.document["jobs"]})

    async def show(self, req: HttpRequest, resp: falcon.asgi.Response, job: str) -> None:
        answer = await self._ask(req, "show", job)
        status = answer.document["job"]
        is_told = status["state"] == "succeeded" and answer.content_type.startswith(_JSON)
        if not is_told:
            await answer.drop()
            resp.data = _text(status)
            return
        # the outputs stand in the document as the model's route has written them
        begin = _text(status)[:-1] + b',"response":'
        stream(resp, answer, begin, b"}")

    async def result(self, req: HttpRequest, resp: falcon.asgi.Response, job: str) -> None:
        answer = await self._ask(req, "show", job)
        status = answer.document["job"]
        if "status" not in status:
            await answer.drop()
            raise falcon.HTTPError(
                409, description=f"the job is {status['state']}: wait for its end"
            )
        resp.status = status["status"]
        resp.set_headers(answer.document["headers"])
        stream(resp, answer)

    async def responses(self, req: HttpRequest, resp: falcon.asgi.Response, job: str) -> None:
        after = req.get_param_as_int("after", min_value=0, max_value=_MAX_PLACE, default=0)
        answer = await self._ask(req, "responses", job, after=after)
        document = answer.document
        # the responses stand in it as the model's route has written them
        responses = ",".join(document.pop("responses")).encode()
        resp.data = _text(document)[:-1] + b',"responses":[' + responses + b"]}"

    async def delete(self, req: HttpRequest, resp: falcon.asgi.Response, job: str) -> None:
        """Cancel a job, or remove one that has ended.

        The decision is made here, so that a repeated question does not remove the job that it has
        cancelled.
        """
        status = (await self._ask(req, "describe", job)).document["job"]
        if status["state"] in _UNDER_WAY:
            status = (await self._ask(req, "cancel", job)).document["job"]
        else:
            await self._ask(req, "remove", job)
        resp.data = _text(status)

    async def _ask(
        self, req: HttpRequest, verb: str, job: str | None = None, **more: Any
    ) -> Answer:
        document: Document = {"verb": verb, "owner": owner_of(req), **more}
        if job is not None:
            if not _ID.fullmatch(job):
                raise falcon.HTTPError(404, description=_NONE)
            document["id"] = job
        answer = await self._channel.ask(document)
        check(answer.document)
        return answer


def stream(
    resp: falcon.asgi.Response, answer: Answer, begin: bytes = b"", end: bytes = b""
) -> None:
    """Send a stored answer, read from disk at the client's pace."""

    async def pieces() -> AsyncIterator[bytes]:
        if begin:
            yield begin
        async for part in answer.parts():
            yield part
        if end:
            yield end

    resp.content_length = len(begin) + answer.size + len(end)
    resp.stream = pieces()


def check(document: Document) -> None:
    """Raise the refusal of the process of jobs."""
    if "refusal" in document:
        raise falcon.HTTPError(document["refusal"], description=document["reason"])


def owner_of(req: HttpRequest) -> str:
    """Return the owner of a client's jobs: the name of its token."""
    return "" if req.grant is None else req.grant.name


def _webhook_in(req: HttpRequest, pieces: Sequence[bytes], size: int) -> str:
    """Return the member `webhook` of an infer document, which models do not see; "" without one."""
    if size > _MAX_DOCUMENT_BYTES or not req.path.endswith("/infer"):
        return ""
    text = b"".join(pieces)
    if b'"webhook"' not in text:
        return ""
    length: Any = numbers.in_text(req.header(b"inference-header-content-length") or "")
    try:
        webhook = json.loads(text[:length])["webhook"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return ""  # the route tells what is wrong with it
    if type(webhook) is not str:
        raise InvalidArgument("the member 'webhook' must be a URL")
    return webhook


def _model_in(text: bytes) -> str:
    document = json_documents.parse(text)
    name = document.get("model") if type(document) is dict else None
    return name if type(name) is str and len(name.encode()) <= _MAX_MODEL_BYTES else ""


def _kept_headers(req: HttpRequest, left_out: Container[str]) -> list[tuple[str, str]]:
    headers = [
        (name.lower(), value.decode("latin-1"))
        for name, value in req.spelled_headers()
        if name.lower() not in left_out
    ]
    if sum(len(name) + len(value) for name, value in headers) > _MAX_HEADER_BYTES:
        raise InvalidArgument(f"the headers of a job can have at most {_MAX_HEADER_BYTES} bytes")
    return headers


def _text(document: Document) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
