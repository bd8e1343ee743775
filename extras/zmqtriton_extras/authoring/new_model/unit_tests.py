"""Writes the unit test of a new model."""

from __future__ import annotations

import json

from zmqtriton_extras.authoring.new_model.draft import RESPONSES, Draft, Kind

_HEAD = '''\
"""The model {name}, tested without a server: pytest test_{name}.py"""

from pathlib import Path

import numpy as np
from zmqtriton.testing import {imports}

MODEL = Path(__file__).parent / {directory} / "{name}"
INPUTS = {inputs}
'''
_PLAIN = """

def test_a_request_is_answered():
    with load_model(MODEL) as model:
        outputs = model.infer(INPUTS)

{checks}
"""
_BATCH = """

def test_requests_of_a_batch_are_answered_each():
    with load_model(MODEL) as model:
        first, second = model.execute([INPUTS, INPUTS])

    assert (first.error, second.error) == (None, None)
"""
_DECOUPLED = """

def test_a_request_is_answered_with_a_stream():
    with load_model(MODEL) as model:
        responses = list(model.stream(INPUTS))

    assert len(responses) == {responses}
    for step, outputs in enumerate(responses, 1):
{checks}
"""
_SEQUENCE = """

def test_a_sequence_is_added_up():
    with load_model(MODEL) as model:
        model.infer(InferenceRequest(INPUTS, correlation_id=7, sequence_start=True))
        outputs = model.infer(InferenceRequest(INPUTS, correlation_id=7, sequence_end=True))

{checks}
"""
_BLS = '''

def answer(inputs):
    """Stand in for the model {callee}."""
    return {answer}


def test_a_request_is_answered_by_the_other_model():
    with load_model(MODEL, bls={{"{callee}": answer}}) as model:
        outputs = model.infer(INPUTS)

{checks}
'''
_FORMS = {
    Kind.PLAIN: _PLAIN,
    Kind.DECOUPLED: _DECOUPLED,
    Kind.SEQUENCE: _SEQUENCE,
    Kind.BLS: _BLS,
}


def test_text(draft: Draft, directory: str) -> str:
    """Return the code of a unit test; `directory` contains the model's directory."""
    imports = "InferenceRequest, load_model" if draft.kind is Kind.SEQUENCE else "load_model"
    form = _FORMS[draft.kind]
    if draft.kind is Kind.PLAIN and draft.max_batch_size > 1:
        form += _BATCH
    return (_HEAD + form).format(
        name=draft.name,
        imports=imports,
        directory=json.dumps(directory),
        inputs=draft.examples(draft.inputs),
        checks=_checks(draft),
        responses=RESPONSES,
        callee=draft.callee,
        answer=draft.examples(draft.outputs, 4),
    )


def _checks(draft: Draft) -> str:
    indent = " " * (8 if draft.kind is Kind.DECOUPLED else 4)
    if draft.kind is Kind.BLS:
        expected = ['b"hello"' if output.is_text else "1" for output in draft.outputs]
    else:
        expected = [expression.expected for expression in draft.expressions()]
    return "\n".join(
        f'{indent}np.testing.assert_array_equal(outputs["{output.name}"], {value})'
        for output, value in zip(draft.outputs, expected, strict=True)
    )
