"""POST /v2/models/{model}/infer_stream: the JSON of infer in, an event for each response out.

For models of any kind, as generate_stream is, but with names, shapes and datatypes. Triton does not
have it. What comes in may be binary and compressed, as for infer; outputs are JSON, since events
are text, and each is sent when it comes, so they are not compressed.
"""

from __future__ import annotations

from typing import Any

import falcon.asgi

from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.wire import ResponseBody
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.http_api.asgi.request import Request
from zmqtriton_frontends.http_api.inference import infer_request, infer_response, json_documents
from zmqtriton_frontends.http_api.inference.generate import Generate
from zmqtriton_frontends.http_api.inference.generate_response import Writer
from zmqtriton_frontends.http_api.inference.infer import Inference
from zmqtriton_frontends.inference import admission
from zmqtriton_frontends.inference.load_on_demand import NotLoaded
from zmqtriton_frontends.inference.request_trace import now_ns

_ALL_JSON = infer_request.OutputForm({}, default=False)


class InferWriter(Writer):
    """Writes the responses to one request as infer does."""

    def _fields(self, body: ResponseBody) -> dict[str, Any]:
        return infer_response.describe(self.model, self.request_id, body, _ALL_JSON)[0]

    def _pieces(self, fields: dict[str, Any]) -> list[bytes]:
        return json_documents.pieces(fields, "outputs", "data")


class InferStream(Generate):
    """The responder."""

    def __init__(self, gateway: Gateway, inference: Inference) -> None:
        super().__init__(gateway)
        self._inference = inference

    async def infer_stream(
        self, req: Request, resp: falcon.asgi.Response, model: str, version: str = ""
    ) -> None:
        begun_ns = now_ns()
        # before anything is refused: an answer to half a body would be lost with the connection
        with await self._inference.receive(req) as body:
            try:
                checked = await self._check_body(req, body, (model, version), begun_ns)
            except NotLoaded as missing:
                await missing.load(req.deadline_ns)
                checked = await self._check_body(req, body, (model, version), begun_ns)
            writer = InferWriter(checked.model, checked.body.request_id, req.wait_for_room)
            await self._send_events(req, resp, checked, writer)

    async def _check_body(
        self, req: Request, body: Any, target: tuple[str, str], begun_ns: int
    ) -> admission.CheckedRequest:
        find = self._gateway.catalogue.find
        request, options, form = await self._inference.read(req, find(*target), body)
        if form.default or any(form.listed.values()) or form.places or form.classes:
            raise InvalidArgument(
                "infer_stream answers with JSON alone: no output can be binary, classes or in "
                "shared memory"
            )
        # found again: while a thread read the document the model may have been reloaded
        return self._admit(req, find(*target), request, options, begun_ns)
