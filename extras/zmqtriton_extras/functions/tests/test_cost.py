"""The cost of a function beside the same model by hand, in calls: times are noise."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zmqtriton_extras.functions.tests.test_functions import loaded

HAND = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        rows = [pb_utils.get_input_tensor_by_name(each, "x").as_numpy() for each in requests]
        joined = np.concatenate(rows) * 2
        ends = np.cumsum([len(row) for row in rows])[:-1]
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("output", each)])
            for each in np.split(joined, ends)
        ]
"""
CONFIG = """
max_batch_size: 16
input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "output" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""
ALONE = """
from zmqtriton import Array, model

@model
def caption(x: Array["FP32", -1, 4]) -> Array["FP32", -1, 4]:
    return x * 2
"""
BATCH = ALONE.replace("@model", "@model(batch=16)")


def calls_of(directory: Path, source: str, requests: int, config: str = "") -> int:
    """The calls that a batch of requests makes."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    inputs = [{"x": np.ones((1, 4), np.float32)}] * requests
    with loaded(directory, source, config) as model:
        model.execute(inputs)
        gc.disable()  # what it frees of other tests calls finalizers
        sys.setprofile(note)
        try:
            model.execute(inputs)
        finally:
            sys.setprofile(None)
            gc.enable()
    return count


@pytest.mark.parametrize("requests", [1, 8, 16])
@pytest.mark.parametrize(("source", "more"), [(ALONE, 10), (BATCH, 30)], ids=["alone", "batch"])
def test_a_request_makes_few_calls_more(
    tmp_path: Path, source: str, more: int, requests: int
) -> None:
    """Together they take a few microseconds."""
    hand = calls_of(tmp_path / "hand", HAND, requests, CONFIG)
    function = calls_of(tmp_path / "function", source, requests)

    assert function - hand <= more * requests
