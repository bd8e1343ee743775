"""Suggestions for misspelt names."""

from __future__ import annotations

import pytest

from zmqtriton_floor.errors import closest_match

TYPES = ("BOOL", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES", "BF16")
CONFIGURED = (*(f"TYPE_{name}" for name in TYPES if name != "BYTES"), "TYPE_STRING")


@pytest.mark.parametrize(
    ("word", "names", "expected"),
    [
        ("TYPE_FLOAT", CONFIGURED, "TYPE_FP32"),
        ("type_double", CONFIGURED, "TYPE_FP64"),
        ("TYPE_BYTES", CONFIGURED, "TYPE_STRING"),
        ("TYPE_BFLOAT16", CONFIGURED, "TYPE_BF16"),
        ("FLOAT", TYPES, "FP32"),
        ("float", CONFIGURED, "TYPE_FP32"),
        ("STR", TYPES, "BYTES"),
        ("KIND_CUDA", ("KIND_AUTO", "KIND_GPU", "KIND_CPU"), "KIND_GPU"),
        ("statsu", ("stats", "status"), "status"),
        ("FP3", TYPES, "FP32"),
        ("nothing", TYPES, ""),
    ],
)
def test_a_name_of_others_or_with_letters_in_another_order_is_understood(
    word: str, names: tuple[str, ...], expected: str
) -> None:
    assert expected == closest_match(word, names)
