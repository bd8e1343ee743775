"""The models on the page about pb_utils do what it says."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from tests.support.needs import ROOT
from zmqtriton_extras.authoring.testing import InferenceRequest, ZmqTritonError, load_model

pytestmark = pytest.mark.slow

CONFIG = """
input [ { name: "X", data_type: TYPE_FP32, dims: [ -1 ] } ]
output [ { name: "Y", data_type: TYPE_FP32, dims: [ -1 ] } ]
"""


@pytest.fixture
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The model of the page that the test is named after."""
    name = request.node.name.removeprefix("test_").partition("_")[0]
    version = tmp_path / name / "1"
    version.mkdir(parents=True)
    code = ROOT / "tools" / "reference" / "models" / f"{name}.py"
    (version / "model.py").write_text(code.read_text())
    (tmp_path / name / "config.pbtxt").write_text(CONFIG)
    return tmp_path / name


def test_tensors_come_and_go(directory: Path) -> None:
    with load_model(directory) as model:
        (response,) = model.execute([InferenceRequest({"X": [4, 9]})])
        with pytest.raises(ZmqTritonError, match="X has negative numbers"):
            model.infer(X=[-1])

    assert [2, 3] == response.outputs["Y"].tolist()
    assert {"largest": "9.0"} == response.parameters


def test_stream_of_any_number_of_responses(directory: Path) -> None:
    with (directory / "config.pbtxt").open("a") as config:
        config.write("model_transaction_policy { decoupled: true }")

    with load_model(directory) as model:
        numbers = [float(response["Y"][0]) for response in model.stream(X=[1, 2, 3])]

    assert [2, 4, 6] == numbers


def test_calls_of_another_model(directory: Path) -> None:
    with load_model(directory, bls={"roots": lambda inputs: {"Y": inputs["X"] + 1}}) as model:
        assert [2, 3] == model.infer(X=[1, 2])["Y"].tolist()


def test_metrics_and_lines(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    with load_model(directory) as model:
        model.infer(X=[1, 2, 3])
        model.infer(X=[1])

    lines = [record.message.partition(" ")[2] for record in caplog.records]
    assert ["3 rows so far", "4 rows so far"] == lines


def test_completion_in_place_of_a_configuration(directory: Path) -> None:
    (directory / "config.pbtxt").unlink()

    with load_model(directory) as model:
        assert 8 == model.config["max_batch_size"]
        assert [[1, 2]] == model.infer(X=np.array([[1, 2]], np.float32))["Y"].tolist()
