"""The routes of generate and of infer_stream."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import Any

import falcon.asgi

from zmqtriton.sdk.frontend import (
    Ask,
    CheckedRequest,
    Content,
    Gateway,
    HttpExtension,
    HttpRequest,
    ModelVersion,
    Route,
    admission,
    infer,
    infer_request,
    json_documents,
    now_ns,
    problems,
    response_encoding,
)
from zmqtriton.sdk.wire import InternalError, InvalidArgument, wire
from zmqtriton_standard.generate import request as generate_request
from zmqtriton_standard.generate.response import (
    Events,
    Writer,
    error_document,
)

_MODEL = "/v2/models/{model:name}"
_ALL_JSON = infer_request.OutputForm({}, default=False)
_NOT_ONE = InternalError(
    "generate expects model to produce exactly 1 response, use generate stream for model that "
    "generates various number of responses"
)

#: Types of bodies that are JSON, whatever clients call it: curl a form, browsers a text.
_JSON = re.compile(r"\s*($|;|text/|application/x-www-form-urlencoded|[^\s;,]+[+/]json\b)", re.I)


class Generate:
    """POST …/generate and …/generate_stream: flat JSON in, flat JSON or events out.

    A body of another type, such as a picture, is the value of the model's one BYTES input. Serves
    decoupled and other models. The first response decides the status; later errors are part of the
    body. When a client leaves, its connection cancels the task, and the task cancels the request.
    """

    def __init__(self, inference: infer.Inference) -> None:
        self._inference = inference
        self._forwards = inference.gateway.settings.option("http_header_forward_generate")

    async def generate(
        self, req: HttpRequest, resp: falcon.asgi.Response, model: str, version: str = ""
    ) -> None:
        checked = await self._read(req, model, version)
        writer = Writer(checked.model, checked.body.request_id, req.wait_for_room)
        documents_written: list[bytes] = []
        async with aclosing(self._inference.entrance.responses(checked, req.arrivals())) as items:
            async for item in items:
                document, status = await writer.document(item)
                if not document:
                    continue
                if not documents_written:
                    resp.status = status
                    resp.set_headers(problems.headers(status))
                documents_written.append(document)
                if len(documents_written) > 1:
                    break  # and the request is cancelled
        resp.data = (
            documents_written[0] if len(documents_written) == 1 else error_document(_NOT_ONE)
        )
        resp.set_headers(admission.texts_of(await admission.reported(checked.reports)))

    async def generate_stream(
        self, req: HttpRequest, resp: falcon.asgi.Response, model: str, version: str = ""
    ) -> None:
        await self._send_events(req, resp, await self._read(req, model, version), Writer)

    async def _send_events(
        self,
        req: HttpRequest,
        resp: falcon.asgi.Response,
        checked: CheckedRequest,
        form: type[Writer],
    ) -> None:
        """Send an event for each response; the first one decides the HTTP status."""
        writer = form(checked.model, checked.body.request_id, req.wait_for_room)
        items = self._inference.entrance.responses(checked, req.arrivals())
        first = await anext(items)
        event, status = await writer.first_event(first)
        resp.status = status
        resp.set_headers(problems.headers(status))
        resp.content_type = "text/event-stream; charset=utf-8"
        resp.set_headers(admission.texts_of(await admission.reported(checked.reports)))
        if first.is_final:
            resp.data = event
        else:
            resp.stream = Events(event, items, writer.event, turn=req.turn, made=req.made)

    async def _read(self, req: HttpRequest, model: str, version: str) -> CheckedRequest:
        begun_ns = now_ns()
        # before anything is refused: an answer to half a body would be lost with the connection
        text = await req.read_body(self._inference.max_input_size)
        return await self._inference.entrance.admit(
            self._ask(req, (model, version), partial(_parse, req, text), begun_ns)
        )

    def _ask(
        self,
        req: HttpRequest,
        target: tuple[str, str],
        read: Callable[[ModelVersion], Content],
        begun_ns: int,
    ) -> Ask:
        """Return a request; as in Triton its model gets no headers, unless an option is set."""
        steps = self._inference.reports.wanted_by(req.header)
        return Ask(
            target,
            read,
            req.header,
            req.spelled_headers if self._forwards else None,
            req.grant,
            req.deadline_ns,
            begun_ns,
            steps,
            req.source,
        )


def _parse(req: HttpRequest, text: bytes, model: ModelVersion) -> Content:
    """Parse a body. Raises InvalidArgument; raises TakesLong for a large one, to use a thread."""
    if (req.header(b"content-encoding") or "").strip().lower() not in ("", "identity"):
        raise InvalidArgument("Unsupported content-encoding, only 'identity' is supported.")
    kind = req.header(b"content-type") or ""
    if kind.startswith("multipart/"):
        raise InvalidArgument(
            "Send the file alone, with its own content-type: multipart is not read."
        )
    if not _JSON.match(kind):
        return Content(generate_request.read_bytes(text, model.signature.inputs))
    return json_documents.read_now(req.hold, text or b"{}", _read_text, model)


def _read_text(text: bytes, model: ModelVersion) -> Content:
    """Read a body. If an input is missing, the error names keys that became parameters."""
    body = generate_request.read_text(text, model.signature.inputs)
    others = [f"'{name}'" for name in body.parameters if name != "id"]
    if others and model.signature.find_missing(body.inputs):
        try:
            model.signature.check(body)
        except InvalidArgument as error:
            raise InvalidArgument(
                f"{error.text} Its inputs are {', '.join(model.signature.inputs)}; none of them: "
                f"{', '.join(others[:3])}."
            ) from None
    return Content(body)


class InferWriter(Writer):
    """Writes the responses to a request in the form of `infer`."""

    def _fields(self, body: wire.ResponseBody) -> dict[str, Any]:
        return response_encoding.describe(self.model, self.request_id, body, _ALL_JSON)[0]


class InferStream(Generate):
    """POST …/infer_stream: the JSON of infer in, an event for each response out.

    Like generate_stream it serves models of any kind, but with names, shapes and datatypes. Triton
    does not have this route. Requests may be binary and compressed, as for infer. Outputs are JSON,
    since events are text; they are not compressed, because each is sent when it comes.
    """

    async def infer_stream(
        self, req: HttpRequest, resp: falcon.asgi.Response, model: str, version: str = ""
    ) -> None:
        begun_ns = now_ns()
        # before anything is refused: an answer to half a body would be lost with the connection
        with await self._inference.receive(req) as body:
            length = req.header(b"inference-header-content-length")
            read = partial(self._inference.read, req.hold, body, length, takes_streams=True)
            ask = self._ask(req, (model, version), read, begun_ns)
            checked = await self._inference.entrance.admit(
                ask._replace(spelled_headers=req.spelled_headers, steps=(_check_form, *ask.steps))
            )
            await self._send_events(req, resp, checked, InferWriter)


def _check_form(ask: Ask, checked: CheckedRequest) -> CheckedRequest:
    """Raise InvalidArgument if a client requests responses in another form than JSON."""
    form = checked.form
    if form.default or any(form.listed.values()) or form.places or form.classes:
        raise InvalidArgument(
            "infer_stream answers with JSON alone: no output can be binary, classes or in "
            "shared memory"
        )
    return checked


def _routes(gateway: Gateway) -> list[Route]:
    inference = infer.Inference(gateway)
    generate = Generate(inference)
    responders = {
        "generate": generate.generate,
        "generate_stream": generate.generate_stream,
        "infer_stream": InferStream(inference).infer_stream,
    }
    return [
        Route("POST", f"{model}/{verb}", "inference", responder)
        for verb, responder in responders.items()
        for model in (_MODEL, f"{_MODEL}/versions/{{version:number}}")
    ]


EXTENSION = HttpExtension(routes=_routes)
