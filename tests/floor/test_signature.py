"""Requests that fit a model and that do not, with Triton's words."""

from __future__ import annotations

from typing import Any

import pytest

from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.signature import Signature
from zmqtriton_floor.tensors import encode_bytes
from zmqtriton_floor.wire import Reference, RequestBody, Tensor

_FP32, _INT32, _BYTES = 11, 8, 13


def _io(name: str, kind: str, dims: list[int], **more: Any) -> dict[str, Any]:
    return {"name": name, "data_type": kind, "dims": dims, **more}


ADD_SUB = Signature(
    {
        "name": "m",
        "max_batch_size": 8,
        "input": [_io("A", "TYPE_FP32", [4]), _io("B", "TYPE_FP32", [4])],
        "output": [_io("C", "TYPE_FP32", [4])],
    }
)
FREE = Signature(
    {
        "name": "m",
        "max_batch_size": 0,
        "dynamic_batching": {},
        "input": [_io("X", "TYPE_FP32", [-1, 2]), _io("S", "TYPE_STRING", [-1], optional=True)],
        "output": [],
    }
)


def _fp32(name: str, *shape: int, size: int = -1) -> Tensor:
    count = 1
    for dim in shape:
        count *= dim
    return Tensor(name, _FP32, list(shape), b"\0" * (count * 4 if size < 0 else size))


def _request(*tensors: Tensor, outputs: tuple[str, ...] = ()) -> RequestBody:
    return RequestBody("", {}, list(outputs), list(tensors))


def test_a_fitting_request_tells_its_batch_size() -> None:
    admission = ADD_SUB.check(_request(_fp32("A", 3, 4), _fp32("B", 3, 4), outputs=("C",)))

    assert 3 == admission.batch_size


def test_what_others_will_check_is_admitted_by_its_shapes_alone() -> None:
    reference = Reference(1, 2, 3, 0, 16)
    for signature, shape, size in ((ADD_SUB, [3, 4], 3), (ADD_SUB, [], 0), (FREE, [3, 2], 0)):
        assert size == signature.admit([Tensor("X", _FP32, shape, reference)]).batch_size
    keys = {FREE.admit([_fp32("X", n, 2)]).batch_key for n in (5, 6)}
    assert keys == {FREE.check(_request(_fp32("X", n, 2))).batch_key for n in (5, 6)}
    assert [2, 1, 0] == [s.rank(n) for s, n in ((ADD_SUB, "A"), (FREE, "S"), (FREE, "nobody"))]


def test_optional_inputs_may_be_left_out() -> None:
    assert 0 == FREE.check(_request(_fp32("X", 5, 2))).batch_size


@pytest.mark.row("E30", "E61")
def test_requests_of_other_shapes_or_inputs_have_other_batch_keys() -> None:
    text = Tensor("S", _BYTES, [1], encode_bytes([b"a"]))
    keys = {
        FREE.check(_request(_fp32("X", 5, 2))).batch_key,
        FREE.check(_request(_fp32("X", 6, 2))).batch_key,
        FREE.check(_request(_fp32("X", 5, 2), text)).batch_key,
    }

    assert 3 == len(keys)
    assert FREE.check(_request(_fp32("X", 5, 2))).batch_key in keys


def _free(*inputs: dict[str, Any]) -> Signature:
    entries = [{"data_type": "TYPE_FP32", "dims": [-1], **entry} for entry in inputs]
    return Signature({"name": "m", "max_batch_size": 8, "input": entries, "dynamic_batching": {}})


@pytest.mark.row("E33", "E61")
def test_the_shapes_of_ragged_inputs_keep_nobody_apart() -> None:
    one = _free({"name": "A", "allow_ragged_batch": True}, {"name": "B"})
    both = _free({"name": "A", "allow_ragged_batch": True})

    keys = [
        one.check(_request(_fp32("A", 1, a), _fp32("B", 1, b))).batch_key
        for a, b in ((2, 3), (4, 3), (2, 4))
    ]

    assert keys[0] == keys[1] != keys[2]
    assert [0, 0] == [both.check(_request(_fp32("A", 1, a))).batch_key for a in (2, 3)]
    assert (True, False) == (both.has_constant_key, one.has_constant_key)


@pytest.mark.row("E30")
def test_requests_with_and_without_an_optional_input_have_other_batch_keys() -> None:
    model = _free({"name": "A"}, {"name": "B", "optional": True, "allow_ragged_batch": True})
    a, b, longer = _fp32("A", 1, 2), _fp32("B", 1, 2), _fp32("B", 1, 3)

    keys = [model.check(_request(*inputs)).batch_key for inputs in ((a,), (a, b), (a, longer))]

    assert keys[0] != keys[1] == keys[2]


@pytest.mark.parametrize(
    ("tensors", "text"),
    [
        (
            [_fp32("A", 1, 4)],
            "expected 2 inputs but got 1 inputs for model 'm'. Got input(s) ['A'], but missing "
            "required input(s) ['B']. Please provide all required input(s).",
        ),
        (
            [_fp32("A", 1, 4), _fp32("X", 1, 4)],
            "unexpected inference input 'X' for model 'm', allowed inputs are: A, B",
        ),
        ([_fp32("A", 1, 4), _fp32("A", 1, 4)], "input 'A' already exists in request"),
        (
            [_fp32("B", 1, 4), _fp32("A", 1, 4), _fp32("A", 1, 4)],
            "input 'A' already exists in request",
        ),
        (
            [_fp32("A", 1, 4), Tensor("B", _INT32, [1, 4], b"\0" * 16)],
            "inference input 'B' data-type is 'INT32', but model 'm' expects 'FP32'",
        ),
        (
            [_fp32("A", 1, 5), _fp32("B", 1, 4)],
            "unexpected shape for input 'A' for model 'm'. Expected [-1,4], got [1,5]. ",
        ),
        (
            [Tensor("A", _FP32, [-2, -2], b"\0" * 16), _fp32("B", 1, 4)],
            "input 'A' batch size does not match other inputs for 'm'",
        ),
        (
            [Tensor(name, _FP32, [-2, -2], b"\0" * 16) for name in "AB"],
            "unexpected shape for input 'B' for model 'm'. Expected [-1,4], got [-2,-2]. ",
        ),
        (
            [_fp32("A", 9, 4), _fp32("B", 9, 4)],
            "inference request batch-size must be <= 8 for 'm'",
        ),
        (
            [_fp32("A", 2, 4), _fp32("B", 3, 4)],
            "input 'A' batch size does not match other inputs for 'm'",
        ),
        (
            [Tensor("A", _FP32, [], b"\0" * 4), _fp32("B", 1, 4)],
            "input 'A' has no shape but model requires batch dimension for 'm'",
        ),
        (
            [_fp32("A", 1, 4, size=12), _fp32("B", 1, 4)],
            "input byte size mismatch for input 'A' for model 'm'. Expected 16, got 12",
        ),
        (
            [_fp32("A", 1, 4, size=12), _fp32("B", 1, 4, size=8)],
            "input byte size mismatch for input 'B' for model 'm'. Expected 16, got 8",
        ),
        (
            [_fp32("X", 1, 4), _fp32("Y", 1, 4)],
            "unexpected inference input 'Y' for model 'm', allowed inputs are: A, B",
        ),
    ],
)
@pytest.mark.row("C42", "C43", "C44")
def test_what_does_not_fit_is_refused_with_its_reason(tensors: list[Tensor], text: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        ADD_SUB.check(_request(*tensors))

    assert f"[request id: <id_unknown>] {text}" == error.value.text


@pytest.mark.row("C45")
def test_a_wrong_rank_is_explained_by_the_batch_dimension() -> None:
    with pytest.raises(InvalidArgument, match="NOTE: Setting a non-zero max_batch_size"):
        ADD_SUB.check(_request(_fp32("A", 4), _fp32("B", 4)))


def test_the_request_id_stands_in_front() -> None:
    with pytest.raises(InvalidArgument, match=r"^\[request id: 77\] unexpected inference output"):
        ADD_SUB.check(RequestBody("77", {}, ["Z"], [_fp32("A", 1, 4), _fp32("B", 1, 4)]))


@pytest.mark.row("C42")
def test_the_number_of_inputs_counts_optional_ones() -> None:
    with pytest.raises(InvalidArgument, match="number of inputs between 1 and 2 but got 3 inputs"):
        FREE.check(_request(_fp32("X", 1, 2), _fp32("Y", 1), _fp32("Z", 1)))


@pytest.mark.parametrize(
    ("shape", "data", "text"),
    [
        ([2], encode_bytes([b"a"]), "expected 2 string elements .* got 1"),
        ([1], encode_bytes([b"a", b"b"]), "unexpected number of string elements 2 .* expecting 1"),
        ([1], b"\x01\x00", "incomplete string length indicator .* only 2 bytes"),
        ([1], b"\x05\x00\x00\x00ab", "expecting string of length 5 but only 2 bytes"),
        ([1], b"\xff\xff\xff\xff", "expecting string of length 4294967295 but only 0 bytes"),
        ([2**40], b"", f"expected {2**40} string elements"),
    ],
)
@pytest.mark.row("C47")
def test_bytes_elements_are_counted_and_measured(shape: list[int], data: bytes, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        FREE.check(_request(_fp32("X", 1, 2), Tensor("S", _BYTES, shape, data)))


@pytest.mark.row("C47")
def test_a_product_that_no_memory_holds_is_a_mismatch() -> None:
    huge = Tensor("X", _FP32, [2**62, 2], b"\0" * 16)

    with pytest.raises(InvalidArgument, match="byte size mismatch"):
        FREE.check(_request(huge))


def test_a_zero_size_tensor_fits() -> None:
    assert 0 == FREE.check(_request(_fp32("X", 0, 2))).batch_size


@pytest.mark.row("C46")
def test_a_batch_is_one_size_that_the_model_takes() -> None:
    def refusal(*shapes: list[int]) -> str:
        tensors = [
            Tensor(name, _FP32, shape, b"") for name, shape in zip("AB", shapes, strict=False)
        ]
        with pytest.raises(InvalidArgument) as error:
            ADD_SUB.check(_request(*tensors))
        return error.value.text.removeprefix("[request id: <id_unknown>] ")

    assert "inference request batch-size must be <= 8 for 'm'" == refusal([9, 4], [9, 4])
    text = "input 'A' batch size does not match other inputs for 'm'"
    assert text == refusal([2, 4], [3, 4])
    text = "input 'A' has no shape but model requires batch dimension for 'm'"
    assert text == refusal([], [1, 4])
