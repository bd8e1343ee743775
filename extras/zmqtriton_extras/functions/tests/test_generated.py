"""Functions by chance: a call, its tensors and plain JSON have the same answer, bit by bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest

from zmqtriton_extras.functions.interface import interface_of
from zmqtriton_extras.functions.tests.generated import Generated, as_json, functions
from zmqtriton_extras.functions.tests.test_functions import loaded

pytestmark = pytest.mark.slow


def tensor_of(value: Any, kind: dict[str, Any], *, has_batches: bool) -> Any:
    """The array of a value, made by what the configuration says alone."""
    dtype = kind["data_type"].removeprefix("TYPE_").replace("FP", "float").lower()
    dims = [int(dim) for dim in kind["dims"]]
    if dtype == "string":
        dtype, value = "object", json.dumps(value) if isinstance(value, dict) else value
    array = np.array(value, dtype)
    # empty lists say nothing of the dimensions below
    shape = [*array.shape, *[0] * len(dims)][: len(dims)] if array.shape else [1]
    return array.reshape([1] * has_batches + shape)


def direct(module: Any, generated: Generated, arguments: dict[str, Any]) -> dict[str, Any]:
    """The answer of a plain call, as JSON has it."""
    lists = {n: [v] if n in generated.entries else v for n, v in arguments.items()}
    lists.update({n: np.stack(lists[n]) for n in generated.rows})
    answer = module.caption(**lists)._asdict()
    return {n: as_json(v[0] if generated.has_batches else v) for n, v in answer.items()}


@hypothesis.settings(max_examples=1000, deadline=None)
@hypothesis.given(generated=functions())
def test_all_ways_to_a_function_agree(
    tmp_path_factory: pytest.TempPathFactory, generated: Generated
) -> None:
    directory: Path = tmp_path_factory.mktemp("generated")
    with loaded(directory, generated.source) as model:
        import sys

        module = sys.modules["model"]
        interface = interface_of(model.config)
        assert interface is not None
        kinds = {each["name"]: each for each in model.config["input"]}
        expected = [direct(module, generated, each) for each in generated.requests]
        has_batches = generated.has_batches
        tensors = [
            {n: tensor_of(v, kinds[n], has_batches=has_batches) for n, v in each.items()}
            for each in generated.requests
        ]
        documents = [
            interface.read("application/json", json.dumps(as_json(each)).encode())
            for each in (
                {n: as_json(v) for n, v in request.items()} for request in generated.requests
            )
        ]
        for inputs in (tensors, documents):
            if has_batches:
                responses = model.execute(inputs)
            else:
                responses = [response for each in inputs for response in model.execute([each])]
            answers = []
            for response in responses:
                assert response.error is None, response.error
                answers.append(json.loads(interface.write(response.outputs)))
            assert expected == answers
