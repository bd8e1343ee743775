"""The classification extension: an output becomes its largest values as `value:index:label`.

Both protocols apply it between the gateway's response and its encoding. Texts are Triton's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from zmqtriton_floor.datatypes import BY_NUMBER, BYTES, DATATYPES, count_elements
from zmqtriton_floor.errors import InternalError, InvalidArgument
from zmqtriton_floor.wire import ResponseBody, Tensor
from zmqtriton_frontends.inference.model_version import ModelVersion

#: Number of classes that a client wants of an output, by its name.
Classes = Mapping[str, int]
NO_CLASSES: Classes = MappingProxyType({})

#: Datatypes that have an order, as far as Triton knows.
_NUMPY = {
    d.number: d.numpy_name
    for d in DATATYPES
    if d.name.startswith(("INT", "UINT")) or d.name in ("FP32", "FP64")
}


def classify(model: ModelVersion, response: ResponseBody, classes: Classes) -> ResponseBody:
    """Return the response with classes for the outputs that were requested as classes.

    Raises InvalidArgument for an output whose values have no order.
    """
    return response._replace(
        outputs=[
            _classified(model, tensor, classes[tensor.name]) if tensor.name in classes else tensor
            for tensor in response.outputs
        ]
    )


def _classified(model: ModelVersion, tensor: Tensor, count: int) -> Tensor:
    name, number, shape, data = tensor
    kind = _NUMPY.get(number)
    if kind is None:
        datatype = BY_NUMBER.get(number)
        raise InvalidArgument(
            "class result not available for output due to unsupported type "
            f"'{datatype.name if datatype else '<invalid>'}'"
        )
    if len(data) != count_elements(shape) * BY_NUMBER[number].size:
        raise InternalError(
            f"invalid output '{name}' in the response of model '{model.name}': correct its "
            "datatype or shape"
        )
    # few clients ask for classes, and the gRPC process has no other use for 7 MB of numpy
    import numpy as np

    is_batch = bool(model.signature.max_batch_size and shape)
    rows = shape[0] if is_batch else 1
    length = count_elements(shape[1:] if is_batch else shape)
    values = np.frombuffer(data, kind).reshape(rows, length)
    labels = model.labels.get(name, ())
    kept = min(count, length)
    texts = [text for row in values for text in _best(np, row, kept, labels)]
    joined = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    return Tensor(name, BYTES, [rows, kept] if is_batch else [kept], joined)


def _best(np: Any, row: Any, count: int, labels: Sequence[str]) -> list[bytes]:
    """Return the largest values first; of equal ones the first one; NaN is the smallest."""
    if not count:
        return []
    is_float = row.dtype.kind == "f"
    order = np.where(np.isnan(row), -np.inf, row) if is_float else row
    if count < len(row):
        places = np.flatnonzero(order >= np.partition(order, len(row) - count)[len(row) - count])
    else:
        places = np.arange(len(row))
    # backwards twice, so that equals keep their order
    backwards = places[::-1]
    ranked = backwards[np.argsort(order[backwards], kind="stable")][::-1][:count]
    texts = []
    for place in ranked.tolist():
        value = row[place]
        text = f"{float(value):f}:{place}" if is_float else f"{int(value)}:{place}"
        if place < len(labels) and labels[place]:
            text += f":{labels[place]}"
        texts.append(text.encode())
    return texts
