"""One inference over HTTP, from its whole body to its encoded answer, without a task or a future.

Where the body comes from and where the answer goes is a subclass's: a connection's
(server/inference_exchange.py), or that of an add-on's endpoint (asgi_inference.py).
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from zmqtriton_floor.errors import (
    TOO_MANY_UNREAD,
    Unavailable,
    ZmqTritonError,
)
from zmqtriton_floor.wire import ResponseBody, make
from zmqtriton_frontends.entrance.ask import Ask, Content
from zmqtriton_frontends.gateway.pending_request import PendingRequest
from zmqtriton_frontends.http_api.asgi import problems
from zmqtriton_frontends.http_api.inference import tensor_data
from zmqtriton_frontends.http_api.inference.heads import (
    WITH_BODY,
    InferenceHead,
    refusal,
)
from zmqtriton_frontends.http_api.inference.infer import JSON_LENGTH, Body, Inference
from zmqtriton_frontends.http_api.inference.infer_request import OutputForm
from zmqtriton_frontends.http_api.inference.response_encoding import (
    Encoded,
    ResponseFormat,
    size_of_response,
)
from zmqtriton_frontends.inference.admission import CheckedRequest, Report, reported, texts_of
from zmqtriton_frontends.inference.model_version import ModelVersion


class HttpInference(PendingRequest):
    """A request whose answer is a status and a body."""

    SENDING = "HTTP_SEND"
    takes_streams = False

    __slots__ = ("_begun_ns", "_format", "_head", "_inference", "_reports", "form")

    def __init__(self, inference: Inference, head: InferenceHead, begun_ns: int = 0) -> None:
        """Set up for a request that has begun at `begun_ns`, or else now."""
        super().__init__(inference.gateway)
        self._inference = inference
        self._head = head
        #: Time at which the request began; its deadline counts from then on.
        self._begun_ns = begun_ns or time.monotonic_ns()
        #: The form of its outputs, as its client wants it.
        self.form: OutputForm
        self._format: ResponseFormat
        #: Reports that make the headers beside its answer.
        self._reports: tuple[Report, ...] = ()

    def begin(self, body: Body) -> None:
        """Begin; the answer may be given before this returns."""
        head, inference = self._head, self._inference
        fields, begun_ns = head.fields, self._begun_ns
        if head.json_length == WITH_BODY:
            read: Any = partial(self._read, body)
        else:
            read = partial(inference.read, self, body, head.json_length)
        ask = (
            head.target,
            read,
            fields.header,
            fields.spelled_headers,
            head.grant,
            head.timeout_ns and begun_ns + head.timeout_ns,
            begun_ns,
            inference.reports if head.has_wishes else (),
            head.source,
        )
        inference.entrance.begin(make(Ask, ask), self)

    def _read(self, body: Body, model: ModelVersion) -> Content:
        length = tensor_data.json_length(self._head.fields.header(JSON_LENGTH) or "", len(body))
        return self._inference.read(self, body, length, model)

    def start(self, checked: CheckedRequest) -> None:
        self._format = make(
            ResponseFormat,
            (checked.model, checked.body.request_id, self.form, self._head.accepted),
        )
        self._reports = checked.reports
        if checked.options.correlation:
            self._note_sequence(checked)
        self._send(checked)

    def _respond(self, response: ResponseBody) -> None:
        form = self._format
        if form.takes_long(response):
            # one after the other, and until then it lies in the memory of its model
            if not self._has_room(size_of_response(response)):
                raise Unavailable(TOO_MANY_UNREAD)
            self.wait(form.encode_aside(response), self._encoded)
        elif not self._reports and self._observer is None:
            self._answer(200, form.encode(response))
        else:
            self._encoded(form.encode(response))

    def _encoded(self, encoded: Encoded) -> None:
        if self._reports:
            self.wait(self._with_reports(encoded), self._succeed)
        else:
            self._succeed(encoded)

    async def _with_reports(self, encoded: Encoded) -> Encoded:
        headers, text, tail = encoded
        return (*headers, *texts_of(await reported(self._reports))), text, tail

    def _succeed(self, encoded: Encoded) -> None:
        self._end_observed()
        self._answer(200, encoded)

    def _refuse(self, error: Exception) -> None:
        if isinstance(error, ZmqTritonError):
            self._answer(*refusal(error))
            return
        status, text = problems.fault("POST", self._head.path, error)
        self._answer(status, (problems.headers(status), text, []))

    def _note_sequence(self, checked: CheckedRequest) -> None:
        """Note a request of a sequence that is about to be sent."""

    def hold(self, size: int) -> None:
        """Account for more memory, or for less. Raises Unavailable without any."""
        raise NotImplementedError

    def _has_room(self, size: int) -> bool:
        """Book an answer that waits to be encoded; False if there is no room for it."""
        raise NotImplementedError

    def _answer(self, status: int, encoded: Encoded) -> None:
        """Give the answer to the client."""
        raise NotImplementedError
