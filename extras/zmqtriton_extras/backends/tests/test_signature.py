"""The tensors of a model beside those of its file, those of sequences among them."""

from __future__ import annotations

from typing import Any

import pytest

from zmqtriton_extras.backends import signature
from zmqtriton_extras.backends.signature import Io
from zmqtriton_stub.api.errors import TritonModelException

#: Of the model's file.
INPUTS = [
    Io("X", "TYPE_FP32", [-1, 3]),
    Io("START", "TYPE_BOOL", [-1, 1]),
    Io("ID", "TYPE_UINT64", [-1, 1]),
    Io("BEFORE", "TYPE_INT32", [-1, 2]),
]
OUTPUTS = [Io("Y", "TYPE_FP32", [-1, 3]), Io("AFTER", "TYPE_INT32", [-1, 2])]


def control(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "control": [fields]}


def config(**batching: Any) -> dict[str, Any]:
    """A model with two controls and a state, or with these in their place."""
    start = control("START", kind="CONTROL_SEQUENCE_START", bool_false_true=[False, True])
    number = control("ID", kind="CONTROL_SEQUENCE_CORRID", data_type="TYPE_UINT64")
    state = {"input_name": "BEFORE", "output_name": "AFTER", "data_type": "TYPE_INT32"}
    return {
        "name": "m",
        "max_batch_size": 4,
        "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [3]}],
        "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": ["-1"]}],
        "sequence_batching": {
            "control_input": [start, number],
            "state": [{**state, "dims": [2]}],
            **batching,
        },
    }


def reason(document: dict[str, Any], inputs: list[Io] = INPUTS) -> str:
    with pytest.raises(TritonModelException) as error:
        signature.check(document, inputs, OUTPUTS)
    return str(error.value)


def test_controls_and_states_follow_the_tensors_of_clients() -> None:
    found = signature.read(config())

    assert found.inputs == ["X", "START", "ID", "BEFORE"]
    assert found.outputs == ["Y", "AFTER"]
    assert frozenset(["AFTER"]) == found.states
    signature.check(config(), INPUTS, OUTPUTS)


def test_a_state_that_clients_get_too_is_one_output() -> None:
    document = config()
    document["output"].insert(0, {"name": "AFTER", "data_type": "TYPE_INT32", "dims": [2]})

    assert signature.read(document).outputs == ["AFTER", "Y"]
    signature.check(document, INPUTS, OUTPUTS)


@pytest.mark.row("K03")
def test_the_model_must_have_its_controls() -> None:
    ready = {"kind": "CONTROL_SEQUENCE_READY"}
    assert reason(config(control_input=[control("READY", **ready, int32_false_true=[0, 1])])) == (
        "configuration specified sequence control 'READY', but model does not provide that input"
    )

    where = "unable to load model 'm', sequence control 'START'"
    assert (
        f"{where}, the model expects data-type TYPE_BOOL but the model configuration specifies "
        "data-type TYPE_FP32"
    ) == reason(config(control_input=[control("START", **ready, fp32_false_true=[0, 1])]))

    wide = [INPUTS[0], Io("START", "TYPE_BOOL", [-1, 2]), *INPUTS[2:]]
    assert f"{where} in model has dims [2] but dims [1] is expected" == reason(config(), wide)


@pytest.mark.row("K03")
def test_controls_and_states_count_as_inputs() -> None:
    assert reason(config(state=[])) == (
        "unable to load model 'm', configuration expects 3 inputs, model provides 4"
    )
    assert reason(config(control_input=[])) == (
        "unable to load model 'm', configuration expects 2 inputs, model provides 4"
    )


@pytest.mark.row("K03")
def test_the_model_must_have_its_states() -> None:
    state = {"data_type": "TYPE_INT32", "dims": [2]}
    assert (
        reason(config(state=[{**state, "input_name": "OLD", "output_name": "AFTER"}]))
        == "unexpected inference input 'OLD', allowed inputs are: BEFORE, ID, START, X"
    )
    assert (
        reason(config(state=[{**state, "input_name": "BEFORE", "output_name": "NEW"}]))
        == "unexpected inference output 'NEW', allowed outputs are: AFTER, Y"
    )

    both = {"input_name": "BEFORE", "output_name": "AFTER"}
    assert reason(config(state=[{**both, "data_type": "TYPE_FP32", "dims": [2]}])) == (
        "unable to load model 'm', configuration expects datatype TYPE_FP32 for input state "
        "'BEFORE', model provides TYPE_INT32"
    )
    assert reason(config(state=[{**both, "data_type": "TYPE_INT32", "dims": [3]}])) == (
        "model 'm', tensor 'BEFORE': the model expects 2 dimensions (shape [-1,2]) but the model "
        "configuration specifies 2 dimensions (shape [-1,3])"
    )
