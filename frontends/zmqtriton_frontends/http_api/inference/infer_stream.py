"""POST /v2/models/{model}/infer_stream: the JSON of infer in, an event for each response out.

For models of any kind, as generate_stream is, but with names, shapes and datatypes. Triton does not
have it. Outputs are JSON, since events are text.
"""

from __future__ import annotations

from typing import Any

import falcon.asgi

from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.wire import RequestBody, ResponseBody
from zmqtriton_frontends.http_api.asgi.request import Request
from zmqtriton_frontends.http_api.inference import (
    binary,
    infer_request,
    infer_response,
    json_documents,
)
from zmqtriton_frontends.http_api.inference.generate import Generate
from zmqtriton_frontends.http_api.inference.generate_response import Writer
from zmqtriton_frontends.inference import admission
from zmqtriton_frontends.inference.catalogue import ModelVersion

_JSON_LENGTH = binary.HEADER.lower().encode()
_ALL_JSON = infer_request.OutputForm({}, default=False)


class InferWriter(Writer):
    """Writes the responses to one request as infer does."""

    def _fields(self, body: ResponseBody) -> dict[str, Any]:
        return infer_response.describe(self.model, self.request_id, body, _ALL_JSON)[0]

    def _in_pieces(self, fields: dict[str, Any]) -> bytes:
        return b"".join(json_documents.pieces(fields, "outputs", "data"))


class InferStream(Generate):
    """The responder."""

    async def infer_stream(
        self, req: Request, resp: falcon.asgi.Response, model: str, version: str = ""
    ) -> None:
        if req.header(_JSON_LENGTH) is not None:
            raise InvalidArgument(f"infer_stream takes JSON alone, without {binary.HEADER}")
        checked = await self._read(req, model, version)
        writer = InferWriter(checked.model, checked.body.request_id)
        await self._send_events(resp, checked, writer)

    def _parse(self, text: bytes, model: ModelVersion) -> tuple[RequestBody, admission.Options]:
        body, options, form = infer_request.read(json_documents.parse(text), None)
        if form.default or any(form.listed.values()) or form.places or form.classes:
            raise InvalidArgument(
                "infer_stream answers with JSON alone: no output can be binary, classes or in "
                "shared memory"
            )
        return body, options
