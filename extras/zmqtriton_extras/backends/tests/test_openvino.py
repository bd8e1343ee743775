"""Models of OpenVINO, from file to answer; `make test KIND=frameworks` has it installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import onnx_models
from zmqtriton_extras.backends.tests import summing
from zmqtriton_extras.backends.tests.served import Served
from zmqtriton_stub.api.errors import TritonModelException

openvino = pytest.importorskip("openvino")
operators = pytest.importorskip("openvino.opset13")

ROW = np.array([[1, 2, 3]], dtype=np.float32)


def write(directory: Path, shape: list[int]) -> Path:
    """A model Y = 2 * X as model.xml, with model.bin."""
    parameter = operators.parameter(shape, np.float32, name="X")
    result = operators.result(operators.multiply(parameter, operators.constant(np.float32(2))))
    model = openvino.Model([result], [parameter], "m")
    model.inputs[0].tensor.set_names({"X"})
    model.outputs[0].tensor.set_names({"Y"})
    path = directory / "1" / "model.xml"
    path.parent.mkdir(parents=True)
    openvino.save_model(model, path, compress_to_fp16=False)
    return path


def refused(directory: Path, text: str) -> str:
    with pytest.raises(TritonModelException) as error:
        Served(directory, text)
    return str(error.value)


@pytest.mark.row("K04")
def test_a_file_alone_is_a_model_with_its_tensors(tmp_path: Path) -> None:
    write(tmp_path / "rows", [-1, 3])
    write(tmp_path / "fixed", [1, 3])

    rows, fixed = Served(tmp_path / "rows", ""), Served(tmp_path / "fixed", "")

    assert (rows.config["max_batch_size"], rows.config["input"][0]["dims"]) == (4, [3])
    assert (fixed.config["max_batch_size"], fixed.config["input"][0]["dims"]) == (0, [1, 3])
    assert rows.ask_all({"X": ROW}, {"X": ROW}) == [{"Y": [[2, 4, 6]]}] * 2
    assert fixed.ask(X=ROW) == {"Y": [[2, 4, 6]]}


@pytest.mark.row("K04")
def test_a_batch_of_one_becomes_one_of_any_size(tmp_path: Path) -> None:
    write(tmp_path / "m", [1, 3])
    fixed = 'parameters { key: "SKIP_OV_DYNAMIC_BATCHSIZE" value { string_value: "YES" } }'

    served = Served(tmp_path / "m", "max_batch_size: 8")

    assert served.ask(X=np.repeat(ROW, 3, axis=0)) == {"Y": [[2, 4, 6]] * 3}
    text = refused(tmp_path / "m", f"max_batch_size: 8 {fixed}")
    assert "model does not support batching while non-zero max_batch_size is specified" in text


def test_it_reads_onnx_and_strings(tmp_path: Path) -> None:
    onnx_models.scaling(tmp_path / "onnx" / "1" / "model.onnx")
    text = operators.parameter([-1, 1], openvino.Type.string)
    model = openvino.Model([operators.result(text)], [text], "m")
    model.inputs[0].tensor.set_names({"S"})
    (tmp_path / "words" / "1").mkdir(parents=True)
    openvino.save_model(model, tmp_path / "words" / "1" / "model.xml")

    onnx = Served(tmp_path / "onnx", 'backend: "openvino" default_model_filename: "model.onnx"')
    words = Served(tmp_path / "words", "")

    assert onnx.ask(X=ROW) == {"Y": [[2, 4, 6]], "Z": [[-1, -2, -3]]}
    words_in: Any = np.array([["ä".encode()]], dtype=np.object_)
    assert words.ask(S=words_in) == {"S": [["ä"]]}


@pytest.mark.row("K04")
def test_what_cannot_be_served_has_a_reason(tmp_path: Path) -> None:
    path = write(tmp_path / "m", [-1, 3])
    io = 'input [ { name: "X" data_type: TYPE_FP64 dims: [ 3 ] } ] max_batch_size: 2'
    outputs = 'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 3 ] } ]'
    assert "configuration expects datatype TYPE_FP64 for input 'X', model provides TYPE_FP32" in (
        refused(tmp_path / "m", f"{io} {outputs}")
    )

    device = 'parameters { key: "TARGET_DEVICE" value { string_value: "TPU" } }'
    assert "openvino: cannot compile, " in refused(tmp_path / "m", device)

    path.write_text(path.read_text()[:300])
    assert f"openvino: cannot read {path}" in refused(tmp_path / "m", "")


def test_controls_and_states_of_sequences(tmp_path: Path) -> None:
    onnx_models.summing(tmp_path / "m" / "1" / "model.onnx")
    text = f'backend: "openvino" default_model_filename: "model.onnx" {summing.CONFIG}'

    assert summing.answers(Served(tmp_path / "m", text)) == summing.EXPECTED
