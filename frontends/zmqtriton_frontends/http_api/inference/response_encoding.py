"""A response as its client wants it: with classes, as JSON or bytes, compressed or not.

The body is JSON, followed by the binary outputs. A thread does long work, in pieces, so that others
get their responses. Large outputs are sent straight from the memory of the model's process; for a
slow client a copy is made, so that it does not occupy that memory.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, NamedTuple

from zmqtriton_floor.datatypes import BY_NUMBER, BYTES, count_elements
from zmqtriton_floor.errors import TOO_MANY_UNREAD, InternalError, Unavailable
from zmqtriton_floor.wire import ResponseBody
from zmqtriton_frontends.http_api.inference import json_documents, tensor_data
from zmqtriton_frontends.http_api.inference.infer_request import OutputForm
from zmqtriton_frontends.http_api.inference.tensor_data import json_from_bytes
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
            entry["data"] = json_from_bytes(name, number, data)
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

    def takes_long(self, response: ResponseBody) -> bool:
        """True if a thread should call encode_in_pieces()."""
        form, size, json_size = self.form, 0, 0
        for name, _, _, data in response.outputs:
            if name not in form.places and not form.listed.get(name, form.default):
                json_size += len(data)
            elif self.accepted is not None:
                size += len(data)
        return json_size >= json_documents.LARGE_BYTES or size >= _COMPRESSED_BYTES

    def encode(self, response: ResponseBody, *, in_pieces: bool = False) -> Encoded:
        """Encode the response. Raises the errors of describe() and classify()."""
        model, request_id, form, accepted = self
        if form.classes:
            response = classify(model, response, form.classes)
        document, tail = describe(model, request_id, response, form)
        if in_pieces:
            text, *others = json_documents.pieces(document)
        else:
            text, others = json_documents.write(document), []
        headers: tuple[tuple[str, str], ...] = ()
        if tail:
            headers = (_OCTETS, (_JSON_LENGTH, str(len(text) + sum(map(len, others)))))
        elif others:
            headers = (_JSON,)
        coding = codecs.choose(accepted) if accepted is not None else ""
        if coding:
            text, others, tail = codecs.deflate((text, *others, *tail), coding), [], []
            headers += (("content-encoding", coding),)
        return headers, text, [*others, *tail]

    def encode_in_pieces(self, response: ResponseBody) -> Encoded:
        return self.encode(response, in_pieces=True)

    async def encode_aside(self, response: ResponseBody) -> Encoded:
        """Encode the response in a thread, while the loop is free."""
        return await json_documents.aside(
            size_of_response(response), self.encode_in_pieces, response
        )

    async def encode_late(
        self, response: ResponseBody, reports: Sequence[Report], hold: Callable[[int], bool]
    ) -> Encoded:
        """Encode the response, in a thread if it is large, and add reports to its headers.

        `hold` reserves room for its bytes while it waits, and returns False without room. Then this
        raises Unavailable.
        """
        if self.takes_long(response):
            # one after the other, and until then it lies in the memory of its model
            if not hold(size_of_response(response)):
                raise Unavailable(TOO_MANY_UNREAD)
            encoded = await self.encode_aside(response)
        else:
            encoded = self.encode(response)
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
