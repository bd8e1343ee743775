"""The heads of inferences: a connection answers or refuses these requests itself.

One object for a process. Falcon gets all other requests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from urllib.parse import unquote_to_bytes

from zmqtriton_floor.errors import InvalidArgument, ZmqTritonError
from zmqtriton_floor.token_file import INFER, Grant
from zmqtriton_frontends.access import refusals
from zmqtriton_frontends.access.bearer_tokens import RAW_HEADER, BearerTokens
from zmqtriton_frontends.http1 import Head
from zmqtriton_frontends.http_api.asgi.access import AccessCheck
from zmqtriton_frontends.http_api.asgi.request import too_large
from zmqtriton_frontends.http_api.inference import json_documents
from zmqtriton_frontends.http_api.inference.heads import Answer, InferenceHead, read_head, refusal
from zmqtriton_frontends.http_api.inference.infer import Inference
from zmqtriton_frontends.tensors.arena_body import ArenaBody, ByteBudget

_TARGET = re.compile(rb"/v2/models/([^/]+)(?:/versions/([0-9]+))?/infer")
#: Bytes of the longest name of a model: no directory has a longer one.
MAX_MODEL_NAME_BYTES = 255


class HeadFields:
    """The headers of a request; repeated ones are joined."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._fields = fields = dict(head.fields)
        if len(fields) < len(head.fields):
            fields.clear()
            for name, value in head.fields:
                fields[name] = fields[name] + b"," + value if name in fields else value

    def header(self, name: bytes) -> str | None:
        """Return the value of a header, given in lower case; commas join repeated ones."""
        value = self._fields.get(name)
        return None if value is None else value.decode("latin-1")

    def spelled_headers(self) -> Iterator[tuple[str, bytes]]:
        return self._head.spelled_fields()


class InferenceHeads:
    def __init__(
        self,
        inference: Inference,
        checks: Sequence[AccessCheck],
        tokens: BearerTokens | None = None,
        foreign: Sequence[bytes] = (),
    ) -> None:
        """Set up; Falcon also gets inferences with one of the `foreign` headers."""
        self.inference = inference
        self._checks = checks
        self._announced = ByteBudget()
        self._tokens = tokens
        self._foreign = foreign
        #: Number of the set of valid tokens: what was made of a head in an earlier edition does
        #: not hold.
        self.edition = 0
        if tokens is not None:
            tokens.on_change.append(self._begin_edition)

    def _begin_edition(self) -> None:
        self.edition += 1

    def read(self, head: Head, address: str) -> InferenceHead | None:
        """Read the head of an inference, whose client has the address; None for another request."""
        path = head.target.partition(b"?")[0]
        match = _TARGET.fullmatch(unquote_to_bytes(path) if b"%" in path else path)
        if match is None or head.method != "POST":
            return None
        model = match[1].decode(errors="replace")
        if len(model.encode()) > MAX_MODEL_NAME_BYTES:
            return None
        target = model, (match[2] or b"").decode()
        fields, size, limit = HeadFields(head), head.body_bytes, self.inference.max_input_size
        if self._foreign and any(map(fields.header, self._foreign)):
            return None
        written = path.decode("latin-1")
        source = partial(refusals.Source, "http", address, f"POST {written}")
        refused, grant = self._judge(fields, model, source)
        inference_head = InferenceHead(
            target, written, fields, size, limit, grant=grant, refusal=refused, source=source
        )
        if refused is not None:
            return inference_head
        try:
            inference_head = read_head(inference_head, self.inference.reports)
            if size is not None and size > inference_head.max_bytes:
                raise too_large("JSON", size, inference_head.max_bytes)
        except InvalidArgument as error:
            return inference_head._replace(refusal=refusal(error), unbooked_bytes=-1)
        return inference_head

    def _judge(
        self, fields: HeadFields, model: str, source: Callable[[], refusals.Source]
    ) -> tuple[Answer | None, Grant | None]:
        """Return the response if the request is refused, and the grant of its token."""
        for status, check in self._checks:
            problem = check(fields)
            if problem:
                refusals.report_text(source(), refusals.NOT_PERMITTED, problem, model)
                return (status, ((), json_documents.write({"error": problem}), [])), None
        if self._tokens is None:
            return None, None
        value = fields.header(RAW_HEADER)
        try:
            values, address = [] if value is None else [value], source().address
            grant = self._tokens.check(values, address, INFER, model)
        except ZmqTritonError as error:
            refusals.report(source(), error, model)
            return refusal(error), None
        return None, grant

    def arena_body(self, head: InferenceHead) -> ArenaBody:
        """Make the receiver of a large body."""
        assert head.body_bytes is not None, "it is announced"
        payload, tensors_at = self.inference.gateway.payload, int(head.json_length or 0)
        return ArenaBody(payload, head.body_bytes, self._announced, lambda _: tensors_at)
