"""ONNX Runtime's outputs where clients read them: which, and what a wrong file leads to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import onnx_models

onnxruntime = pytest.importorskip("onnxruntime")

from zmqtriton_extras.backends.onnxruntime.bound_outputs import BoundOutputs  # noqa: E402

FLOATS = np.dtype(np.float32)
LARGE = np.ones((1 << 16, 3), np.float32)
KINDS = {"X": FLOATS, "Y": FLOATS, "Z": FLOATS}


def _bound(path: Path, kinds: dict[str, Any] | None = None) -> BoundOutputs:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return BoundOutputs(session, KINDS if kinds is None else kinds)


def test_large_outputs_are_written_to_memory_that_was_made_for_them(tmp_path: Path) -> None:
    bound = _bound(onnx_models.scaling(tmp_path / "model.onnx"))

    outputs = bound.run({"X": LARGE}, ["Z", "Y"])

    assert outputs is not None
    assert [{-1.0}, {2.0}] == [set(array.ravel()) for array in outputs]
    assert [LARGE.shape] * 2 == [array.shape for array in outputs]
    assert all(array.flags.writeable for array in outputs)


@pytest.mark.parametrize(
    ("inputs", "kinds"),
    [
        ({"X": LARGE[:8]}, KINDS),
        ({"X": LARGE.astype(np.float64)}, KINDS),
        ({"X": LARGE}, {"X": FLOATS}),
    ],
    ids=["small", "of another type", "without a type"],
)
def test_others_are_the_sessions_own(tmp_path: Path, inputs: Any, kinds: dict[str, Any]) -> None:
    bound = _bound(onnx_models.scaling(tmp_path / "model.onnx"), kinds)

    assert bound.run(inputs, ["Y"]) is None


def test_a_file_that_is_wrong_about_a_size_is_believed_no_more(tmp_path: Path) -> None:
    bound = _bound(onnx_models.scaling(tmp_path / "model.onnx"))
    bound._outputs["Y"] = ["N", 4]

    outputs = bound.run({"X": LARGE}, ["Y"])

    assert outputs is not None
    assert (LARGE.shape, {2.0}) == (outputs[0].shape, set(outputs[0].ravel()))
    assert bound.run({"X": LARGE}, ["Y"]) is None


def test_a_wrong_request_changes_nothing(tmp_path: Path) -> None:
    bound = _bound(onnx_models.scaling(tmp_path / "model.onnx"))

    with pytest.raises(Exception, match="invalid dimensions"):
        bound.run({"X": np.ones((1 << 18, 2), np.float32)}, ["Y"])

    assert bound.run({"X": LARGE}, ["Y"]) is not None
