"""Datatypes and their names, for every process, also those without numpy.

A datatype has four names: the protocol's (FP32), the configuration's (TYPE_FP32), Triton's number
(11) and numpy's.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Sequence


class Datatype(NamedTuple):
    """One row of the table below."""

    name: str
    config_name: str
    number: int
    #: Bytes of an element; 0 for BYTES.
    size: int
    #: "" if numpy has no such type.
    numpy_name: str

    @property
    def numpy(self) -> Any:
        """Return numpy's type, or None; numpy is only imported here."""
        import numpy

        return getattr(numpy, self.numpy_name) if self.numpy_name else None


BYTES = 13
BF16 = 14

DATATYPES: Sequence[Datatype] = (
    Datatype("BOOL", "TYPE_BOOL", 1, 1, "bool_"),
    Datatype("UINT8", "TYPE_UINT8", 2, 1, "uint8"),
    Datatype("UINT16", "TYPE_UINT16", 3, 2, "uint16"),
    Datatype("UINT32", "TYPE_UINT32", 4, 4, "uint32"),
    Datatype("UINT64", "TYPE_UINT64", 5, 8, "uint64"),
    Datatype("INT8", "TYPE_INT8", 6, 1, "int8"),
    Datatype("INT16", "TYPE_INT16", 7, 2, "int16"),
    Datatype("INT32", "TYPE_INT32", 8, 4, "int32"),
    Datatype("INT64", "TYPE_INT64", 9, 8, "int64"),
    Datatype("FP16", "TYPE_FP16", 10, 2, "float16"),
    Datatype("FP32", "TYPE_FP32", 11, 4, "float32"),
    Datatype("FP64", "TYPE_FP64", 12, 8, "float64"),
    Datatype("BYTES", "TYPE_STRING", BYTES, 0, "object_"),
    Datatype("BF16", "TYPE_BF16", BF16, 2, ""),
)
BY_NAME: dict[str, Datatype] = {d.name: d for d in DATATYPES}
BY_CONFIG_NAME: dict[str, Datatype] = {d.config_name: d for d in DATATYPES}
BY_NUMBER: dict[int, Datatype] = {d.number: d for d in DATATYPES}

#: The number of elements that a shape has: the product of its dimensions.
count_elements = math.prod
