"""Layouts of the bodies that clients send again and again: all of a body but its tensors' data.

What was read and checked for one body holds for the next that differs in these data alone. Bodies
whose data have to be looked at have none: those with strings, or with data that are no bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.datatypes import BYTES
from zmqtriton_floor.signature import READABLE, Admission, Signature
from zmqtriton_floor.wire import RequestBody, Tensor, make

#: Bytes of the longest layout, and number of the layouts that are kept in one place.
MAX_LAYOUT_BYTES, _MAX_LAYOUTS = 1024, 64
#: Bytes of the largest body whose parts are copied: views of them take longer.
_COPIED_BYTES = 4096


class Layout:
    __slots__ = (
        "_body",
        "_rows",
        "admission",
        "content",
        "head_bytes",
        "is_small",
        "signature",
        "target",
    )

    def __init__(
        self,
        body: RequestBody,
        rows: list[Any],
        content: tuple[Any, ...],
        target: tuple[str, str],
    ) -> None:
        self._body = body
        #: Rows of the inputs: the bytes before the data, their number, the tensor, the data's size.
        self._rows = rows
        self.head_bytes: int = rows[0][1]
        #: No tensor is large, so none has to be placed.
        self.is_small = all(row[-1] <= INLINE_BYTES for row in rows)
        #: Fields of the content beside the body; the model and the version, if they are in it.
        self.content = content
        self.target = target
        #: The signature that these bodies fit, and their admission by it.
        self.signature: Signature | None = None
        self.admission: Admission

    def read(self, data: Any) -> RequestBody | None:
        """Return the request in a body of the layout's size; None if another layout is in it."""
        view = data if len(data) <= _COPIED_BYTES else memoryview(data)
        inputs, at = [], 0
        for before, length, name, datatype, shape, size in self._rows:
            begin = at + length
            if view[at:begin] != before:
                return None
            at = begin + size
            inputs.append(make(Tensor, (name, datatype, shape, view[begin:at])))
        request_id, parameters, outputs, _, places = self._body
        return make(RequestBody, (request_id, {**parameters}, outputs, inputs, places))


class Layouts(dict[Any, Layout | None]):
    """The last layouts of bodies by keys, such as their sizes; None after the first such body."""

    def is_common(self, key: Any, body: RequestBody) -> bool:
        """Note a body; return whether to learn its layout: such bodies come again and again.

        A request with an id is one of its own, so it has none.
        """
        if key in self or body.request_id:
            return not body.request_id
        if len(self) >= _MAX_LAYOUTS:
            self.clear()
        self[key] = None
        return False

    def learn(
        self,
        key: Any,
        size: int,
        before: Sequence[bytes],
        body: RequestBody,
        content: tuple[Any, ...],
        target: tuple[str, str] = ("", ""),
    ) -> None:
        """Keep the layout of a body of this size; `before`: the bytes before each input's data."""
        inputs = body.inputs
        if not inputs or sum(map(len, before)) > MAX_LAYOUT_BYTES:
            return
        if any(t.datatype == BYTES or type(t.data) not in READABLE for t in inputs):
            return
        rows = [
            (gap, len(gap), *tensor[:3], len(tensor.data))
            for gap, tensor in zip(before, inputs, strict=True)
        ]
        if size == sum(row[1] + row[-1] for row in rows):
            # copied: that request's own parameters get the headers that are forwarded
            parameters, outputs = {**body.parameters}, [*body.outputs]
            alone = RequestBody("", parameters, outputs, [], body.places)
            self[key] = Layout(alone, rows, content, target)
