"""Functions by chance: a call, its tensors and plain JSON have the same answer, bit by bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from zmqtriton_extras.functions.backend.kinds import MismatchError
from zmqtriton_extras.functions.interface import Interface, interface_of
from zmqtriton_extras.functions.tests.generated import (
    HEAD,
    Generated,
    Plain,
    exactly,
    functions,
    tensor_of,
)
from zmqtriton_extras.functions.tests.test_functions import loaded

pytestmark = pytest.mark.slow


@hypothesis.settings(max_examples=300, deadline=None)
@hypothesis.given(generated=functions())
def test_all_ways_to_a_function_agree(
    tmp_path_factory: pytest.TempPathFactory, generated: Generated
) -> None:
    directory: Path = tmp_path_factory.mktemp("generated")
    source = HEAD + generated.source("caption")
    plain, has_batches = Plain(source), generated.has_batches
    with loaded(directory, source) as model:
        interface = interface_of(model.config)
        assert interface is not None
        kinds = {each["name"]: each for each in model.config["input"]}
        expected = [plain.answers("caption", generated, each) for each in generated.requests]
        tensors = [
            {
                n: tensor_of(
                    v, kinds[n], has_batches=has_batches, is_document=n in generated.nested
                )
                for n, v in each.items()
            }
            for each in generated.requests
        ]
        bodies = [json.dumps(generated.document(each)).encode() for each in generated.requests]
        documents = [interface.read("application/json", body).inputs for body in bodies]
        for inputs in (tensors, documents):
            answers = []
            for responses in model.execute_streams(inputs):
                assert [None] * len(responses) == [each.error for each in responses]
                rows = [interface.write(each.outputs) for each in responses]
                answers.append([exactly(json.loads(row)) for row in rows])
            assert expected == answers

        wrong = json.loads(bodies[0]) | generated.wrong
        assert refusal(model, interface, json.dumps(wrong).encode()), wrong


def refusal(model: Any, interface: Interface, body: bytes) -> Exception | None:
    """The error of a request, from the server or from the model."""
    try:
        [responses] = model.execute_streams([interface.read("application/json", body).inputs])
    except MismatchError as error:
        return error
    return responses[0].error
