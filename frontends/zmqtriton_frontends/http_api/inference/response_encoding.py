"""A response as its client wants it: with classes, as JSON or bytes, compressed or not.

The body is JSON, followed by the binary outputs. A thread does long work, in pieces, so that others
get their responses. Large outputs are sent straight from the memory of the model's process; for a
slow client a copy is made, so that it does not occupy that memory.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from zmqtriton_floor.datatypes import BY_NUMBER, BYTES, count_elements
from zmqtriton_floor.errors import TOO_MANY_UNREAD, InternalError, Unavailable
from zmqtriton_floor.wire import ResponseBody
from zmqtriton_frontends.http_api.inference import json_documents, tensor_data
from zmqtriton_frontends.http_api.inference.infer_request import OutputForm
from zmqtriton_frontends.inference.admission import Report, reported, texts_of
from zmqtriton_frontends.inference.classification import classify
from zmqtriton_frontends.inference.model_version import ModelVersion
from zmqtriton_frontends.process import codecs
from zmqtriton_frontends.tensors.arena_body import ByteBudget

_JSON = ("content-type", "application/json")
_OCTETS = ("content-type", "application/octet-stream")
_JSON_LENGTH = tensor_data.JSON_LENGTH_HEADER.lower()

#: The headers that differ from other responses'; the text; what follows the text.
Encoded = tuple[tuple[tuple[str, str], ...], bytes, list[bytes | memoryview]]
#: Seconds that a client may keep the memory that its response lies in.
PATIENCE_S = 1.0
#: Bytes of copies of unread responses in a process. Further clients keep the memory that they
#: have.
MAX_COPIED_BYTES = 256 << 20
#: Bytes of a response that a thread compresses. Clients also ask for no compression by the header.
_COMPRESSED_BYTES = 1 << 20
#: Documents of answers that are kept for a version, and the bytes of the longest.
_MAX_KEPT, _MAX_KEPT_BYTES = 64, 1024
_NO_PIECES: list[bytes] = []
#: Bytes that are written at a time; the next ones when most of them have gone.
STEP_BYTES = 4 << 20


def describe(
    model: ModelVersion, request_id: str, response: ResponseBody, form: OutputForm
) -> tuple[dict[str, Any], list[bytes | memoryview]]:
    """Return the document of a response, and its binary outputs, which follow it.

    Raises InternalError for a tensor whose bytes do not fit its shape, InvalidArgument for a tensor
    that JSON cannot carry.
    """
    document: dict[str, Any] = {"id": request_id} if request_id else {}
    document["model_name"] = model.name
    document["model_version"] = str(model.version)
    if response.parameters:
        document["parameters"] = response.parameters
    outputs: list[dict[str, Any]] = []
    document["outputs"] = outputs
    tail: list[bytes | memoryview] = []
    for name, number, shape, data in response.outputs:
        # what lies in a client's shared memory is there already
        is_placed = name in form.places
        datatype = BY_NUMBER.get(number)
        has_size = number != BYTES and not is_placed
        if datatype is None or (has_size and len(data) != count_elements(shape) * datatype.size):
            raise InternalError(
                f"invalid output '{name}' in the response of model '{model.name}': correct its "
                "datatype or shape"
            )
        entry: dict[str, Any] = {"name": name, "datatype": datatype.name, "shape": shape}
        if is_placed:
            pass
        elif form.listed.get(name, form.default):
            entry["parameters"] = {"binary_data_size": len(data)}
            if data:
                tail.append(data)
        else:
            entry["data"] = tensor_data.json_from_bytes(name, number, data)
        outputs.append(entry)
    return document, tail


def size_of_response(response: ResponseBody) -> int:
    """Return the number of bytes in a response's tensors."""
    return sum(len(tensor.data) for tensor in response.outputs)


class ResponseFormat(NamedTuple):
    """The form of the response to a request, without anything of the request's tensors."""

    model: ModelVersion
    #: The client's id of the request.
    request_id: str
    form: OutputForm
    #: Value of Accept-Encoding.
    accepted: str | None

    def encode(self, response: ResponseBody, *, is_aside: bool = False) -> Encoded | None:
        """Encode the response; None if that takes long, so that encode_aside() should do it.

        Raises the errors of describe() and classify().
        """
        model, request_id, form, accepted = self
        is_common = not (request_id or response.parameters or form.places or form.classes)
        rows, json_bytes, other_bytes = [], 0, 0
        for name, number, shape, data in response.outputs:
            if name in form.places or form.listed.get(name, form.default):
                other_bytes += len(data)
                if is_common:
                    rows.append((name, number, tuple(shape), len(data)))
            else:
                json_bytes += len(data)
        is_long = json_bytes >= json_documents.LARGE_BYTES
        if accepted is not None:
            is_long |= other_bytes >= _COMPRESSED_BYTES
        if is_long and not is_aside:
            return None
        key = tuple(rows) if is_common and len(rows) == len(response.outputs) else None
        text, others = model.answers.get(key), _NO_PIECES
        if text is not None:
            tail = [data for _, _, _, data in response.outputs if data]
        else:
            text, others, tail = self._write(response, key, is_aside=is_aside)
        headers: tuple[tuple[str, str], ...] = ()
        if tail:
            headers = (_OCTETS, (_JSON_LENGTH, str(len(text) + sum(map(len, others)))))
        elif others:
            headers = (_JSON,)
        coding = codecs.choose(accepted) if accepted is not None else ""
        if coding:
            text, others, tail = codecs.deflate((text, *others, *tail), coding), [], []
            headers += (("content-encoding", coding),)
        return headers, text, [*others, *tail] if others else tail

    def _write(
        self, response: ResponseBody, key: Any, *, is_aside: bool
    ) -> tuple[bytes, list[bytes], list[bytes | memoryview]]:
        """Return the document, further pieces of it, and the tail; keep it by a key."""
        model, form = self.model, self.form
        if form.classes:
            response = classify(model, response, form.classes)
        document, tail = describe(model, self.request_id, response, form)
        if is_aside:
            text, *others = json_documents.pieces(document)
            return text, others, tail
        text = json_documents.write(document)
        if key is not None and len(text) <= _MAX_KEPT_BYTES:
            if len(model.answers) >= _MAX_KEPT:
                model.answers.clear()
            model.answers[key] = text
        return text, _NO_PIECES, tail

    async def encode_aside(self, response: ResponseBody) -> Encoded:
        """Encode the response in a thread, while the loop goes on."""
        encoded = await json_documents.aside(
            size_of_response(response), partial(self.encode, is_aside=True), response
        )
        assert encoded is not None, "a thread does it, however long it takes"
        return encoded

    async def encode_late(
        self, response: ResponseBody, reports: Sequence[Report], hold: Callable[[int], bool]
    ) -> Encoded:
        """Encode the response, in a thread if it is large, and add reports to its headers.

        `hold` reserves room for its bytes while it waits, and returns False without room. Then this
        raises Unavailable.
        """
        encoded = self.encode(response)
        if encoded is None:
            # one after the other, and until then it lies in the memory of its model
            if not hold(size_of_response(response)):
                raise Unavailable(TOO_MANY_UNREAD)
            encoded = await self.encode_aside(response)
        headers, text, tail = encoded
        return (*headers, *texts_of(await reported(reports))), text, tail


class Piece(NamedTuple):
    """A part of a body, written without a copy, and the bytes that precede it."""

    head: bytes
    view: memoryview


#: The copies of this process.
_copies = ByteBudget(MAX_COPIED_BYTES)


async def pieces(
    head: bytes,
    tail: list[memoryview | bytes],
    clock: Callable[[], float],
    copies: ByteBudget = _copies,
) -> AsyncGenerator[Piece, None]:
    """Return the body in pieces, the first with the head before it; empties the list."""
    late_s, copied = clock() + PATIENCE_S, 0
    try:
        while tail:
            rest = memoryview(tail.pop(0))
            while rest:
                if not copied and clock() > late_s:
                    # a client that has not read it by now may never do
                    copied = copies.reserve(len(rest) + sum(map(len, tail)))
                    if copied:
                        rest = memoryview(bytes(rest))
                        tail[:] = [bytes(data) for data in tail]
                piece, rest = rest[:STEP_BYTES], rest[STEP_BYTES:]
                yield Piece(head, piece)
                head = b""
                del piece
    finally:
        copies.release(copied)
