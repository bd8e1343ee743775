"""The part of a request's head that counts for an inference over HTTP, and its refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple, Protocol

from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.token_file import Grant
from zmqtriton_frontends.access.refusals import Source
from zmqtriton_frontends.entrance.reports import Reports
from zmqtriton_frontends.gateway.pending import Pending, Sink
from zmqtriton_frontends.http1 import MAX_BODY_BYTES
from zmqtriton_frontends.http_api.asgi import problems, request
from zmqtriton_frontends.http_api.asgi.access import Headers
from zmqtriton_frontends.http_api.inference import tensor_data
from zmqtriton_frontends.http_api.inference.response_encoding import Encoded

#: Largest body, in bytes, that takes no room in the ledger if it comes whole. More than that is
#: kept of it until the answer.
MAX_UNBOOKED_BYTES = 8 << 10

Answer = tuple[int, Encoded]


class Fields(Headers, Protocol):
    """All headers of a request."""

    def spelled_headers(self) -> Iterable[tuple[str, bytes]]:
        """Return all headers, spelled as by the client if the spelling is known."""


class InferenceHead(NamedTuple):
    """The part of a head that matters for an inference.

    Equal requests share the object, so it has nothing of one request, such as its time.
    """

    target: tuple[str, str]
    #: Path of the request as the client wrote it.
    path: str
    fields: Fields
    #: Size of the body; None if it comes in chunks.
    body_bytes: int | None
    #: Largest body that is accepted, in bytes.
    max_bytes: int
    #: Size of the body if it takes no room when it comes whole; else -1.
    unbooked_bytes: int = -1
    #: Most of the body is tensors, which stubs will map.
    is_large: bool = False
    #: Value of Inference-Header-Content-Length; None if all is JSON, its text if the body has to
    #: be there first.
    json_length: int | str | None = None
    #: Value of Content-Encoding.
    coding: str | None = None
    #: Value of Accept-Encoding.
    accepted: str | None = None
    #: Value of X-Request-Timeout in nanoseconds; 0 for none.
    timeout_ns: int = 0
    #: Rights of the client's token, where one is needed.
    grant: Grant | None = None
    #: The answer to a request that goes no further.
    refusal: Answer | None = None
    #: Returns the client's address, protocol and route.
    source: Callable[[], Source] | None = None
    #: The fields of its Ask about headers and rights, and those after its times.
    facts: tuple[Any, ...] = ()
    rest: tuple[Any, ...] = ()


def read_head(head: InferenceHead, reports: Reports) -> InferenceHead:
    """Return the head with the values of its headers. Raises InvalidArgument.

    `reports` is the step of a request that has reports.
    """
    header, size, max_bytes = head.fields.header, head.body_bytes, head.max_bytes
    coding, length_text = header(b"content-encoding"), header(tensor_data.JSON_LENGTH)
    json_length: int | str | None = length_text
    unbooked_bytes, is_large = -1, False
    if length_text is not None:
        max_bytes = MAX_BODY_BYTES
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
        facts=(header, head.fields.spelled_headers, head.grant),
        rest=(reports.wanted_by(header), head.source, None),
    )


def failure(head: InferenceHead, error: Exception) -> Answer:
    """Return the response to an exception; the log has unexpected exceptions."""
    if isinstance(error, ZmqTritonError):
        return refusal(error)
    status, text = problems.fault("POST", head.path, error)
    return status, (problems.headers(status), text, [])


def refusal(error: ZmqTritonError) -> Answer:
    """Return the response of a refused request."""
    status, text = problems.response_to(error)
    return status, (problems.headers_of(error), text, [])


class HttpSink(Sink, Protocol):
    """The end of an inference over HTTP."""

    __slots__ = ("begun_ns", "head", "pending")

    sending: ClassVar[str] = "HTTP_SEND"
    head: InferenceHead
    #: Time at which the request began; its deadline counts from then on.
    begun_ns: int
    pending: Pending

    def hold(self, size: int) -> None:
        """Account for more memory, or for less. Raises Unavailable without any."""

    def answer(self, status: int, encoded: Encoded) -> None:
        """Give an answer to the client, if it is the first."""

    def refuse(self, error: Exception, /) -> None:
        self.answer(*failure(self.head, error))
