"""Every type and some shapes of tensors, there and back; and tensors that have no name."""

from __future__ import annotations

import struct

from tests.conformance.cases import Case, Request, binary, call, elements, get, infer, tensor
from zmqtriton_extras.pytriton.tests.conformance.raw import FP32, floats

SCRIPTS = ("kinds",)
INT32 = "INT32"


def both_ways(name: str, datatype: str, data: bytes, shape: list[int] | None = None) -> Request:
    return binary(name, ("x", datatype, shape or [2], data))


def case(name: str, request: Request | tuple[Request, ...], why: str, row: str = "J03") -> Case:
    return Case(name, request, row, why)


NUMBERS = (
    ("BOOL", b"\1\0"),
    ("INT8", b"\xff\1"),
    ("INT16", struct.pack("<2h", -2, 2)),
    ("INT32", struct.pack("<2i", -3, 3)),
    ("INT64", struct.pack("<2q", -(2**40), 2**40)),
    ("UINT8", b"\xff\1"),
    ("UINT16", struct.pack("<2H", 65535, 1)),
    ("UINT32", struct.pack("<2I", 2**32 - 1, 1)),
    ("UINT64", struct.pack("<2Q", 2**64 - 1, 1)),
    ("FP16", struct.pack("<2e", 0.5, -0.5)),
    ("FP32", struct.pack("<2f", 0.5, float("inf"))),
    ("FP64", struct.pack("<2d", 0.1, -0.1)),
)
TEXTS = ("bytes", "bytes_", "object", "object_", "dtype")
TEXT = elements("ab", "c\0", "")

CASES = (
    *(
        case(f"type_{name}", both_ways(f"type_{name}", name, data), "there and back")
        for name, data in NUMBERS
    ),
    *(
        case(f"type_of_text_{name}", both_ways(f"type_BYTES_{name}", "BYTES", TEXT, [3]), "objects")
        for name in ("bytes", "bytes_", "object", "object_")
    ),
    *(
        case(f"text_{name}_is_configured", get(f"/v2/models/type_BYTES_{name}/config"), "a string")
        for name in TEXTS
    ),
    case("type_of_a_dtype", both_ways("type_FP32_dtype", FP32, floats(1, 2)), "of numpy.dtype"),
    case("type_of_text_dtype", both_ways("type_BYTES_dtype", "BYTES", TEXT, [3]), "of a length"),
    case("type_single", both_ways("type_FP32_float_", FP32, floats(1, 2)), "another name"),
    case(
        "type_over_grpc",
        call("type_INT32", ("x", INT32, [2], struct.pack("<2i", -3, 3))),
        "the same",
    ),
    case(
        "text_over_grpc", call("type_BYTES_bytes", ("x", "BYTES", [3], TEXT)), "lengths and bytes"
    ),
    case("text_as_json", infer("type_BYTES_bytes", tensor("x", "BYTES", ["ä", "b"])), "in UTF-8"),
    case("bools_as_json", infer("type_BOOL", tensor("x", "BOOL", [True, False])), "as they are"),
    case("nothing_of_a_type", both_ways("type_INT8", "INT8", b"", [0]), "no elements"),
    case("nothing_of_text", both_ways("type_BYTES_bytes", "BYTES", b"", [0]), "no elements"),
    case("other_type", both_ways("type_INT8", "UINT8", b"\1\2"), "refused"),
    # --------------------------------------------------------------------- shapes
    case("shape_any", both_ways("shape_any", INT32, bytes(24), [2, 3]), "two of any size"),
    case("shape_any_of_nothing", both_ways("shape_any", INT32, b"", [2, 0]), "no elements"),
    case("shape_any_of_three", both_ways("shape_any", INT32, bytes(24), [2, 3, 1]), "refused"),
    case("shape_fixed", both_ways("shape_fixed", INT32, bytes(24), [2, 3]), "as it says"),
    case("shape_fixed_turned", both_ways("shape_fixed", INT32, bytes(24), [3, 2]), "refused"),
    case("shape_one", both_ways("shape_one", INT32, bytes(4), [1]), "one element"),
    case("shape_half", both_ways("shape_half", INT32, bytes(8), [1, 2]), "half of it"),
    case("shape_half_wrong", both_ways("shape_half", INT32, bytes(12), [1, 3]), "refused"),
    case(
        "shape_of_texts",
        both_ways("strings_shape", "BYTES", elements("a", "b", "c", "d"), [2, 2]),
        "two by two",
    ),
    case("shape_is_described", get("/v2/models/shape_half"), "without a batch"),
    # ---------------------------------------------------------------------- names
    case(
        "unnamed_tensors",
        infer("two_unnamed", tensor("INPUT_1", FP32, [1.0]), tensor("INPUT_2", FP32, [2.0])),
        "are numbered from one",
    ),
    case("unnamed_tensors_are_described", get("/v2/models/two_unnamed"), "by their numbers"),
    case(
        "unnamed_and_named_tensors",
        infer("mixed_names", tensor("INPUT_1", FP32, [1.0]), tensor("b", FP32, [2.0])),
        "each has its own number",
    ),
    case("mixed_names_are_described", get("/v2/models/mixed_names"), "one by its number"),
)
