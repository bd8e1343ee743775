"""Each rule that a configuration can break, with the text that Triton's users know."""

from __future__ import annotations

import pytest

from zmqtriton.config.errors import ConfigError
from zmqtriton.config.model_config import apply_defaults
from zmqtriton.config.pbtxt import parse_text
from zmqtriton.config.validation import validate, validate_tensors

PYTHON = 'name: "m" backend: "python" '
TENSOR = '{ name: "A" data_type: TYPE_FP32 dims: 4 %s }'


def problem(text: str) -> str:
    """The reason for refusing a configuration, or ""."""
    config = parse_text(text)
    apply_defaults(config)
    try:
        validate(config)
        validate_tensors(config)
    except ConfigError as error:
        return error.text
    return ""


def tensor(text: str) -> str:
    return PYTHON + "input " + TENSOR % text


@pytest.mark.row("E40", "E41")
@pytest.mark.parametrize(
    "text",
    [
        PYTHON,
        'name: "m" backend: "custom" platform: "anything"',
        tensor("reshape { shape: [2, 2] }"),
        PYTHON + 'max_batch_size: 1 input { name: "A" data_type: TYPE_INT8 dims: 1 reshape {} }',
        PYTHON
        + """input { name: "A" data_type: TYPE_INT8 dims: [2, 4, -1, 6]
             reshape { shape: [8, -1, 1, 6] } }""",
        PYTHON + "max_batch_size: 8 dynamic_batching { preferred_batch_size: [4, 8] }",
        PYTHON + "dynamic_batching { priority_levels: 2 default_priority_level: 2 }",
        PYTHON + "model_transaction_policy { decoupled: true }",
        PYTHON + 'model_repository_agents { agents { name: "checksum" } }',
        PYTHON
        + """sequence_batching { oldest {} control_input { name: "START" control {
             kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } }
             control_input { name: "ID" control {
             kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } } }""",
    ],
)
def test_what_can_be_served_is_accepted(text: str) -> None:
    assert "" == problem(text)


@pytest.mark.row("E20", "E21", "E25")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('backend: "python"', "model configuration must specify 'name'"),
        ('name: "m" platform: "x"', "unexpected platform type 'x' for m"),
        ('name: "m"', "unexpected platform type '' for m"),
        (
            'name: "m" backend: "python" platform: "ensemble"',
            "Ensemble model 'm' must have platform type 'ensemble' and empty backend type",
        ),
        (
            'name: "m" backend: "onnxruntime" platform: "x"',
            "unexpected 'platform' and 'backend' pair, got:x, onnxruntime",
        ),
        (
            'name: "m" platform: "ensemble"',
            "ensemble scheduling must be set for ensemble m whose platform is ensemble",
        ),
        (PYTHON + "max_batch_size: -1", "'max_batch_size' must be non-negative value for m"),
        (
            PYTHON + "model_transaction_policy { decoupled: true } response_cache { enable: true }",
            "Response Cache does not currently support model m with 'decoupled' transaction "
            "policy. Please disable the response cache.",
        ),
        (
            PYTHON + "sequence_batching {} response_cache { enable: true }",
            "Response Cache does not currently support model m with sequence batching scheduler. "
            "Please disable the response cache.",
        ),
        (
            PYTHON + "model_metrics { metric_control {} }",
            "metric control must specify 'metric_identifier'",
        ),
        (
            PYTHON + 'model_warmup { inputs { key: "A" value { dims: [2, -1] zero_data: true } } }',
            "warmup setting expects all variable-size dimensions are specified for input 'A'",
        ),
    ],
)
def test_a_wrong_model_is_refused(text: str, expected: str) -> None:
    assert expected == problem(text)


@pytest.mark.row("E22", "E26")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PYTHON + "input {}", "model input must specify 'name' for m"),
        (PYTHON + "output {}", "model output must specify 'name' for m"),
        (PYTHON + 'input { name: "A" }', "model input 'A' must specify 'data_type' for m"),
        (
            PYTHON + 'input { name: "A" data_type: 99 dims: 1 }',
            "model input 'A' must specify 'data_type' for m",
        ),
        (
            PYTHON + 'input { name: "A" data_type: TYPE_INT8 }',
            "model input 'A' must specify 'dims' for m",
        ),
        (
            tensor("dims: 0"),
            "model input 'A' dimension must be integer >= 1, or -1 to indicate a variable-size "
            "dimension for m",
        ),
        (
            tensor("reshape { shape: 0 }"),
            "model input 'A' reshape dimensions must be integer >= 1, or -1 to indicate a "
            "variable-size dimension for m",
        ),
        (
            tensor("reshape { shape: [3] }"),
            "model input 'A' has different size for dims and reshape for m",
        ),
        (
            tensor("reshape { shape: [-1] }"),
            "model input 'A' has different size for dims and reshape for m",
        ),
        (
            "max_batch_size: 2 " + tensor("reshape {}"),
            "model input 'A' has different size for dims and reshape for m",
        ),
        (
            tensor("dims: -1 reshape { shape: [-1, -1] }"),
            "model input 'A' has different number of variable-size dimensions for dims and "
            "reshape for m",
        ),
        (tensor("format: FORMAT_NHWC"), "model input NHWC/NCHW require 3 dims for m"),
        (
            tensor("is_shape_tensor: true"),
            "shape tensors are only supported for TensorRT platform for m",
        ),
        (
            tensor("is_non_linear_format_io: true"),
            "Non-linear IO format is only supported for the TensorRT platform for m",
        ),
        (
            tensor("dims: 4611686018427387904"),
            "model input 'A' dimension must describe at most 140737488355328 elements for m",
        ),
        (
            PYTHON + "batch_input { data_type: TYPE_INT32 }",
            "batch input kind 'BATCH_ELEMENT_COUNT' expects 1 source input, got 0 for m",
        ),
        (
            PYTHON + 'batch_input { data_type: TYPE_INT8 source_input: "A" }',
            "batch input data type must be TYPE_INT32 or TYPE_FP32 for m",
        ),
        (
            PYTHON + 'batch_input { data_type: TYPE_INT32 source_input: "A" }',
            "unknown source input name 'A' for m",
        ),
        (
            tensor("") + ' batch_output { source_input: "A" target_name: "O" }',
            "unknown target output name 'O' for m",
        ),
    ],
)
def test_a_wrong_tensor_is_refused(text: str, expected: str) -> None:
    assert expected == problem(text)


_IN_AND_OUT = (
    PYTHON
    + 'input { name: "A" data_type: TYPE_FP32 dims: 4 } '
    + 'output { name: "B" data_type: TYPE_FP32 dims: 4 } '
)


@pytest.mark.row("E34")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('batch_input { kind: 1 target_name: "X" data_type: TYPE_FP32 source_input: "A" }', ""),
        ('batch_output { target_name: "B" source_input: "A" }', ""),
        ("batch_input { data_type: TYPE_FP32 }", "expects 1 source input, got 0"),
        ('batch_input { data_type: TYPE_INT8 source_input: "A" }', "must be TYPE_INT32 or"),
        ('batch_input { data_type: TYPE_FP32 source_input: "C" }', "unknown source input name 'C'"),
        ('batch_output { target_name: "B" }', "expects 1 source input, got 0"),
        ('batch_output { target_name: "C" source_input: "A" }', "unknown target output name 'C'"),
        (
            'batch_output { target_name: ["B", "B"] source_input: "A" }',
            "target output name 'B' can only be specified once",
        ),
    ],
)
def test_tensors_of_a_batch_name_what_there_is(text: str, expected: str) -> None:
    message = problem(_IN_AND_OUT + text)

    assert expected in message
    assert bool(expected) is bool(message)
