"""Values of the command line and of answers, and the advice about a refused request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.standard.ctl.answering import answering
from tests.standard.ctl.fake_server import FakeServer, run
from tests.support.refusals import refusal
from zmqtriton_floor.datatypes import BY_NAME
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_standard.ctl import values


def info(datatype: str = "FP32", shape: tuple[int, ...] = (2,), name: str = "X") -> Any:
    return values.TensorInfo(name, BY_NAME[datatype], shape)


def read(text: str, datatype: str = "FP32", shape: tuple[int, ...] = (2,)) -> Any:
    return values.read_inputs([f"X={text}"], [info(datatype, shape)])["X"]


@pytest.mark.parametrize(
    ("text", "datatype", "shape", "expected"),
    [
        ("1,2", "FP32", (2,), np.array([1, 2], np.float32)),
        ("[1, 2.5]", "FP64", (2,), np.array([1, 2.5])),
        ("3", "INT8", (1,), np.array([3], np.int8)),
        ("[[1, 2]]", "INT32", (-1, 2), np.array([[1, 2]], np.int32)),
        ("1,2", "INT32", (-1, 2), np.array([[1, 2]], np.int32)),
        ("1,2,3", "INT64", (-1, -1), np.array([[1, 2, 3]])),
        ("1,2,3,4", "INT32", (-1, 2), np.array([[1, 2], [3, 4]], np.int32)),
        ("1,2,3,4", "INT32", (-1, 2, 2), np.array([[[1, 2], [3, 4]]], np.int32)),
        ("1,2,3,4", "INT32", (2, 2), np.array([[1, 2], [3, 4]], np.int32)),
        ("true,false", "BOOL", (2,), np.array([True, False])),
        ("hello, you", "BYTES", (-1, 1), np.array([[b"hello, you"]], object)),
        ("\u00e9\udcff", "BYTES", (1,), np.array([b"\xc3\xa9\xff"], object)),
        ("[1, 2]", "BYTES", (2,), np.array([b"1", b"2"], object)),
        ('["a", "b"]', "BYTES", (2,), np.array([b"a", b"b"], object)),
    ],
)
def test_values_get_the_type_and_the_shape_that_the_model_takes(
    text: str, datatype: str, shape: tuple[int, ...], expected: Any
) -> None:
    array = read(text, datatype, shape)

    assert (expected.dtype, expected.shape) == (array.dtype, array.shape)
    assert expected.tolist() == array.tolist()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["1,2"], "'1,2' is not NAME=VALUE; it takes X FP32 [2]"),
        (["Y=1"], "the model has no input 'Y'; it takes X FP32 [2]"),
        (["X=a,b"], "'a' must be of type FP32 for input 'X'"),
        (["X=[1,"], "must be a list in JSON"),
        (["X=1,2,3"], "input 'X' has the shape [3], but must have [2]"),
        (["X=@/nothing.npy"], "input 'X' cannot be read from /nothing.npy"),
        (["X=@/etc/hosts"], "/etc/hosts must be a .npy file"),
        ([], "no inputs are given (--zeros fills them); it takes X FP32 [2]"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_the_model_takes(
    words: list[str], expected: str
) -> None:
    assert expected in refusal(InvalidArgument, values.read_inputs, words, [info()])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "null must be a text"),
        ([True], "true must be a text"),
        ({"a": 1}, '{"a": 1} must be a text'),
        (["\ud800"], "surrogates not allowed"),
    ],
)
def test_what_is_no_text_is_refused(value: Any, reason: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        values.read_document({"X": value}, [info("BYTES", (1,))])

    assert refused.value.text.startswith("input 'X' cannot be made BYTES: ")
    assert reason in refused.value.text


def test_numbers_must_fit_into_the_type() -> None:
    for text, expected in (("300,1", "must be -128 to 127"), ("1.5,1", "a fraction")):
        with pytest.raises(InvalidArgument, match=expected):
            read(text, "INT8")


def test_files_are_arrays_or_the_bytes_of_one_element(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((1, 2), np.float64))
    (tmp_path / "cat.jpg").write_bytes(b"\xff\xd8")

    array = read(f"@{tmp_path}/x.npy", "FP32", (-1, 2))
    image = read(f"@{tmp_path}/cat.jpg", "BYTES", (1,))

    assert (np.float32, (1, 2)) == (array.dtype, array.shape)
    assert [b"\xff\xd8"] == image.tolist()


def test_zeros_fill_what_is_not_given() -> None:
    infos = [info(), info("BYTES", (-1, 1), "TEXT"), info("INT8", (2,), "N")]

    arrays = values.read_inputs(["X=1,2"], infos, fill="zeros")

    assert ([[b""]], [0, 0]) == (arrays["TEXT"].tolist(), arrays["N"].tolist())
    assert [1.0, 2.0] == arrays["X"].tolist()


def test_a_json_object_has_values_by_name() -> None:
    assert [1.0, 2.0] == values.read_document({"X": [1, 2]}, [info()])["X"].tolist()
    with pytest.raises(InvalidArgument, match="no input 'Y'"):
        values.read_document({"Y": 1}, [info()])


@pytest.mark.parametrize("datatype", ["FP32", "INT64", "BOOL", "BF16"])
def test_tensors_survive_their_way(datatype: str) -> None:
    array = read("1,0", datatype)

    back = values.decode(datatype, (2,), values.encode(array, BY_NAME[datatype]))

    assert array.tolist() == back.tolist()


def test_outputs_are_shown_as_text_and_as_json() -> None:
    texts = np.array([b"caf\xc3\xa9", b"x"], object)

    assert ["café", "x"] == values.to_json(texts)
    assert "café" == values.format_array(texts[:1], 80)
    assert "..." in values.format_array(np.zeros(1000), 80)


@pytest.mark.parametrize(
    ("status", "advice"), [(401, ""), (403, ""), (503, "; `zmqtriton-ctl explain m` may say why")]
)
def test_explain_is_proposed_where_it_may_know_more(
    server: FakeServer, status: int, advice: str
) -> None:
    server.answers["index"] = [{"name": "m"}]
    body = b'{"error": "no"}'
    head = f"HTTP/1.1 {status} No\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    with answering(head + body) as url:
        refused = run("infer", "m", "--zeros", "--url", url)

    assert f"error: no (HTTP {status}){advice}\n" == refused.stderr
