"""Inferences up to 16 MiB without what gunicorn and Falcon do, which is most of their cost.

One object for a process. It takes only heads that mean the same to everybody; all others are
gunicorn's, so nothing is refused here, and no rule about them is written twice. infer.py reads the
request, and problems.py words the errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.wire import ResponseBody
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.gateway.pending_request import PendingRequest
from zmqtriton_frontends.http_api.asgi import problems
from zmqtriton_frontends.http_api.asgi.access import Check
from zmqtriton_frontends.http_api.inference import json_documents
from zmqtriton_frontends.http_api.inference.infer import JSON_LENGTH, Body, Inference
from zmqtriton_frontends.http_api.inference.response_encoding import Encoded, ResponseFormat
from zmqtriton_frontends.inference.load_on_demand import NotLoaded
from zmqtriton_frontends.inference.request_trace import now_ns
from zmqtriton_frontends.inference.trace_sampling import Parent, parent_in_headers
from zmqtriton_frontends.process import request_log
from zmqtriton_frontends.tensors.arena_body import (
    UNRESERVED_BYTES,
    AnnouncedBytesBudget,
    ArenaBuffer,
)

#: A larger body may take its time, or memory of its own.
MAX_BODY_BYTES = 64 << 10
#: Unless most of it goes straight into the arena. There anybody gets room for UNRESERVED_BYTES, and
#: all together for more.
MAX_ROOM_BYTES = 16 << 20
_MAX_FIELDS = 50
_HEAD = re.compile(
    rb"POST /v2/models/([A-Za-z0-9_.-]{1,255})(?:/versions/([0-9]{1,18}))?/infer HTTP/1\.1\r\n"
    rb"((?:[A-Za-z0-9-]+:[\t\x20-\x7e]*\r\n)+)\r\n"
)
#: With any of these a body is framed, or a connection goes on, by rules that gunicorn knows.
_UNUSUAL = frozenset(
    (
        *(b"transfer-encoding", b"content-encoding", b"expect", b"upgrade", b"te", b"trailer"),
        *(b"x-forwarded-protocol", b"x-forwarded-ssl"),
    )
)

#: Gets the status and the response, sooner or later.
Respond = Callable[[int, Encoded], None]


class Head(NamedTuple):
    """The head of a request: everything in its headers that counts."""

    target: tuple[str, str]
    body_bytes: int
    #: Inference-Header-Content-Length and Accept-Encoding.
    json_length: str | None
    accepted: str | None
    parent: Parent | None = None


class _Fields:
    def __init__(self, fields: dict[bytes, bytes]) -> None:
        self._fields = fields

    def header(self, name: bytes) -> str | None:
        value = self._fields.get(name)
        return None if value is None else value.decode("latin-1")


class FastPath:
    def __init__(self, gateway: Gateway, inference: Inference, checks: Sequence[Check]) -> None:
        self.gateway = gateway
        self.inference = inference
        self._checks = checks
        self._max_json: int = gateway.settings["http_max_input_size"]
        self.announced = AnnouncedBytesBudget()

    def read(self, raw: bytes) -> Head | None:
        """Read a head, with the empty line that ends it.

        None if gunicorn is to have the request.
        """
        match = _HEAD.fullmatch(raw)
        if match is None:
            return None
        model, version, lines = match.groups(b"")
        rows = [line.partition(b":") for line in lines[:-2].split(b"\r\n")]
        fields = {name.lower(): value.strip(b" \t") for name, _, value in rows}
        given = _Fields(fields)
        length = fields.get(b"content-length", b"")
        if (
            *(len(fields) < len(rows), len(rows) > _MAX_FIELDS, b"host" not in fields),
            *(not length.isdigit(), not fields.keys().isdisjoint(_UNUSUAL)),
            fields.get(b"connection", b"keep-alive").lower() != b"keep-alive",
            any(check(given) for check in self._checks),
        ).count(True):
            return None
        json_length = given.header(JSON_LENGTH)
        most = MAX_BODY_BYTES if json_length is not None else min(self._max_json, MAX_BODY_BYTES)
        if len(length) > 8 or (int(length) > most and not _wants_room(json_length, int(length))):
            return None
        target = (model.decode(), version.decode())
        told = given.header(b"accept-encoding"), parent_in_headers(given.header)
        return Head(target, int(length), json_length, *told)

    def room(self, head: Head) -> tuple[ArenaBuffer, int] | None:
        """Return room for a large body, and what of the budget is to be released.

        None if the arena has none at the moment, or too much is announced and not sent already.
        """
        size, reserved = head.body_bytes, 0
        if size > UNRESERVED_BYTES:
            reserved = self.announced.reserve(size)
            if not reserved:
                return None
        room = self.gateway.payload.reserve_now(size, int(head.json_length or "0"))
        if room is None:
            self.announced.release(reserved)
            return None
        return room, reserved


def _wants_room(json_length: str | None, size: int) -> bool:
    """True if most of a body is tensors that stubs will map, and the rest is soon read."""
    if json_length is None or not json_length.isascii() or not json_length.isdigit():
        return False
    tensors_at = int(json_length) if len(json_length) <= 8 else size
    is_short = tensors_at <= MAX_BODY_BYTES and size <= MAX_ROOM_BYTES
    return is_short and size - tensors_at > INLINE_BYTES


class PendingHttpInference(PendingRequest):
    """A request whose answer is a status and a body."""

    __slots__ = ("_answer", "_head", "_shortcut", "_wanted")

    SENDING = "HTTP_SEND"

    def __init__(self, shortcut: FastPath, head: Head, answer: Respond) -> None:
        super().__init__(shortcut.gateway)
        self._shortcut = shortcut
        self._head = head
        self._answer = answer
        self._wanted: ResponseFormat

    def begin(self, body: Body) -> None:
        """Begin; the answer may be given before this returns."""
        try:
            self._ask(body)
        except NotLoaded as missing:
            self._await(missing.load(), lambda _: self._ask(body))
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            self.set_exception(error)

    def _ask(self, body: Body) -> None:
        target, _, json_length, accepted, parent = self._head
        traces = self._gateway.traces
        begun_ns = now_ns() if traces.is_on else 0
        request_log.log_inference(*target)
        inference = self._shortcut.inference
        model = inference.find(target)
        text, reader = inference.reader(model, body, json_length)
        parsed = reader(text)
        checked = inference.check(model, parsed)
        if traces.is_on:
            checked = traces.follow(checked, parent, ("HTTP_RECV", begun_ns))
        self._wanted = ResponseFormat(checked, parsed, accepted)
        self._send(checked)

    def _respond(self, response: ResponseBody) -> None:
        wanted = self._wanted
        if wanted.takes_long(response):
            self._await(json_documents.aside(wanted.encode_in_pieces, response), self._succeed)
        else:
            self._succeed(wanted.encode(response))

    def _succeed(self, encoded: Encoded) -> None:
        self._end_trace()
        self._answer(200, encoded)

    def _refuse(self, error: Exception) -> None:
        if isinstance(error, ZmqTritonError):
            status, text = problems.told(error)
        else:
            path = f"/v2/models/{'/versions/'.join(filter(None, self._head.target))}/infer"
            status, text = problems.fault("POST", path, error)
        self._answer(status, Encoded(problems.headers(status), text, []))
