"""One inference over HTTP, from its whole body to its encoded answer, without a task or a future.

Where the body comes from and where the answer goes is a subclass's: a connection's
(server/inference_exchange.py), or that of an add-on's endpoint (asgi_inference.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, Protocol

from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.errors import (
    TOO_MANY_UNREAD,
    Unavailable,
    ZmqTritonError,
)
from zmqtriton_floor.token_file import Grant
from zmqtriton_floor.wire import ResponseBody, make
from zmqtriton_frontends.access.refusals import Source
from zmqtriton_frontends.entrance.ask import Ask, Content
from zmqtriton_frontends.entrance.reports import are_wanted
from zmqtriton_frontends.gateway.pending_request import PendingRequest
from zmqtriton_frontends.http1 import MAX_BODY_BYTES
from zmqtriton_frontends.http_api.asgi import problems, request
from zmqtriton_frontends.http_api.inference import tensor_data
from zmqtriton_frontends.http_api.inference.infer import JSON_LENGTH, Body, Inference
from zmqtriton_frontends.http_api.inference.infer_request import OutputForm
from zmqtriton_frontends.http_api.inference.response_encoding import (
    Encoded,
    ResponseFormat,
    size_of_response,
)
from zmqtriton_frontends.inference.admission import CheckedRequest, Report, reported, texts_of
from zmqtriton_frontends.inference.model_version import ModelVersion

#: The length of the JSON is to be read when the size of the whole body is known.
_WITH_BODY = -1
#: A small body that comes whole takes no room in the ledger. More is kept of it until the answer.
MAX_UNBOOKED_BYTES = 8 << 10

Answer = tuple[int, Encoded]


class Fields(Protocol):
    """The headers of a request."""

    def header(self, name: bytes) -> str | None:
        """Return the value of a header, given in lower case; one sent twice has a comma in it."""

    def spelled_headers(self) -> Iterable[tuple[str, bytes]]:
        """Return all headers as the client wrote them, as far as that is known."""


class InferenceHead(NamedTuple):
    """The part of a head that counts for an inference.

    Equal requests share it, so nothing of one request may be here, such as when it came.
    """

    target: tuple[str, str]
    #: As the client wrote it.
    path: str
    fields: Fields
    #: None if it comes in chunks.
    body_bytes: int | None
    #: More than that is refused.
    max_bytes: int
    #: A body of this size that comes whole takes no room.
    unbooked_bytes: int = -1
    #: Most of the body is tensors, which stubs will map.
    is_large: bool = False
    #: Inference-Header-Content-Length; None if all is JSON, below 0 if the body has to be there.
    json_length: int | None = None
    #: Content-Encoding.
    coding: str | None = None
    #: Accept-Encoding.
    accepted: str | None = None
    #: X-Request-Timeout; 0 for none.
    timeout_ns: int = 0
    #: Its client wants to be told more beside the answer.
    has_wishes: bool = False
    #: That of the client's token, where one is needed.
    grant: Grant | None = None
    #: The answer to a request that goes no further.
    refusal: Answer | None = None
    #: Returns the client's address, protocol and route.
    source: Callable[[], Source] | None = None


def read_head(head: InferenceHead) -> InferenceHead:
    """Return the same with what its headers say. Raises InvalidArgument."""
    header, size, max_bytes = head.fields.header, head.body_bytes, head.max_bytes
    coding, length_text = header(b"content-encoding"), header(JSON_LENGTH)
    unbooked_bytes, is_large, json_length = -1, False, None
    if length_text is not None:
        json_length, max_bytes = _WITH_BODY, MAX_BODY_BYTES
    if size is not None and coding is None:
        if length_text is not None and (at := tensor_data.tensors_at(length_text, size)) < size:
            json_length, is_large = at, size - at > INLINE_BYTES
        if size <= MAX_UNBOOKED_BYTES:
            unbooked_bytes = size
    timeout = header(request.TIMEOUT_HEADER)
    return head._replace(
        max_bytes=max_bytes,
        unbooked_bytes=unbooked_bytes,
        is_large=is_large,
        json_length=json_length,
        coding=coding,
        accepted=header(b"accept-encoding"),
        timeout_ns=0 if timeout is None else request.read_timeout_ns(timeout),
        has_wishes=are_wanted(header),
    )


def refusal(error: ZmqTritonError) -> Answer:
    """Return what a client is answered in place of a response."""
    status, text = problems.response_to(error)
    return status, (problems.headers_of(error), text, [])


class HttpInference(PendingRequest):
    """A request whose answer is a status and a body."""

    SENDING = "HTTP_SEND"
    takes_streams = False

    __slots__ = ("_begun_ns", "_format", "_head", "_inference", "_reports", "form")

    def __init__(self, inference: Inference, head: InferenceHead, begun_ns: int = 0) -> None:
        """Set up; it has begun now unless that is said."""
        super().__init__(inference.gateway)
        self._inference = inference
        self._head = head
        #: The deadline counts from then on.
        self._begun_ns = begun_ns or time.monotonic_ns()
        #: The form of its outputs, as its client wants it.
        self.form: OutputForm
        self._format: ResponseFormat
        #: What its client is told beside the answer.
        self._reports: tuple[Report, ...] = ()

    def begin(self, body: Body) -> None:
        """Begin; the answer may be given before this returns."""
        head, inference = self._head, self._inference
        fields, begun_ns = head.fields, self._begun_ns
        if head.json_length == _WITH_BODY:
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

    def _has_room(self, size: int) -> bool:
        """Account for an answer that waits to be encoded; False if there is no memory for it."""
        raise NotImplementedError

    def _answer(self, status: int, encoded: Encoded) -> None:
        """Give the answer to the client."""
        raise NotImplementedError
