"""One inference over HTTP, from its whole body to its encoded answer, without a task or a future.

Where the body comes from and where the answer goes is a subclass's: a connection's
(server/inference_exchange.py), or that of an add-on's endpoint (asgi_inference.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from zmqtriton_floor.access.token_file import Grant
from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.errors import TOO_MANY_UNREAD, Unavailable, ZmqTritonError
from zmqtriton_floor.wire import ResponseBody, make
from zmqtriton_frontends.gateway.pending_request import PendingRequest
from zmqtriton_frontends.http1.heads import MAX_BODY_BYTES
from zmqtriton_frontends.http_api.asgi import problems
from zmqtriton_frontends.http_api.inference import binary, json_documents
from zmqtriton_frontends.http_api.inference.infer import JSON_LENGTH, Body, Inference
from zmqtriton_frontends.http_api.inference.infer_request import InferRequest
from zmqtriton_frontends.http_api.inference.response_encoding import (
    Encoded,
    ResponseFormat,
    size_of_response,
)
from zmqtriton_frontends.http_api.inference.stage_time_headers import STAGE_HEADERS
from zmqtriton_frontends.inference import admission, request_timeout
from zmqtriton_frontends.inference.catalogue import ModelVersion
from zmqtriton_frontends.inference.load_on_demand import NotLoaded
from zmqtriton_frontends.inference.stage_times import Stages
from zmqtriton_frontends.inference.trace_sampling import Parent, parent_in_headers

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
    parent: Parent | None = None
    #: X-Request-Timeout; 0 for none.
    timeout_ns: int = 0
    #: The answer is to tell the stages of the request or the model's load.
    has_wishes: bool = False
    #: That of the client's token, where one is needed.
    grant: Grant | None = None
    #: The answer to a request that goes no further.
    refusal: Answer | None = None


def read_head(head: InferenceHead) -> InferenceHead:
    """Return the same with what its headers say. Raises InvalidArgument."""
    header, size, max_bytes = head.fields.header, head.body_bytes, head.max_bytes
    coding, length_text = header(b"content-encoding"), header(JSON_LENGTH)
    unbooked_bytes, is_large, json_length = -1, False, None
    if length_text is not None:
        json_length, max_bytes = _WITH_BODY, MAX_BODY_BYTES
    if size is not None and coding is None:
        if length_text is not None and (at := binary.tensors_at(length_text, size)) < size:
            json_length, is_large = at, size - at > INLINE_BYTES
        if size <= MAX_UNBOOKED_BYTES:
            unbooked_bytes = size
    timeout = header(request_timeout.HEADER)
    return head._replace(
        max_bytes=max_bytes,
        unbooked_bytes=unbooked_bytes,
        is_large=is_large,
        json_length=json_length,
        coding=coding,
        accepted=header(b"accept-encoding"),
        parent=parent_in_headers(header),
        timeout_ns=0 if timeout is None else request_timeout.read_ns(timeout),
        has_wishes=any(header(name) is not None for name in STAGE_HEADERS),
    )


def refusal(error: ZmqTritonError) -> Answer:
    """Return what a client is answered in place of a response."""
    status, text = problems.response_to(error)
    return status, (problems.headers_of(error), text, [])


class HttpInference(PendingRequest):
    """A request whose answer is a status and a body."""

    SENDING = "HTTP_SEND"

    __slots__ = ("_begun_ns", "_deadline_ns", "_format", "_head", "_inference", "_stages")

    def __init__(self, inference: Inference, head: InferenceHead, begun_ns: int = 0) -> None:
        """Set up; it has begun now unless that is said."""
        super().__init__(inference.gateway)
        self._inference = inference
        self._head = head
        #: When it has begun, where that matters; the deadline counts from then on.
        self._begun_ns = self._deadline_ns = 0
        if head.timeout_ns or head.has_wishes or inference.gateway.traces.is_on:
            self._begun_ns = begun_ns or time.monotonic_ns()
            self._deadline_ns = head.timeout_ns and self._begun_ns + head.timeout_ns
        self._stages: Stages | None = None
        self._format: ResponseFormat

    def begin(self, body: Body, *, was_loaded: bool = False) -> None:
        """Begin; the answer may be given before this returns."""
        head, inference = self._head, self._inference
        try:
            model, length = inference.find(head.target), head.json_length
            if length == _WITH_BODY:
                length = binary.json_length(head.fields.header(JSON_LENGTH) or "", len(body))
            size = len(body) if length is None else length
            if size < json_documents.LARGE_BYTES:
                self._admit(model, inference.parse(model, body, length))
            else:
                parsing = json_documents.aside(size, inference.parse, model, body, length)
                self._await(parsing, self._parsed)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            if was_loaded or not isinstance(error, NotLoaded):
                self.set_exception(error)
                return
            loading = error.load(self._deadline_ns)
            self._await(loading, lambda _: self.begin(body, was_loaded=True))

    def _parsed(self, parsed: InferRequest) -> None:
        target = self._head.target
        try:  # found again: meanwhile the model may have been reloaded
            model = self._inference.find(target)
        except NotLoaded as missing:
            loading = missing.load(self._deadline_ns)
            self._await(loading, lambda _: self._admit(self._inference.find(target), parsed))
        else:
            self._admit(model, parsed)

    def _admit(self, model: ModelVersion, parsed: InferRequest) -> None:
        head, inference = self._head, self._inference
        gateway = inference.gateway
        request, options, form = parsed
        if inference.forwarding is not None:
            inference.forwarding.add(request.parameters, head.fields.spelled_headers())
        if self._deadline_ns:
            options = options._replace(deadline_ns=self._deadline_ns)
        header = head.fields.header
        checked = admission.prepare(gateway.catalogue, model, request, options, form.places, header)
        if head.grant is not None:
            checked = gateway.token_marks.mark(checked, head.grant)
        if gateway.traces.is_on:
            received = "HTTP_RECV", self._begun_ns
            checked = gateway.traces.follow(checked, head.parent, received)
        if head.has_wishes:
            checked = inference.stage_time_headers.expect(header, checked, self._begun_ns)
            self._stages = checked.stages
        self._format = make(
            ResponseFormat, (checked.model, request.request_id, form, head.accepted)
        )
        if options.correlation:
            self._note_sequence(checked)
        self._send(checked)

    def _respond(self, response: ResponseBody) -> None:
        form = self._format
        succeed = self._add_report if self._head.has_wishes else self._succeed
        if form.takes_long(response):
            # one after the other, and until then it lies in the memory of its model
            if not self._has_room(size_of_response(response)):
                raise Unavailable(TOO_MANY_UNREAD)
            self._await(form.encode_aside(response), succeed)
        else:
            succeed(form.encode(response))

    def _add_report(self, encoded: Encoded) -> None:
        self._await(self._reported(encoded), self._succeed)

    async def _reported(self, encoded: Encoded) -> Encoded:
        headers, text, tail = encoded
        more_headers = self._inference.stage_time_headers.headers(
            self._head.fields.header, self._format.model, self._stages
        )
        return headers + await more_headers, text, tail

    def _succeed(self, encoded: Encoded) -> None:
        if self._trace is not None:
            self._trace.end(self.SENDING)
        self._answer(200, encoded)

    def _refuse(self, error: Exception) -> None:
        if isinstance(error, ZmqTritonError):
            self._answer(*refusal(error))
            return
        status, text = problems.fault("POST", self._head.path, error)
        self._answer(status, (problems.headers(status), text, []))

    def _note_sequence(self, checked: admission.CheckedRequest) -> None:
        """Note a request of a sequence that is about to be sent."""

    def _has_room(self, size: int) -> bool:
        """Account for an answer that waits to be encoded; False if there is no memory for it."""
        raise NotImplementedError

    def _answer(self, status: int, encoded: Encoded) -> None:
        """Give the answer to the client."""
        raise NotImplementedError
