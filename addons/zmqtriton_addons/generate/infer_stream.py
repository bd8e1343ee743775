"""POST /v2/models/{model}/infer_stream: the JSON of infer in, an event for each response out.

For models of any kind, as generate_stream is, but with names, shapes and datatypes. Triton does not
have it. What comes in may be binary and compressed, as for infer; outputs are JSON, since events
are text, and each is sent when it comes, so they are not compressed.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import falcon.asgi

from zmqtriton_addons.generate.responders import Generate
from zmqtriton_addons.generate.response import Writer
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.wire import ResponseBody
from zmqtriton_frontends.entrance import Content
from zmqtriton_frontends.http_api import JSON_LENGTH, Request
from zmqtriton_frontends.http_api.inference import (
    binary,
    infer_request,
    infer_response,
    json_documents,
)
from zmqtriton_frontends.inference import ModelVersion, now_ns

_ALL_JSON = infer_request.OutputForm({}, default=False)


class InferWriter(Writer):
    """Writes the responses to one request as infer does."""

    def _fields(self, body: ResponseBody) -> dict[str, Any]:
        return infer_response.describe(self.model, self.request_id, body, _ALL_JSON)[0]

    def _pieces(self, fields: dict[str, Any]) -> list[bytes]:
        return json_documents.pieces(fields, "outputs", "data")


class InferStream(Generate):
    """The responder."""

    async def infer_stream(
        self, req: Request, resp: falcon.asgi.Response, model: str, version: str = ""
    ) -> None:
        begun_ns = now_ns()
        # before anything is refused: an answer to half a body would be lost with the connection
        with await self._inference.receive(req) as body:
            read = partial(self._read_body, body, req.header(JSON_LENGTH))
            ask = self._ask(req, (model, version), read, begun_ns)
            checked = await self._inference.entrance.admit(
                ask._replace(spelled_headers=req.spelled_headers)
            )
            await self._send_events(req, resp, checked, InferWriter)

    def _read_body(self, body: Any, header: str | None, model: ModelVersion) -> Content:
        length = None if header is None else binary.json_length(header, len(body))
        return self._inference.read(_AllJson(), body, length, model)


class _AllJson:
    """Raises InvalidArgument where a client wants other answers."""

    takes_streams = True

    @property
    def form(self) -> infer_request.OutputForm:
        return _ALL_JSON

    @form.setter
    def form(self, form: infer_request.OutputForm) -> None:
        if form.default or any(form.listed.values()) or form.places or form.classes:
            raise InvalidArgument(
                "infer_stream answers with JSON alone: no output can be binary, classes or in "
                "shared memory"
            )
