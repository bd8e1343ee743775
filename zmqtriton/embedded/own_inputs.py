"""Copies of requests: a sender may change its inputs as soon as its call returns.

The loop reads a request after that, so the sender's thread copies what can change. It copies a
large array to the place that models read, so the loop need not. An array of the server
(`Connection.empty`) is in such a place already, and is lent. Conversions and faults of a request
are left to the loop where they do not matter here.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import numpy as np

from zmqtriton.embedded.requests import InferenceRequest
from zmqtriton_floor.arena import INLINE_BYTES, Allocation, Arena
from zmqtriton_floor.arrays import to_array, types_of, view_of
from zmqtriton_floor.datatypes import BY_CONFIG_NAME
from zmqtriton_floor.wire import Tensor, make

#: Bytes of memory that are made at once: other threads have to wait for that.
_STEP_BYTES = 4 << 20
#: Kinds of numpy types with texts, or with objects of Python.
_TEXTS = "OSU"


def array_over(arena: Arena, room: Allocation) -> Any:
    """Return all bytes of a new block as an array; the block is free when nothing refers to it.

    Raises Unavailable if memory is short.
    """
    block, size = room.reference.block, room.reference.size
    whole: Any = np.frombuffer(room.view, np.uint8)  # a block begins with a page
    weakref.finalize(whole, arena.leases.end, [block])
    for start in range(0, size, _STEP_BYTES):
        arena.make(block, min(start + _STEP_BYTES, size))
    return whole


class OwnInputs:
    """Copies the inputs of one request, in any thread."""

    def __init__(self, arena: Arena, allocate: Callable[[int], Allocation | None]) -> None:
        """Set up; `allocate` returns a block of the arena, or None if memory is short."""
        self._arena = arena
        self._allocate = allocate
        #: The arrays that keep blocks. Hold them until the request is sent.
        self.kept: list[Any] = []

    def own(self, request: InferenceRequest, config: Mapping[str, Any]) -> InferenceRequest:
        """Return an equal request that other code cannot change.

        `config` is that of its model, and empty where it is unknown. Raises InvalidArgument for
        inputs that this model cannot have.
        """
        inputs, outputs, parameters = request.inputs, request.outputs, request.parameters
        if isinstance(inputs, Mapping):
            types = types_of(config)
            inputs = {name: self._own(name, v, types.get(name, "")) for name, v in inputs.items()}
        return request._replace(
            inputs=inputs,
            outputs=[*outputs] if isinstance(outputs, list) else outputs,
            parameters={**parameters} if isinstance(parameters, Mapping) else parameters,
        )

    def _own(self, name: str, value: Any, data_type: str) -> Any:
        if type(value) is Tensor:
            return value._replace(data=self._own_bytes(value.data))
        is_array = isinstance(value, np.ndarray) or hasattr(value, "__dlpack__")
        if not (is_array or data_type):
            return deepcopy(value)  # the loop knows its type
        array = to_array(name, value, data_type)
        if array.dtype.kind in _TEXTS or array.dtype.hasobject:
            return array.copy()
        is_large = array.nbytes > INLINE_BYTES
        if is_large and (view := view_of(array)) is not None and self._arena.locate(view):
            return array
        datatype = BY_CONFIG_NAME.get(data_type)
        if datatype is None or datatype.numpy is None or array.dtype != datatype.numpy:
            return array.copy()  # the loop converts or refuses it
        whole = self._room(array.nbytes) if is_large else None
        if whole is None:
            return make(Tensor, (name, datatype.number, list(array.shape), array.tobytes()))
        np.copyto(whole.view(array.dtype).reshape(array.shape), array)
        return make(Tensor, (name, datatype.number, list(array.shape), self._kept_view(whole)))

    def _own_bytes(self, data: Any) -> Any:
        """Return the bytes of a tensor, which may be of a type that numpy lacks."""
        if type(data) is not memoryview:
            return data
        whole = self._room(len(data)) if len(data) > INLINE_BYTES else None
        if whole is None:
            return bytes(data)
        np.copyto(whole, np.frombuffer(data, np.uint8))
        return self._kept_view(whole)

    def _kept_view(self, whole: Any) -> memoryview:
        """Return the bytes of a block as the arena knows them, and keep it."""
        self.kept.append(whole)
        view: memoryview = whole.base
        return view

    def _room(self, size: int) -> Any:
        """Return an array over a new block; None if memory is short, which the loop reports."""
        room = self._allocate(size)
        return None if room is None else array_over(self._arena, room)
