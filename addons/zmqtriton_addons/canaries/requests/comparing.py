"""Compares two responses to the same request, tensor by tensor.

Numbers may differ by a tolerance, which is absolute near 0 and relative elsewhere; everything else
is equal or different.
"""

from __future__ import annotations

from zmqtriton_floor.datatypes import BY_NUMBER, BYTES
from zmqtriton_floor.wire import ResponseBody, Tensor

_BOOL = 1


def find_difference(expected: ResponseBody, actual: ResponseBody, tolerance: float) -> str:
    """Return in words how a response differs, or ""; more outputs than expected are no difference.

    All data must be there.
    """
    by_name = {tensor.name: tensor for tensor in actual.outputs}
    for tensor in expected.outputs:
        other = by_name.get(tensor.name)
        if other is None:
            return f"output '{tensor.name}' is missing"
        difference = _difference_of(tensor, other, tolerance)
        if difference:
            return f"output '{tensor.name}' {difference}"
    return ""


def _difference_of(tensor: Tensor, other: Tensor, tolerance: float) -> str:
    _, datatype, shape, data = tensor
    if other.datatype != datatype:
        return f"is {_name(other.datatype)}, not {_name(datatype)}"
    if list(other.shape) != list(shape):
        return f"has the shape {list(other.shape)}, not {list(shape)}"
    if memoryview(data).cast("B") == memoryview(other.data).cast("B"):
        return ""
    if datatype in (BYTES, _BOOL) or not BY_NUMBER[datatype].numpy_name:
        return "has other content"
    return _numeric_difference(tensor, other, tolerance)


def _numeric_difference(tensor: Tensor, other: Tensor, tolerance: float) -> str:
    # only now: few processes compare, and each would take a fifth of a second longer to start
    import numpy as np

    from zmqtriton_floor.tensors import to_numpy

    try:
        numbers, others = (
            to_numpy(each.datatype, each.shape, each.data).astype(np.float64)
            for each in (tensor, other)
        )
    except ValueError:
        return "has other data than its shape needs"
    with np.errstate(invalid="ignore", over="ignore"):
        is_close = np.isclose(others, numbers, rtol=tolerance, atol=tolerance, equal_nan=True)
        count = int(is_close.size - np.count_nonzero(is_close))
        if not count:
            return ""
        greatest = np.nanmax(np.abs(others - numbers)[~is_close], initial=0.0)
    return f"differs in {count} of {is_close.size} elements, by up to {greatest:g}"


def _name(datatype: int) -> str:
    entry = BY_NUMBER.get(datatype)
    return entry.name if entry is not None else str(datatype)
