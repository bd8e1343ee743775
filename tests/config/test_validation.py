"""Validation of configs: required fields, defaults, and the words of faults."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import pytest

from tests.support.refusals import refusal
from tests.support.scripted import string_parameter
from zmqtriton.config import known_parameters
from zmqtriton.config.errors import ConfigError, raise_first
from zmqtriton.config.model_config import apply_defaults
from zmqtriton.config.parameters import chosen_user, parameter_problems
from zmqtriton.config.pbtxt import parse_text
from zmqtriton.config.validation import config_problems, tensor_problems
from zmqtriton.findings import Finding
from zmqtriton_floor.settings.offers import Offers

# -------------------------------------------------------------------------- validation
# Each rule that a configuration can break, with the text that Triton's users know.


PYTHON = 'name: "m" backend: "python" '


TENSOR = '{ name: "A" data_type: TYPE_FP32 dims: 4 %s }'


def completed(text: str) -> Any:
    config = parse_text(text)
    apply_defaults(config)
    return config


def problem(text: str) -> str:
    """The reason for refusing a configuration, or ""."""
    config = completed(text)
    try:
        raise_first(config_problems(config))
        raise_first(tensor_problems(config))
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
        PYTHON
        + """dynamic_batching { priority_levels: 2 default_priority_level: 2
             priority_queue_policy [{ key: 1 value {} }, { key: 2 value {} }] }""",
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
        (
            tensor("dims: -1 reshape { shape: [4] }"),
            "model input 'A' has different size for dims and reshape for m",
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


# ---------------------------------------------------------------------------- findings
# The form of a finding, for people and for programs.


def test_a_finding_is_printed_with_its_advice_and_commands() -> None:
    finding = Finding.warning(
        "few descriptors", "Raise the limit.", "ulimit -n 65536", "zmqtriton \x1b"
    )

    lines = ["warning: few descriptors", "  Raise the limit."]
    commands = ["  next: ulimit -n 65536", "  then: zmqtriton \\u001b"]
    assert [*lines, *commands] == finding.lines("", finding.severity.value)


def test_the_parser_s_words_and_the_probable_name_are_printed() -> None:
    finding = Finding(
        "bad", path="m/config.pbtxt", line=3, detail="no field 'a\x1b\u202e'", suggestion="b"
    )

    assert ["m/config.pbtxt:3: no field 'a\\u001b\\u202e'. Did you mean 'b'?"] == finding.lines(
        finding.place
    )


def test_a_program_gets_the_fields_that_it_is_promised() -> None:
    assert {
        "severity": "warning",
        "text": "few descriptors",
        "commands": ["ulimit -n 65536"],
    } == Finding.warning("few descriptors", "", "ulimit -n 65536").document(
        "severity", "text", "commands"
    )


# -------------------------------------------------------------------------- of add ons
# Parameters for features that are add-ons, where one of these is missing.


def test_parameters_of_add_ons_that_are_not_here_have_no_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = 'parameters { key: "autoscale_max_instances" value { string_value: "2" } }'
    monkeypatch.setattr("zmqtriton.addons.add_ons", dict)

    config = parse_text(f'name: "m" {text}')

    assert ({}, []) == (known_parameters.read(config), [*known_parameters.problems(config)])


@pytest.mark.addons
@pytest.mark.parametrize("name", ["canary_version", "canary_weight", "AFFINITY"])
def test_a_parameter_of_an_extra_that_is_left_out_is_refused_with_its_name(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = parse_text(f'name: "m" parameters {{ key: "{name}" value {{ string_value: "2" }} }}')
    monkeypatch.setattr("zmqtriton.addons.add_ons", dict)
    monkeypatch.setattr("zmqtriton.addons.offers", Offers)

    [problem] = known_parameters.own_parameter_problems(config)

    add_on = "affinity" if name == "AFFINITY" else "canaries"
    assert f"{name}: the add-on '{add_on}' is not installed" == problem.text


# ---------------------------------------------------------------------------- defaults
# The defaults of a configuration.


@pytest.mark.row("E05")
@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("", "version_policy.latest.num_versions", 1),
        ("version_policy { all {} }", "version_policy.latest.num_versions", 0),
        (
            "max_batch_size: 8 dynamic_batching {}",
            "dynamic_batching.preferred_batch_size",
            [8],
        ),
        ("dynamic_batching {}", "dynamic_batching.preferred_batch_size", []),
        (
            "max_batch_size: 8 dynamic_batching { preferred_batch_size: [2, 4] }",
            "dynamic_batching.preferred_batch_size",
            [2, 4],
        ),
        (
            "sequence_batching {}",
            "sequence_batching.max_sequence_idle_microseconds",
            1_000_000,
        ),
        (
            "sequence_batching { max_sequence_idle_microseconds: 5 }",
            "sequence_batching.max_sequence_idle_microseconds",
            5,
        ),
        (
            "max_batch_size: 8 sequence_batching { oldest {} }",
            "sequence_batching.oldest.preferred_batch_size",
            [8],
        ),
        (
            "max_batch_size: 8 sequence_batching { direct {} }",
            "sequence_batching.oldest.preferred_batch_size",
            [],
        ),
        ("", "optimization.output_pinned_memory.enable", True),
        (
            "optimization { input_pinned_memory { enable: false } }",
            "optimization.input_pinned_memory.enable",
            False,
        ),
        (
            "optimization { input_pinned_memory { enable: false } }",
            "optimization.output_pinned_memory.enable",
            True,
        ),
    ],
)
def test_what_is_left_open_gets_tritons_defaults(text: str, field: str, value: Any) -> None:
    assert value == attrgetter(field)(completed(text))


@pytest.mark.row("E05")
def test_ensembles_have_no_pinned_memory() -> None:
    assert not completed("ensemble_scheduling {}").HasField("optimization")


def test_a_second_time_changes_nothing() -> None:
    config = completed("max_batch_size: 8 dynamic_batching {}")
    once = config.SerializeToString(deterministic=True)

    apply_defaults(config)

    assert once == config.SerializeToString(deterministic=True)


# -------------------------------------------------------------------------- parameters
# The parameters that the broker reads: a value that it would not understand fails the load.


def problems(name: str, value: str) -> list[str]:
    config = parse_text(f'name: "m"\n{string_parameter(name, value)}')
    return [problem.text for problem in parameter_problems(config)]


_NO_COUNTS = ["none", "64k", "-5", "nan", "inf", "1.5", "", "1000000000"]
#: Parameters, values that nobody would understand, and what these are not.
MISUNDERSTOOD = [
    ("max_requests", _NO_COUNTS, "no whole number from 0 to 999999999"),
    ("MAX_REQUESTS", _NO_COUNTS, "no whole number from 0 to 999999999"),
    ("max_execution_seconds", ["soon", "-1", "nan", "1e9"], "no number of seconds"),
    ("INSTANCES", ["x"], "neither processes, forks nor threads"),
]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [(name, value, reason) for name, values, reason in MISUNDERSTOOD for value in values],
)
def test_a_value_that_nobody_would_understand_is_told(name: str, value: str, reason: str) -> None:
    assert [f"{name} is '{value}', which is {reason}"] == problems(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_requests", "0"),
        ("max_requests", "64"),
        ("Max_Requests", "8.0"),
        ("max_execution_seconds", "0.5"),
        ("max_execution_seconds", "0"),
    ],
)
def test_other_limits_are_taken(name: str, value: str) -> None:
    assert [] == problems(name, value)


def test_instances_that_are_threads_have_no_variables_of_their_own() -> None:
    def texts(instances: str, value: str) -> list[str]:
        parameters = (("INSTANCES", instances), ("CUDA_VISIBLE_DEVICES", value))
        text = "\n".join(string_parameter(name, one) for name, one in parameters)
        return [problem.text for problem in parameter_problems(parse_text(f'name: "m"\n{text}'))]

    assert [
        "CUDA_VISIBLE_DEVICES is 'instance', and INSTANCES are threads, which share the variables "
        "of one process: choose processes or forks"
    ] == texts("threads", "instance")
    assert [] == texts("forks", "instance") + texts("threads", "0") + texts("processes", "instance")


_AS_B = string_parameter("stub_user", "b")


def test_a_model_runs_as_an_allowed_user_that_it_names_or_else_as_the_first() -> None:
    silent, asking = (parse_text(f'name: "m"\n{text}') for text in ("", _AS_B))

    assert ("a", "b") == (chosen_user(silent, ["a", "b"]), chosen_user(asking, ["a", "b"]))
    assert "" == chosen_user(silent, [])
    assert "stub_user is 'b', which --stub-user does not allow" == refusal(
        ConfigError, chosen_user, asking, ["a"]
    )
