"""Tensors, and the signature of a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.needs import ROOT, name_of
from tests.support.refusals import refusal
from zmqtriton_floor import datatypes, tensors
from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.arrays import to_tensors
from zmqtriton_floor.cache_keys import Keys, is_cached, keys_of
from zmqtriton_floor.datatypes import BY_NUMBER
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.routing import inside
from zmqtriton_floor.signature import Signature
from zmqtriton_floor.tensors import encode_bytes, to_numpy
from zmqtriton_floor.wire import Reference, RequestBody, Tensor


# ----------------------------------------------------------------------------- tensors
# Datatypes and the BYTES codec.
@pytest.mark.slow
@given(st.lists(st.binary(max_size=40), max_size=20))
def test_bytes_elements_go_there_and_back(elements: list[bytes]) -> None:
    array = np.array([*elements, None], dtype=np.object_)[:-1]

    assert elements == tensors.decode_bytes(tensors.encode_bytes(array))


@pytest.mark.parametrize("datatype", [d for d in datatypes.DATATYPES if d.size and d.numpy])
def test_numpy_arrays_go_there_and_back_and_are_writable(datatype: datatypes.Datatype) -> None:
    array = np.arange(6).reshape(2, 3).astype(datatype.numpy)

    back = tensors.to_numpy(datatype.number, [2, 3], tensors.from_numpy(array))

    assert back.dtype == array.dtype
    assert np.array_equal(array, back)
    assert back.flags.writeable


def test_strings_come_back_as_bytes() -> None:
    array = np.array([["a", b"\xff\x00"], [1, ""]], dtype=np.object_)

    back = tensors.to_numpy(datatypes.BYTES, [2, 2], tensors.from_numpy(array))

    assert [[b"a", b"\xff\x00"], [b"1", b""]] == back.tolist()


def test_fixed_width_strings_are_bytes() -> None:
    array = np.array([b"ab", b"c"])

    assert datatypes.BYTES == tensors.datatype_of(array).number
    assert [b"ab", b"c"] == tensors.decode_bytes(tensors.from_numpy(array))


@pytest.mark.parametrize("data", [b"\x01", b"\x02\x00\x00\x00a", b"\x00\x00\x00\x00\x01"])
def test_broken_lengths_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="incomplete string"):
        tensors.decode_bytes(data)


def test_the_table_knows_each_type_by_all_its_names() -> None:
    assert 14 == len(datatypes.DATATYPES)
    for datatype in datatypes.DATATYPES:
        assert datatype is datatypes.BY_NAME[datatype.name]
        assert datatype is datatypes.BY_CONFIG_NAME[datatype.config_name]
        assert datatype is datatypes.BY_NUMBER[datatype.number]


# ------------------------------------------------------------------------------ arrays
# Arrays of numpy as inputs of a model that has another datatype.
def sent(value: Any, data_type: str) -> Any:
    """Return the array that a model with this input gets."""
    config = {"input": [{"name": "X", "data_type": data_type}]}
    [(_, number, shape, data)] = to_tensors({"X": value}, config)
    assert data_type.endswith(BY_NUMBER[number].name)
    return to_numpy(number, shape, bytes(data))


@pytest.mark.parametrize(
    ("array", "data_type"),
    [
        (np.ones(3), "TYPE_FP32"),
        (np.array([0.1, np.nan, -np.inf]), "TYPE_FP16"),
        (np.array([1.5], np.float32), "TYPE_FP64"),
        (np.arange(3), "TYPE_FP32"),
        (np.array([True, False]), "TYPE_FP32"),
        (np.arange(3), "TYPE_INT32"),
        (np.array([0, 255]), "TYPE_UINT8"),
        (np.array([0, 1]), "TYPE_BOOL"),
        (np.array([2**63 - 1], np.uint64), "TYPE_INT64"),
        (np.zeros((2, 0)), "TYPE_FP32"),
    ],
)
def test_numbers_become_those_of_the_model(array: Any, data_type: str) -> None:
    got = sent(array, data_type)

    assert array.shape == got.shape
    np.testing.assert_array_equal(array.astype(got.dtype), got)


@pytest.mark.parametrize(
    ("array", "data_type", "name"),
    [
        (np.array([1.0]), "TYPE_INT32", "np.int32"),
        (np.array([1.0]), "TYPE_BOOL", "np.bool"),
        (np.array([256]), "TYPE_UINT8", "np.uint8"),
        (np.array([-1]), "TYPE_UINT64", "np.uint64"),
        (np.array([2**63], np.uint64), "TYPE_INT64", "np.int64"),
        (np.array([2]), "TYPE_BOOL", "np.bool"),
        (np.array([1e300]), "TYPE_FP32", "np.float32"),
        (np.array([70_000]), "TYPE_FP16", "np.float16"),
    ],
)
def test_numbers_that_would_be_others_are_refused(array: Any, data_type: str, name: str) -> None:
    text = f"input 'X' is an array of {array.dtype}, which {data_type} of the model cannot hold"
    assert refusal(InvalidArgument, sent, array, data_type).startswith(
        f"{text} unchanged: pass {name}"
    )


def test_what_is_no_number_and_an_input_that_is_not_known_go_as_they_are() -> None:
    texts, floats = np.array(["a"]), np.ones(1)
    config = {"input": [{"name": "X", "data_type": "TYPE_FP32"}]}

    tensors = to_tensors({"X": texts, "Y": floats}, config)

    assert ["BYTES", "FP64"] == [BY_NUMBER[tensor.datatype].name for tensor in tensors]


# --------------------------------------------------------------------------- datatypes
# The table of datatypes is the one place that knows what is special about each.


#: The names of types in PyTorch, and in Triton's API in the process, are theirs.
FOREIGN = ("pytorch/modules.py", "tritonserver/enums.py", "tritonserver/responses.py")


def test_no_other_file_names_a_datatype_that_numpy_lacks() -> None:
    rooms = ("stub", "frontends", "zmqtriton", "standard", "extras")
    files = (path for room in rooms for path in (ROOT / room).rglob("*.py"))
    named = {name_of(path) for path in files if "BF16" in path.read_text()}

    assert ["stub/zmqtriton_floor/datatypes.py"] == [
        name for name in named if not name.endswith(FOREIGN) and "/tests/" not in name
    ]


# -------------------------------------------------------------------------- cache keys
# Keys of the response cache: equal for what is the same to a model, and for nothing else.
KEYS = Keys(b"secret")


LEFT = Tensor("LEFT", 8, [2], b"12345678")


RIGHT = Tensor("RIGHT", 8, [1], b"1234")


BODY = RequestBody("id", {"p": 1}, ["A", "B"], [LEFT, RIGHT])


def test_names_of_requests_parameters_and_orders_mean_nothing() -> None:
    assert KEYS.of(BODY) == KEYS.of(RequestBody("other", {"p": 2}, ["B", "A"], [RIGHT, LEFT]))
    assert 32 == len(KEYS.of(BODY))


@pytest.mark.parametrize(
    "body",
    [
        BODY._replace(inputs=[LEFT, RIGHT._replace(data=b"1235")]),
        BODY._replace(inputs=[LEFT, RIGHT._replace(shape=[1, 1])]),
        BODY._replace(inputs=[LEFT, RIGHT._replace(datatype=9)]),
        BODY._replace(inputs=[LEFT, RIGHT._replace(name="RIGHT2")]),
        BODY._replace(inputs=[LEFT]),
        BODY._replace(inputs=[LEFT._replace(name="RIGHT"), RIGHT._replace(name="LEFT")]),
        BODY._replace(outputs=["A"]),
        BODY._replace(outputs=[]),
    ],
)
def test_all_that_may_change_the_answer_changes_the_key(body: RequestBody) -> None:
    assert KEYS.of(BODY) != KEYS.of(body)


def test_without_the_secret_nobody_can_tell_a_key() -> None:
    assert KEYS.of(BODY) != Keys(b"guessed").of(BODY)


def test_large_tensors_are_hashed_where_they_are_placed() -> None:
    assert b"" == KEYS.of(BODY._replace(inputs=[LEFT._replace(data=bytes(INLINE_BYTES + 1))]))


def test_a_server_without_a_cache_has_no_keys() -> None:
    assert keys_of("") is None
    assert keys_of("00") is not None
    configs: list[dict[str, Any]] = [
        {},
        {"response_cache": {}},
        {"response_cache": {"enable": True}},
    ]
    assert [False, False, True] == [is_cached(config) for config in configs]


def test_a_large_tensor_has_the_same_part_by_its_bytes_and_by_its_digest() -> None:
    data = bytes(INLINE_BYTES + 1)
    placed = Tensor("A", 6, [len(data)], Reference(7, 1, 2, 0, len(data)))

    marked, part = Keys(b"s").marked(placed, data)

    assert part == Keys(b"s").of_tensor(placed, data)
    assert part == Keys(b"s").of_reference(marked, marked.data)
    assert part != Keys(b"another").of_tensor(placed, data)
    assert part != Keys(b"s").of_tensor(placed._replace(name="B"), data)


def test_a_request_with_a_reference_that_nobody_has_looked_at_has_no_key() -> None:
    data = bytes(INLINE_BYTES + 1)
    placed = Tensor("A", 6, [len(data)], Reference(7, 1, 2, 0, len(data)))
    body = RequestBody("", {}, [], [placed])
    marked, _ = Keys(b"s").marked(placed, data)

    assert Keys(b"s").of_placed(body) == b""
    assert Keys(b"s").of_placed(body._replace(inputs=[marked])) != b""


# -------------------------------------------------------------------- ensemble members
# The models that a request to one model leads to.
def _ensemble(*members: tuple[str, int]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [
        {"model_name": name, **({} if version < 0 else {"model_version": version})}
        for name, version in members
    ]
    return {"ensemble_scheduling": {"step": steps}}


def _names(configs: dict[tuple[str, int], dict[str, Any]], model: str) -> list[str]:
    def find(name: str, version: int) -> dict[str, Any] | None:
        config = configs.get((name, version))
        return None if config is None else {**config, "name": f"{name} {version}"}

    return [config["name"] for config in inside(find, model, -1)]


def test_members_are_found_however_deep_in_the_version_that_is_asked_for() -> None:
    configs = {
        ("outer", -1): _ensemble(("plain", -1), ("inner", 2)),
        ("inner", 2): _ensemble(("plain", 3), ("gone", -1)),
        ("plain", -1): {},
        ("plain", 3): {},
    }

    assert ["outer -1", "plain -1", "inner 2", "plain 3"] == _names(configs, "outer")
    assert [] == _names(configs, "gone")


def test_ensembles_that_name_each_other_are_no_endless_search() -> None:
    configs = {("a", -1): _ensemble(("b", -1)), ("b", -1): _ensemble(("a", -1))}

    assert ["a -1", "b -1"] == _names(configs, "a")


# --------------------------------------------------------------------------- signature
# Requests that fit a model and that do not, with Triton's words.


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


@pytest.mark.parametrize(
    ("signature", "request_", "batch_size"),
    [
        (ADD_SUB, _request(_fp32("A", 3, 4), _fp32("B", 3, 4), outputs=("C",)), 3),
        pytest.param(FREE, _request(_fp32("X", 5, 2)), 0, id="an optional input is left out"),
        pytest.param(FREE, _request(_fp32("X", 0, 2)), 0, id="a tensor without elements"),
    ],
)
def test_a_fitting_request_tells_its_batch_size(
    signature: Signature, request_: RequestBody, batch_size: int
) -> None:
    assert batch_size == signature.check(request_).batch_size


def test_what_others_will_check_is_admitted_by_its_shapes_alone() -> None:
    reference = Reference(1, 2, 3, 0, 16)
    for signature, shape, size in ((ADD_SUB, [3, 4], 3), (ADD_SUB, [], 0), (FREE, [3, 2], 0)):
        assert size == signature.admit([Tensor("X", _FP32, shape, reference)]).batch_size
    assert {FREE.admit([_fp32("X", n, 2)]).batch_key for n in (5, 6)} == {
        FREE.check(_request(_fp32("X", n, 2))).batch_key for n in (5, 6)
    }
    assert [2, 1, 0] == [s.rank(n) for s, n in ((ADD_SUB, "A"), (FREE, "S"), (FREE, "nobody"))]


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
    assert f"[request id: <id_unknown>] {text}" == refusal(
        InvalidArgument, lambda: ADD_SUB.check(_request(*tensors))
    )


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


@pytest.mark.row("C46")
@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        ([[9, 4], [9, 4]], "inference request batch-size must be <= 8 for 'm'"),
        ([[2, 4], [3, 4]], "input 'A' batch size does not match other inputs for 'm'"),
        ([[], [1, 4]], "input 'A' has no shape but model requires batch dimension for 'm'"),
    ],
)
def test_a_batch_is_one_size_that_the_model_takes(shapes: list[list[int]], text: str) -> None:
    tensors = [Tensor(name, _FP32, shape, b"") for name, shape in zip("AB", shapes, strict=True)]

    assert f"[request id: <id_unknown>] {text}" == refusal(
        InvalidArgument, lambda: ADD_SUB.check(_request(*tensors))
    )
