"""Functions by chance: a call, its tensors and plain JSON have the same answer, bit by bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import hypothesis
import pytest

from zmqtriton.embedded.requests import InferenceRequest
from zmqtriton_extras.functions.backend.kinds import MismatchError
from zmqtriton_extras.functions.bodies import read
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

_FORM = "application/x-www-form-urlencoded"


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
        documents = [read(interface, "application/json", body).inputs for body in bodies]
        forms = [form_of(interface, generated.document(each)) for each in generated.requests]
        texts = [read(interface, _FORM, each).inputs if each else None for each in forms]
        others = [text or document for text, document in zip(texts, documents, strict=True)]
        for inputs in (tensors, documents, others):
            answers = []
            for responses in model.execute_streams(inputs):
                assert [None] * len(responses) == [each.error for each in responses]
                rows = [interface.write(each.outputs) for each in responses]
                answers.append([exactly(json.loads(row)) for row in rows])
            assert expected == answers

        wrong = json.loads(bodies[0]) | generated.wrong
        error = refusal(model, interface, json.dumps(wrong).encode())
        assert error, wrong
        [name] = generated.wrong
        assert name == place_of(error)[0], (wrong, str(error))
        if name in generated.nested:
            kind, value = kinds[name], generated.wrong[name]
            tensor = tensor_of(value, kind, has_batches=has_batches, is_document=True)
            [[other]] = model.execute_streams([{**tensors[0], name: tensor}])
            assert str(error) == str(other.error)
            form = form_of(interface, wrong)
            assert not form or str(error) == str(refusal(model, interface, form, _FORM))


def form_of(interface: Interface, document: dict[str, Any]) -> bytes | None:
    """The form with the texts of arguments; None if a text would say another value."""
    texts = {}
    for name, value in document.items():
        schema = interface.parameters[name].schema
        is_text = schema.get("type") == "string" or type(schema.get("enum", [0])[0]) is str
        if schema.get("type") == "array" and not isinstance(value, list):
            return None  # a field is an element of the list
        if value in (None, "") or is_text is not isinstance(value, str):
            return None
        texts[name] = value if isinstance(value, str) else json.dumps(value)
    return urlencode(texts).encode()


def place_of(error: Exception) -> list[str]:
    """The names of the place in the first line of an error."""
    return [part.strip("'") for part in str(error).partition(": ")[0].split(".")]


def refusal(
    model: Any, interface: Interface, body: bytes, content_type: str = "application/json"
) -> Exception | None:
    """The error of a request, from the server or from the model."""
    try:
        request = read(interface, content_type, body)
        [responses] = model.execute_streams([InferenceRequest(**request._asdict())])
    except MismatchError as error:
        return error
    return responses[0].error
