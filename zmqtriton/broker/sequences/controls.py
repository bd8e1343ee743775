"""Control tensors, which give a model the state of its sequences: start, end, ready and id.

They are added to each request that a stub gets; slots without a request get padding. Knows nothing
of the assignment of slots or of time.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import Any

from zmqtriton_floor import wire
from zmqtriton_floor.datatypes import BY_CONFIG_NAME
from zmqtriton_floor.errors import ProtocolError

#: The ids of padding requests for empty slots begin here, beyond those of ensembles' steps.
FIRST_PADDING_ID = 1 << 62

_START, _END = "CONTROL_SEQUENCE_START", "CONTROL_SEQUENCE_END"
_READY, _CORRID = "CONTROL_SEQUENCE_READY", "CONTROL_SEQUENCE_CORRID"
#: The fields with the values of false and true, their datatype, and how a value is packed.
_PAIRS = (
    ("int32_false_true", "TYPE_INT32", "<i", int),
    ("fp32_false_true", "TYPE_FP32", "<f", float),
    ("bool_false_true", "TYPE_BOOL", "<?", bool),
)


class SequenceControls:
    """The control tensors that a configuration requires."""

    def __init__(self, batching: dict[str, Any], *, is_batching: bool) -> None:
        self._shape = [1, 1] if is_batching else [1]
        #: Kind, and the tensors for false and for true.
        self._switches: list[tuple[str, tuple[wire.Tensor, wire.Tensor]]] = []
        self._names: list[tuple[str, int, int]] = []  # name, datatype, bytes of an element
        for entry in batching.get("control_input", []):
            for control in entry.get("control", []):
                self._add(entry["name"], control)

    def _add(self, name: str, control: dict[str, Any]) -> None:
        kind = control.get("kind", _START)
        if kind == _CORRID:
            datatype = BY_CONFIG_NAME[control["data_type"]]
            self._names.append((name, datatype.number, datatype.size))
            return
        for field, type_name, form, convert in _PAIRS:
            pair = control.get(field)
            if pair:
                number = BY_CONFIG_NAME[type_name].number
                false, true = (struct.pack(form, convert(value)) for value in pair)
                tensors = (
                    wire.Tensor(name, number, self._shape, false),
                    wire.Tensor(name, number, self._shape, true),
                )
                self._switches.append((kind, tensors))

    def __len__(self) -> int:
        return len(self._switches) + len(self._names)

    def _tensors(self, flags: int, sequence: int | str, *, is_ready: bool) -> list[wire.Tensor]:
        holds = {
            _START: bool(flags & wire.SEQUENCE_START),
            _END: bool(flags & wire.SEQUENCE_END),
            _READY: is_ready,
        }
        tensors = [pair[holds[kind]] for kind, pair in self._switches]
        return tensors + [
            wire.Tensor(name, datatype, self._shape, _packed(sequence, size))
            for name, datatype, size in self._names
        ]

    def tell(self, row: wire.Request | wire.BatchedRequest, body: bytes) -> bytes:
        """Return a request's body with its control tensors behind its own inputs."""
        if not self:
            return body
        try:
            request = wire.decode_request(body)
        except ProtocolError:
            return body  # the stub will refuse it
        added = self._tensors(row.flags, row.correlation, is_ready=True)
        return wire.encode_body(request._replace(inputs=request.inputs + added))

    def build_padding_body(self, body: bytes) -> bytes:
        """Build the body for a slot without a request.

        It has the shapes of another request's inputs, and no data.
        """
        try:
            request = wire.decode_request(body)
        except ProtocolError:
            request = wire.RequestBody("", {}, [], [])
        inputs = [tensor._replace(data=b"") for tensor in request.inputs]
        inputs += self._tensors(0, 0, is_ready=False)
        return wire.encode_body(wire.RequestBody("", {}, request.outputs, inputs))

    def build_padding(
        self, body: bytes, batch: int, numbers: Iterator[int]
    ) -> tuple[wire.BatchedRequest, bytes]:
        """Build padding for a slot without a request, from the body of another slot's request."""
        row = wire.BatchedRequest(
            batch, wire.BROKER, FIRST_PADDING_ID | next(numbers), wire.PADDING, 0, 0, 0
        )
        return row, self.build_padding_body(body)


def _packed(sequence: int | str, size: int) -> bytes:
    """Pack a sequence's id as one element; size 0: BYTES.

    If a number is needed, a name always becomes the same number.
    """
    if not size:
        data = str(sequence or "").encode()
        return len(data).to_bytes(4, "little") + data
    if isinstance(sequence, str):
        return hashlib.blake2b(sequence.encode(), digest_size=size).digest()
    return (sequence & ((1 << 8 * size) - 1)).to_bytes(size, "little")
