"""Inferences without what Falcon does, which is most of their cost.

One object for a process. What it does not take is Falcon's: bodies that are compressed, chunked or
long JSON, and requests that a check refuses. infer.py reads the request, and problems.py words the
errors.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.errors import (
    TOO_MANY_UNREAD,
    InvalidArgument,
    Unavailable,
    ZmqTritonError,
)
from zmqtriton_floor.wire import ResponseBody
from zmqtriton_frontends.access.bearer_tokens import HEADER, BearerTokens
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.gateway.pending_request import PendingRequest
from zmqtriton_frontends.http1.heads import Head
from zmqtriton_frontends.http_api.asgi import problems
from zmqtriton_frontends.http_api.asgi.access import Check
from zmqtriton_frontends.http_api.inference import binary
from zmqtriton_frontends.http_api.inference.infer import JSON_LENGTH, Body, Inference
from zmqtriton_frontends.http_api.inference.report import WISHES
from zmqtriton_frontends.http_api.inference.response_encoding import (
    Encoded,
    ResponseFormat,
    size_of,
)
from zmqtriton_frontends.inference import admission, request_timeout
from zmqtriton_frontends.inference.catalogue import HeaderLookup
from zmqtriton_frontends.inference.load_on_demand import NotLoaded
from zmqtriton_frontends.inference.trace_sampling import Parent, parent_in_headers
from zmqtriton_frontends.process import request_log
from zmqtriton_frontends.tensors.arena_body import AnnouncedBytesBudget, ArenaBody

_AUTHORIZATION = HEADER.encode()
#: With more JSON than this a body is Falcon's, where a thread may read it.
MAX_JSON_BYTES = 64 << 10
_TARGET = re.compile(
    rb"/v2/models/([A-Za-z0-9_.-]{1,255})(?:/versions/([0-9]{1,18}))?/infer",
)

#: Headers that ask for what is Falcon's to do.
_NOT_PLAIN = frozenset((b"content-encoding", *WISHES))

#: Gets the status and the response, sooner or later.
Respond = Callable[[int, Encoded], None]


def refusal(error: ZmqTritonError) -> tuple[int, Encoded]:
    """Return what a client is answered in place of a response."""
    status, text = problems.told(error)
    return status, (problems.headers(status), text, [])


class InferenceHead(NamedTuple):
    """The part of a head that counts for an inference.

    Equal requests share it, so nothing of one request may be here, such as when it came.
    """

    target: tuple[str, str]
    body_bytes: int
    #: Most of the body is tensors, which stubs will map.
    is_large: bool
    #: Inference-Header-Content-Length; None if all is JSON.
    json_length: int | None
    #: Accept-Encoding.
    accepted: str | None
    parent: Parent | None = None
    #: Finds a header by its name in small letters.
    header: HeaderLookup | None = None
    #: X-Request-Timeout; 0 for none.
    timeout_ns: int = 0


class _Fields:
    def __init__(self, fields: Mapping[bytes, bytes]) -> None:
        self._fields = fields

    def header(self, name: bytes) -> str | None:
        value = self._fields.get(name)
        return None if value is None else value.decode("latin-1")


class FastPath:
    def __init__(
        self,
        gateway: Gateway,
        inference: Inference,
        checks: Sequence[Check],
        tokens: BearerTokens | None = None,
    ) -> None:
        self.gateway = gateway
        self.inference = inference
        self._checks = checks
        self._max_json = min(MAX_JSON_BYTES, gateway.settings["http_max_input_size"])
        self._announced = AnnouncedBytesBudget()
        self._tokens = tokens
        #: What was made of a head before another edition does not hold: other tokens are valid.
        self.edition = 0
        if tokens is not None:
            tokens.on_change.append(self._begin_edition)

    def _begin_edition(self) -> None:
        self.edition += 1

    def read(self, head: Head) -> InferenceHead | None:
        """Read the head of an inference; None if Falcon is to have the request."""
        match = _TARGET.fullmatch(head.target)
        size = head.body_bytes
        if match is None or head.method != "POST" or size is None:
            return None
        by_name = dict(head.fields)
        fields = _Fields(by_name)
        # a header that is given twice has a comma in it, which is Falcon's to put there
        if len(by_name) < len(head.fields) or not _NOT_PLAIN.isdisjoint(by_name):
            return None
        if any(check(fields) for check in self._checks):
            return None
        if self._tokens is not None:
            value = fields.header(_AUTHORIZATION) or ""
            if not self._tokens.may_infer(value, match[1].decode()):
                return None  # and Falcon's refusal, which counts it
        length_text = fields.header(JSON_LENGTH)
        timeout_ns = 0
        try:
            json_length = None if length_text is None else binary.json_length(length_text, size)
            if request_timeout.HEADER in by_name:
                timeout = by_name[request_timeout.HEADER].decode("latin-1")
                timeout_ns = request_timeout.read_ns(timeout)
        except InvalidArgument:
            return None  # and Falcon's refusal
        json_bytes = size if json_length is None else json_length
        if json_bytes > self._max_json:
            return None
        model, version = match.groups(b"")
        return InferenceHead(
            target=(model.decode(), version.decode()),
            body_bytes=size,
            is_large=size - json_bytes > INLINE_BYTES,
            json_length=json_length,
            accepted=fields.header(b"accept-encoding"),
            parent=parent_in_headers(fields.header),
            header=fields.header,
            timeout_ns=timeout_ns,
        )

    def arena_body(self, head: InferenceHead) -> ArenaBody:
        """Make what receives a large body."""
        payload, tensors_at = self.gateway.payload, head.json_length or 0
        return ArenaBody(payload, head.body_bytes, self._announced, lambda _: tensors_at)


class PendingHttpInference(PendingRequest):
    """A request whose answer is a status and a body."""

    __slots__ = ("_answer", "_deadline_ns", "_fast_path", "_has_room", "_head", "_wanted")

    SENDING = "HTTP_SEND"

    def __init__(
        self,
        fast_path: FastPath,
        head: InferenceHead,
        answer: Respond,
        has_room: Callable[[int], bool],
        deadline_ns: int = 0,
    ) -> None:
        """Set up.

        `has_room` accounts for an answer that waits to be encoded; the deadline is that of this
        request, 0 for none.
        """
        super().__init__(fast_path.gateway)
        self._has_room = has_room
        self._fast_path = fast_path
        self._head = head
        self._answer = answer
        self._deadline_ns = deadline_ns
        self._wanted: ResponseFormat

    def begin(self, body: Body) -> None:
        """Begin; the answer may be given before this returns."""
        try:
            self._ask(body)
        except NotLoaded as missing:
            self._await(missing.load(self._deadline_ns), lambda _: self._ask(body))
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            self.set_exception(error)

    def _ask(self, body: Body) -> None:
        target, _, _, json_length, accepted, parent, header, _ = self._head
        traces = self._gateway.traces
        begun_ns = time.monotonic_ns() if traces.is_on else 0
        if request_log.is_on:
            request_log.log_inference(*target)
        inference = self._fast_path.inference
        model = inference.find(target)
        request, options, form = inference.parse(model, body, json_length)
        if self._deadline_ns:
            options = options._replace(deadline_ns=self._deadline_ns)
        catalogue = self._gateway.catalogue
        checked = admission.prepare(catalogue, model, request, options, form.places, header)
        if traces.is_on:
            checked = traces.follow(checked, parent, ("HTTP_RECV", begun_ns))
        self._wanted = ResponseFormat(checked, form, accepted)
        self._send(checked)

    def _respond(self, response: ResponseBody) -> None:
        wanted = self._wanted
        if wanted.takes_long(response):
            # one after the other, and until then it lies in the memory of its model
            if not self._has_room(size_of(response)):
                raise Unavailable(TOO_MANY_UNREAD)
            self._await(wanted.encode_aside(response), self._succeed)
        else:
            self._succeed(wanted.encode(response))

    def _succeed(self, encoded: Encoded) -> None:
        if self._trace is not None:
            self._trace.end(self.SENDING)
        self._answer(200, encoded)

    def _refuse(self, error: Exception) -> None:
        if isinstance(error, ZmqTritonError):
            self._answer(*refusal(error))
            return
        path = f"/v2/models/{'/versions/'.join(filter(None, self._head.target))}/infer"
        status, text = problems.fault("POST", path, error)
        self._answer(status, (problems.headers(status), text, []))
