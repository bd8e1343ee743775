"""Files of frameworks, checked without the framework: their format, and the names of tensors."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from tests.support import onnx_models
from zmqtriton.config.backends import backend_places
from zmqtriton.diagnosis.rules.models import CheckOptions, check_model
from zmqtriton_extras.backends.model_files import fields

NET = """<?xml version="1.0"?>
<net name="m" version="11"><layers>
<layer id="0" name="a" type="Parameter"><output><port id="0" names="X,also"/></output></layer>
<layer id="1" name="b" type="Const"><output><port id="0"/></output></layer>
<layer id="2" name="c" type="Multiply"><output><port id="2" names="Y"/></output></layer>
<layer id="3" name="d" type="Result"/></layers>
<edges><edge from-layer="0" from-port="0" to-layer="2" to-port="0"/>
<edge from-layer="1" from-port="0" to-layer="2" to-port="1"/>
<edge from-layer="2" from-port="2" to-layer="3" to-port="0"/></edges></net>
"""


RULES = CheckOptions(backend_places=backend_places())


def io(backend: str, input_name: str, output_name: str) -> str:
    return (
        f'backend: "{backend}"\n'
        f'input [ {{ name: "{input_name}" data_type: TYPE_FP32 dims: [ 3 ] }} ]\n'
        f'output [ {{ name: "{output_name}" data_type: TYPE_FP32 dims: [ 3 ] }} ]\n'
    )


def problems_of(directory: Path, config: str = "") -> list[str]:
    """Return the problems, without the ends that name places."""
    directory.mkdir(exist_ok=True)
    (directory / "config.pbtxt").write_text(config)
    return [f"{one.line} {one.text}" for one in check_model(directory, RULES).errors]


def put(directory: Path, name: str, content: str | bytes) -> Path:
    path = directory / "1" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return directory


def test_an_onnx_file_with_other_than_tensors(tmp_path: Path) -> None:
    onnx_models.with_a_sequence(tmp_path / "s" / "1" / "model.onnx")
    onnx_models.with_maps(tmp_path / "m" / "1" / "model.onnx")

    [sequence], [maps] = (problems_of(tmp_path / name) for name in "sm")

    assert sequence.endswith("/s/1/model.onnx: 'S' is a sequence, not a tensor")
    remedy = 'convert a classifier of scikit-learn with options={"zipmap": False}'
    assert maps.endswith(f"/m/1/model.onnx: 'P' is a sequence of maps, not a tensor; {remedy}")


def test_controls_and_states_that_an_onnx_file_does_not_have(tmp_path: Path) -> None:
    onnx_models.summing(tmp_path / "m" / "1" / "model.onnx")
    sequences = """
backend: "onnxruntime"
max_batch_size: 4
sequence_batching {
  control_input [
    { name: "READY", control [ { kind: CONTROL_SEQUENCE_READY, int32_false_true: [ 0, 1 ] } ] }
  ]
  state [
    { input_name: "BEFORE", output_name: "AFTER", data_type: TYPE_INT32, dims: [ 1 ] }
  ]
}
"""

    assert [] == problems_of(tmp_path / "m", sequences)
    wrong = sequences.replace('"READY"', '"BUSY"').replace("BEFORE", "OLD").replace("AFTER", "NEW")
    assert [
        "6 configuration specified sequence control 'BUSY', but model does not provide that input",
        "9 unexpected inference input 'OLD', allowed inputs are: BEFORE, READY, VALUE",
        "9 unexpected inference output 'NEW', allowed outputs are: AFTER, BUSY, PLACE, ROWS, TOTAL",
    ] == problems_of(tmp_path / "m", wrong)


def test_names_that_a_model_of_openvino_does_not_have(tmp_path: Path) -> None:
    put(put(tmp_path / "m", "model.xml", NET), "model.bin", "1234")

    assert [] == problems_of(tmp_path / "m", io("openvino", "also", "Y"))
    assert [
        "2 unexpected inference input 'V', allowed inputs are: X, also",
        "3 unexpected inference output 'X', allowed outputs are: Y",
    ] == problems_of(tmp_path / "m", io("openvino", "V", "X"))


def test_signatures_and_names_that_a_saved_model_does_not_have(tmp_path: Path) -> None:
    def message(number: int, *content: bytes) -> bytes:
        whole = b"".join(content)
        assert len(whole) < 128
        return bytes([number << 3 | 2, len(whole)]) + whole

    signature = message(1, message(1, b"x")) + message(2, message(1, b"y"))
    entry = message(5, message(1, b"serving_default"), message(2, signature))
    put(tmp_path / "m", "model.savedmodel/saved_model.pb", b"\x08\x01" + message(2, entry))
    other = 'parameters { key: "TF_SIGNATURE_DEF" value { string_value: "two" } }'

    assert [] == problems_of(tmp_path / "m")
    assert [
        "2 unexpected inference input 'V', allowed inputs are: x",
        "3 unexpected inference output 'x', allowed outputs are: y",
    ] == problems_of(tmp_path / "m", io("tensorflow", "V", "x"))
    [text] = problems_of(tmp_path / "m", other)
    assert text.endswith("has no signature 'two'; it has serving_default")


def _pytorch(directory: Path) -> None:
    put(directory, "model.pt", "weights or anything")


#: A GraphDef of one node.
_PLACEHOLDER = b"\n\x10\n\x01V\x12\x0bPlaceholder"


def _graphdef(directory: Path) -> None:
    put(directory, "model.graphdef", b"")


@pytest.mark.parametrize(
    ("write", "config", "text"),
    [
        (lambda d: put(d, "model.onnx", "this is no model\n"), "", "model.onnx: is no ONNX file: "),
        (lambda d: put(d, "model.onnx", b""), "", "is no ONNX file: it is empty"),
        (lambda d: put(d, "model.onnx", b"\x08\x01"), "", "is no ONNX file: it has no graph"),
        (lambda d: put(d, "model.xml", "<net>"), "", "model.xml: no element found"),
        (lambda d: put(d, "model.xml", "<html/>"), "", "is no model of OpenVINO: it begins with"),
        (lambda d: put(d, "model.xml", NET), "", "/model.bin' for model 'm'"),
        (_pytorch, io("pytorch", "a", "b"), "model.pt: is no TorchScript, no exported program"),
        (_graphdef, "", "model.graphdef: is no GraphDef: it has no nodes"),
        (
            lambda d: put(d, "model.graphdef", _PLACEHOLDER),
            io("tensorflow", "W", "any"),
            "unexpected inference input 'W', allowed inputs are: V",
        ),
        (
            lambda d: put(d, "model.savedmodel/saved_model.pb", "x"),
            "",
            "is no SavedModel that can be served: ",
        ),
        (lambda d: put(d, "other.txt", "x"), 'backend: "fil"', "there is no 'xgboost.json' or '"),
        (
            lambda d: put(d, "model.txt", "{}"),
            'backend: "fil" parameters { key: "model_type" value { string_value: "lightgbm" } }',
            "'model.txt' begins with b'{}', which no file of its format does",
        ),
        (
            lambda d: put(d, "model.txt", "tree\n"),
            io("fil", "a", "output__0"),
            "unexpected inference input 'a', allowed inputs are: input__0",
        ),
    ],
)
def test_a_file_of_another_format_is_a_problem(
    tmp_path: Path, write: Callable[[Path], None], config: str, text: str
) -> None:
    write(tmp_path / "m")

    problems = problems_of(tmp_path / "m", config)

    assert any(text in problem for problem in problems), problems


def test_a_class_may_have_weights_of_any_format(tmp_path: Path) -> None:
    _pytorch(tmp_path / "m")
    put(tmp_path / "m", "model.py", "")
    with zipfile.ZipFile(put(tmp_path / "s", "x", "") / "1" / "model.pt", "w") as archive:
        archive.writestr("model/code/x", "")
    put(tmp_path / "s", "model.pt2", "not read where there is a model.pt")

    assert [] == problems_of(tmp_path / "m", io("pytorch", "a", "b"))
    assert [] == problems_of(tmp_path / "s", io("pytorch", "a", "b"))


def test_a_message_that_is_cut_anywhere_is_none(tmp_path: Path) -> None:
    whole = helper.make_tensor("t", TensorProto.FLOAT, [2], [1.0, 2.0]).SerializeToString()
    assert whole

    complete = 0
    for size in range(len(whole) + 1):
        try:
            complete += bool(list(fields(memoryview(whole[:size]))))
        except ValueError as error:
            assert str(error).startswith(("it ends within a field", "byte "))  # noqa: PT017
    assert 1 <= complete < len(whole)
