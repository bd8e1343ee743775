"""Compares the responses of a record with those of a later run, tensor by tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from zmqtriton.sdk.wire import InvalidArgument, datatypes
from zmqtriton_extras.capture.records import Record

EQUAL, CLOSE, DIFFERENT = "equal", "within tolerance", "different"


class Difference(NamedTuple):
    """The difference of one tensor; `greatest` is 0 if numbers cannot be compared."""

    tensor: str
    text: str
    greatest: float = 0.0


class Verdict(NamedTuple):
    kind: str
    differences: list[Difference] = []  # noqa: RUF012 - never changed


def compare(record: Record, responses: Sequence[Mapping[str, Any]], tolerance: float) -> Verdict:
    """Judge the outputs of a later run; more outputs than captured are no difference.

    Numbers may differ by the tolerance, which is absolute near 0 and relative elsewhere.
    """
    captured = record.document["responses"]
    if len(captured) != len(responses):
        text = f"{len(responses)} responses, not {len(captured)}"
        return Verdict(DIFFERENT, [Difference("", text)])
    kind, differences = EQUAL, []
    for expected, outputs in zip(captured, responses, strict=True):
        for entry in expected["outputs"]:
            if "data" not in entry and "file" not in entry:
                continue  # it was not captured
            name = entry["name"]
            if name not in outputs:
                differences.append(Difference(name, "is missing"))
                continue
            verdict, difference = _compare(record, entry, outputs[name], tolerance)
            if verdict != EQUAL:
                kind = verdict if kind == EQUAL else kind
            if difference is not None:
                differences.append(difference)
    return Verdict(DIFFERENT if differences else kind, differences)


def _compare(
    record: Record, entry: dict[str, Any], actual: Any, tolerance: float
) -> tuple[str, Difference | None]:
    name = entry["name"]
    try:
        expected = record.array(entry)
    except InvalidArgument as error:
        return DIFFERENT, Difference(name, error.text)
    if expected.dtype != actual.dtype:
        return DIFFERENT, Difference(name, f"is {actual.dtype}, not {expected.dtype}")
    if expected.shape != actual.shape:
        shapes = f"{list(actual.shape)}, not {list(expected.shape)}"
        return DIFFERENT, Difference(name, f"has the shape {shapes}")
    if expected.dtype == object or expected.tobytes() == actual.tobytes():
        is_equal = expected.dtype != object or bool(np.array_equal(expected, actual))
        return (EQUAL, None) if is_equal else (DIFFERENT, Difference(name, "has other content"))
    datatype = datatypes.BY_NAME[entry["datatype"]]
    if datatype.json_kind == "boolean":
        return DIFFERENT, Difference(name, "has other content")
    before, now = (
        _numbers(array, has_bits=not datatype.numpy_name) for array in (expected, actual)
    )
    with np.errstate(invalid="ignore", over="ignore"):
        is_close = np.isclose(now, before, rtol=tolerance, atol=tolerance, equal_nan=True)
        if is_close.all():
            return CLOSE, None
        greatest = float(np.nanmax(np.abs(now - before)[~is_close], initial=0.0))
    count = is_close.size - int(np.count_nonzero(is_close))
    text = f"differs in {count} of {is_close.size} elements, by up to {greatest:g}"
    return DIFFERENT, Difference(name, text, greatest)


def _numbers(array: Any, *, has_bits: bool) -> Any:
    if has_bits:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64)
