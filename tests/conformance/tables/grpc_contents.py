"""ModelInfer: where the data of tensors stand: typed contents, raw ones, shared memory."""

from __future__ import annotations

from collections.abc import Sequence

from tests.conformance.cases import Case, Rpc, elements, literal, message

REPOSITORY = "grpc"


def typed(
    datatype: str, contents: str, *, name: str = "", shape: Sequence[int] = (2,), more: str = ""
) -> Rpc:
    """A request to `all_types` with one tensor in typed contents."""
    name = name or {"BYTES": "STRING"}.get(datatype, datatype)
    described = f'name: "{name}" datatype: "{datatype}" shape: {list(shape)}'
    return Rpc(
        "ModelInfer",
        f'model_name: "all_types" inputs {{ {described} contents {{ {contents} }} }} {more}',
    )


def raw(datatype: str, shape: Sequence[int], *data: bytes, name: str = "", more: str = "") -> Rpc:
    """A request to `all_types` with one tensor and as many raw contents as are given."""
    described = f'name: "{name or datatype}" datatype: "{datatype}" shape: {list(shape)}'
    contents = " ".join(f"raw_input_contents: {literal(one)}" for one in data)
    return Rpc("ModelInfer", f'model_name: "all_types" inputs {{ {described} }} {contents} {more}')


def region(*parameters: tuple[str, str], more: str = "") -> Rpc:
    """An input with parameters that say where in shared memory it lies."""
    entries = " ".join(f'parameters {{ key: "{k}" value {{ {v} }} }}' for k, v in parameters)
    return Rpc(
        "ModelInfer",
        'model_name: "all_types" '
        f'inputs {{ name: "FP32" datatype: "FP32" shape: [1] {entries} {more} }}',
    )


REGION = ("shared_memory_region", 'string_param: "nowhere"')
SIZE = ("shared_memory_byte_size", "int64_param: 4")
OFFSET = ("shared_memory_offset", "int64_param: 4")

TYPED = (
    ("BOOL", "bool_contents: [true, false]"),
    ("UINT8", "uint_contents: [0, 255]"),
    ("UINT16", "uint_contents: [0, 65535]"),
    ("UINT32", "uint_contents: [0, 4294967295]"),
    ("UINT64", "uint64_contents: [0, 18446744073709551615]"),
    ("INT8", "int_contents: [-128, 127]"),
    ("INT16", "int_contents: [-32768, 32767]"),
    ("INT32", "int_contents: [-2147483648, 2147483647]"),
    ("INT64", "int64_contents: [-9223372036854775808, 9223372036854775807]"),
    ("FP32", "fp32_contents: [0.5, inf]"),
    ("FP64", "fp64_contents: [0.1, -inf]"),
    ("BYTES", 'bytes_contents: ["", "a\\000\\377"]'),
)
#: What is meant, what is given, why.
MISTYPED = (
    ("BOOL", "int_contents: [1, 0]", "numbers for booleans"),
    ("UINT8", "int_contents: [1, 2]", "signed for unsigned"),
    ("INT8", "uint_contents: [1, 2]", "unsigned for signed"),
    ("INT32", "int64_contents: [1, 2]", "wide for narrow"),
    ("INT64", "int_contents: [1, 2]", "narrow for wide"),
    ("UINT64", "uint_contents: [1, 2]", "narrow for wide"),
    ("FP16", "fp32_contents: [1, 2]", "there is no field for it"),
    ("FP32", "fp64_contents: [1, 2]", "wide for narrow"),
    ("FP64", "fp32_contents: [1, 2]", "narrow for wide"),
    ("BYTES", "int_contents: [1, 2]", "numbers for texts"),
    ("FP32", 'bytes_contents: ["a", "b"]', "texts for numbers"),
)
CONTENTS = (
    *(
        Case(f"typed_{datatype.lower()}", typed(datatype, contents), "D21", "its own field")
        for datatype, contents in TYPED
    ),
    *(
        Case(
            f"typed_{datatype.lower()}_in_{contents.partition('_')[0]}",
            typed(datatype, contents),
            "D20",
            why,
        )
        for datatype, contents, why in MISTYPED
    ),
    Case("typed_beyond_uint8", typed("UINT8", "uint_contents: [256, 511]"), "D21", "too large"),
    Case("typed_beyond_int16", typed("INT16", "int_contents: [32768, -40000]"), "D21", "too large"),
    Case(
        "typed_with_an_unknown_type",
        typed("FP8", "fp32_contents: [1, 2]", name="FP32"),
        "D20",
        "no such type",
    ),
    Case(
        "typed_without_a_type", typed("", "fp32_contents: [1, 2]", name="FP32"), "D20", "none named"
    ),
    Case(
        "typed_bf16",
        typed("BF16", "fp32_contents: [1, 2]", name="FP32"),
        "D21",
        "a type without a field, and not the model's",
    ),
    Case("typed_too_few", typed("FP32", "fp32_contents: [1]"), "D20", "one of two"),
    Case("typed_too_many", typed("FP32", "fp32_contents: [1, 2, 3]"), "D20", "three of two"),
    Case(
        "typed_texts_too_few", typed("BYTES", 'bytes_contents: ["a"]'), "D20", "one text where two"
    ),
    Case(
        "typed_twice",
        typed("FP32", "fp32_contents: [1, 2] int_contents: [1, 2]"),
        "D20",
        "two fields with values",
    ),
    Case("typed_nothing", typed("FP32", ""), "D20", "contents without a field"),
    Case("typed_nothing_of_nothing", typed("FP32", "", shape=[0]), "D20", "no elements are wanted"),
    Case(
        "typed_and_raw",
        typed("FP32", "fp32_contents: [1, 2]", more=f"raw_input_contents: {literal(bytes(8))}"),
        "D20",
        "both",
    ),
    Case(
        "typed_beside_raw",
        typed(
            "FP32",
            "fp32_contents: [1, 2]",
            more='inputs { name: "INT8" datatype: "INT8" shape: [1] } raw_input_contents: "a"',
        ),
        "D20",
        "one tensor so, the other so",
    ),
    Case("raw_that_is_missing", raw("FP32", [1]), "D20", "neither"),
    Case("raw_of_nothing", raw("FP32", [0], b""), "D20", "no elements, no bytes"),
    Case("raw_too_short", raw("FP32", [2], bytes(4)), "D20", "four bytes of eight"),
    Case("raw_too_long", raw("FP32", [1], bytes(8)), "D20", "eight bytes of four"),
    Case("raw_too_many", raw("FP32", [1], bytes(4), bytes(4)), "D20", "one tensor, two contents"),
    Case("raw_without_inputs", Rpc("ModelInfer", message("all_types")), "D20", "none is needed"),
    Case("raw_fp16", raw("FP16", [2], b"\x00\x3c\x00\xc0"), "D21", "there is no other way"),
    Case(
        "raw_texts_over_grpc",
        raw("BYTES", [2], elements("a", b"\xff\x00"), name="STRING"),
        "D21",
        "with their lengths",
    ),
    Case(
        "raw_texts_with_half_a_length",
        raw("BYTES", [2], elements("a") + b"\1\0", name="STRING"),
        "D20",
        "two bytes of four",
    ),
    Case(
        "raw_texts_too_few",
        raw("BYTES", [2], elements("a"), name="STRING"),
        "D20",
        "one text of two",
    ),
    Case("raw_without_a_shape", raw("FP32", [], bytes(4)), "D20", "no dimension"),
    Case("raw_negative_dimension", raw("FP32", [-1], bytes(4)), "D20", "the wildcard is no shape"),
    Case("raw_dimension_of_minus_two", raw("FP32", [-2], bytes(8)), "D20", "below the wildcard"),
    Case(
        "raw_of_huge_shape",
        raw("FP32", [4611686018427387904], bytes(4)),
        "D20",
        "the number of bytes does not fit 64 bits",
    ),
    Case("raw_of_an_unknown_input", raw("FP32", [1], bytes(4), name="X"), "D20", "no such input"),
    Case("raw_input_without_a_name", raw("FP32", [1], bytes(4), name=" "), "D20", "a blank one"),
)

# -------------------------------------------------------------- shared memory

REGION_CASES = (
    Case("region_that_is_unknown", region(REGION, SIZE), "D24", "never registered"),
    Case("region_that_is_unknown_with_an_offset", region(REGION, SIZE, OFFSET), "D24", "the same"),
    Case("region_without_a_size", region(REGION), "D24", "how much of it"),
    Case("region_size_alone", region(SIZE), "D24", "the size of what"),
    Case("region_offset_alone", region(OFFSET), "D24", "the offset into what"),
    Case(
        "region_as_a_number",
        region(("shared_memory_region", "int64_param: 1"), SIZE),
        "D24",
        "a name is a text",
    ),
    Case(
        "region_size_as_a_text",
        region(REGION, ("shared_memory_byte_size", 'string_param: "4"')),
        "D24",
        "a size is a number",
    ),
    Case(
        "region_offset_as_a_boolean",
        region(REGION, SIZE, ("shared_memory_offset", "bool_param: true")),
        "D24",
        "an offset is a number",
    ),
    Case(
        "region_and_contents",
        region(REGION, SIZE, more="contents { fp32_contents: [1] }"),
        "D20",
        "both",
    ),
    Case("input_parameter_that_is_unknown", region(("x", "int64_param: 1")), "D24", "ignored"),
)

CASES = (*CONTENTS, *REGION_CASES)
