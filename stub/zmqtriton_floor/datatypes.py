"""Datatypes and their names, for every process, also those without numpy.

A datatype has four names: the protocol's (FP32), the configuration's (TYPE_FP32), Triton's number
(11) and numpy's.
"""

from __future__ import annotations

import math
from typing import Any, Sequence

from zmqtriton_floor.process.named_tuples import NamedTuple


class Datatype(NamedTuple):
    """A datatype: one row of the table below, which has all that is special about it."""

    name: str
    config_name: str
    number: int
    #: Bytes of an element; 0 for BYTES.
    size: int
    #: "" if numpy lacks this type.
    numpy_name: str
    #: Field of the protobuf message InferTensorContents that has elements of this type; "" if none
    #: has.
    contents: str
    #: JSON's elements: boolean, unsigned-integer, signed-integer, number or string; "" for none.
    json_kind: str
    #: The type code of Python's `array`, or "".
    array_code: str
    #: DLPack's type code; -1 if it has none.
    dlpack_code: int
    #: Names for a type that numpy lacks: the one that libraries such as ml_dtypes add to numpy, and
    #: the numpy type with the same bits. "" for types that numpy has.
    library_name: str = ""
    bits_name: str = ""

    @property
    def numpy(self) -> Any:
        """Return numpy's type, or None; numpy is only imported here."""
        import numpy

        return getattr(numpy, self.numpy_name) if self.numpy_name else None

    @property
    def numpy_bits(self) -> Any:
        """Return numpy's type or, if numpy lacks the datatype, one of the same bits."""
        import numpy

        return getattr(numpy, self.numpy_name or self.bits_name)


BYTES = 13
_UINT, _INT, _NUMBER = "unsigned-integer", "signed-integer", "number"

DATATYPES: Sequence[Datatype] = (
    Datatype("BOOL", "TYPE_BOOL", 1, 1, "bool_", "bool_contents", "boolean", "B", 6),
    Datatype("UINT8", "TYPE_UINT8", 2, 1, "uint8", "uint_contents", _UINT, "B", 1),
    Datatype("UINT16", "TYPE_UINT16", 3, 2, "uint16", "uint_contents", _UINT, "H", 1),
    Datatype("UINT32", "TYPE_UINT32", 4, 4, "uint32", "uint_contents", _UINT, "I", 1),
    Datatype("UINT64", "TYPE_UINT64", 5, 8, "uint64", "uint64_contents", _UINT, "Q", 1),
    Datatype("INT8", "TYPE_INT8", 6, 1, "int8", "int_contents", _INT, "b", 0),
    Datatype("INT16", "TYPE_INT16", 7, 2, "int16", "int_contents", _INT, "h", 0),
    Datatype("INT32", "TYPE_INT32", 8, 4, "int32", "int_contents", _INT, "i", 0),
    Datatype("INT64", "TYPE_INT64", 9, 8, "int64", "int64_contents", _INT, "q", 0),
    Datatype("FP16", "TYPE_FP16", 10, 2, "float16", "", "", "", 2),
    Datatype("FP32", "TYPE_FP32", 11, 4, "float32", "fp32_contents", _NUMBER, "f", 2),
    Datatype("FP64", "TYPE_FP64", 12, 8, "float64", "fp64_contents", _NUMBER, "d", 2),
    Datatype("BYTES", "TYPE_STRING", BYTES, 0, "object_", "bytes_contents", "string", "", -1),
    # the upper half of an FP32
    Datatype("BF16", "TYPE_BF16", 14, 2, "", "", "", "", 4, "bfloat16", "uint16"),
)
#: The numbers of those that numpy lacks.
WITHOUT_NUMPY = frozenset(d.number for d in DATATYPES if not d.numpy_name)
BY_NAME: dict[str, Datatype] = {d.name: d for d in DATATYPES}
BY_CONFIG_NAME: dict[str, Datatype] = {d.config_name: d for d in DATATYPES}
BY_NUMBER: dict[int, Datatype] = {d.number: d for d in DATATYPES}

#: The number of elements that a shape has: the product of its dimensions.
count_elements = math.prod
