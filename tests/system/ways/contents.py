"""Requests and what comes of them, in the same words for every way to a model."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from zmqtriton_floor.errors import BY_CODE

MODEL = "mirror"
Value = bool | int | float | str


class Input(NamedTuple):
    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes
    #: The client's shared memory that has these data; "" if they come with the request.
    region: str = ""


class Content(NamedTuple):
    """A request, as far as it is the same on every way."""

    inputs: tuple[Input, ...] = ()
    model: str = MODEL
    version: str = ""
    id: str = ""
    #: None are all.
    outputs: tuple[str, ...] = ()
    parameters: tuple[tuple[str, Value], ...] = ()
    priority: int = 0
    timeout_us: int = 0
    sequence: int | str = 0
    is_start: bool = False
    is_end: bool = False
    #: Headers of HTTP, metadata of gRPC.
    headers: tuple[tuple[str, str], ...] = ()
    #: How long its client waits.
    within_s: int = 0


class Output(NamedTuple):
    datatype: str
    shape: tuple[int, ...]
    data: bytes


class Outcome(NamedTuple):
    """The answer to a request. What a way does not tell is None."""

    #: As in HTTP.
    status: int | None = 200
    error: str = ""
    model: str | None = None
    version: str | None = None
    id: str | None = None
    parameters: Mapping[str, Any] | None = None
    outputs: Mapping[str, Output] = {}
    #: When its model thinks that the client stops waiting; 0 is never.
    deadline_ns: int = 0

    def differs(self, other: Outcome) -> str:
        """Return what differs, as far as both tell; "" if nothing does. Deadlines are no part."""
        return "; ".join(
            f"{name}: {mine!r}, {theirs!r}"
            for name, mine, theirs in zip(self._fields[:-1], self, other, strict=False)
            if mine != theirs and mine is not None and theirs is not None
        )


_STATUS_OF_GRPC = {error.grpc_status: error.http_status for error in BY_CODE.values()}
#: Of tokens.
_STATUS_OF_GRPC.update({16: 401, 7: 403})


def failed(error: str, *, http: int = 0, grpc: int = 0, code: str = "") -> Outcome:
    """Return the outcome of a failure, with its status as that way tells it, if it does."""
    status: int | None = http or None
    if grpc:
        status = _STATUS_OF_GRPC[grpc]
    elif code:
        status = BY_CODE[code].http_status
    return Outcome(status, error)


def succeeded(
    outputs: Mapping[str, Output],
    model: str | None = None,
    version: str | None = None,
    id: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Outcome:
    """Return the outcome of a success; the deadline is taken out of what the model has seen."""
    deadline_ns = 0
    by_name = dict(outputs)
    if "SEEN" in by_name:
        seen = json.loads(by_name["SEEN"].data[4:])
        deadline_ns = seen.pop("deadline_ns") or 0
        by_name["SEEN"] = by_name["SEEN"]._replace(data=json.dumps(seen).encode())
    return Outcome(200, "", model, version, id, parameters, by_name, deadline_ns)


def texts(*values: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def elements(data: bytes) -> list[bytes]:
    """Return the strings of a BYTES tensor; what is left at its end is none."""
    texts = []
    while len(data) >= 4:
        (size,) = struct.unpack_from("<I", data)
        texts.append(data[4 : 4 + size])
        data = data[4 + size :]
    return texts


FLOATS = Input("FLOATS", "FP32", (2,), struct.pack("<2f", 0.5, -3))
TEXTS = Input("TEXTS", "BYTES", (2,), texts(b"one", b"two"))
PLAIN = Content((FLOATS, TEXTS), id="plain")


def floats(count: int) -> Input:
    return Input("FLOATS", "FP32", (count,), struct.pack(f"<{count}f", *range(count)))
