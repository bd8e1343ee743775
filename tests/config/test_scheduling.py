"""Dynamic and sequence batching that cannot be done as written."""

from __future__ import annotations

import pytest

from zmqtriton.config.errors import ConfigError, raise_first
from zmqtriton.config.pbtxt import parse_text
from zmqtriton.config.scheduling import (
    dynamic_batching_problems,
    sequence_batching_problems,
)


def control(kind: str, rest: str, name: str = "C") -> str:
    return f'control_input {{ name: "{name}" control {{ kind: CONTROL_SEQUENCE_{kind} {rest} }} }} '


@pytest.mark.parametrize(
    ("batching", "expected"),
    [
        ("preferred_batch_size: 0", "dynamic batching preferred size must be positive for m"),
        (
            "preferred_batch_size: 5",
            "dynamic batching preferred size must be <= max batch size for m",
        ),
        ("priority_levels: 2", "default priority level must be in range [1, 2] for m"),
        (
            "priority_levels: 2 default_priority_level: 3",
            "default priority level must be in range [1, 2] for m",
        ),
        (
            "priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 3 }",
            "priority queue policy must have priority level in range [1, 2] for m",
        ),
        (
            "preserve_ordering: true priority_levels: 2 default_priority_level: 1",
            "Only one priority level is allowed when 'preserve_ordering' is true for m",
        ),
        (
            """preserve_ordering: true
               default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 1 }""",
            "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true "
            "for m",
        ),
        (
            """preserve_ordering: true priority_queue_policy { key: 1 value {
               timeout_action: DELAY default_timeout_microseconds: 1 } }""",
            "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true "
            "for m",
        ),
        (
            "max_queue_delay_microseconds: 9223372036854775808",
            "'max_queue_delay_microseconds' of 9223372036854775808 exceeds the limit of "
            "1000000000000000 for m",
        ),
    ],
)
@pytest.mark.row("E21", "E23")
def test_wrong_dynamic_batching_is_refused(batching: str, expected: str) -> None:
    config = parse_text(f'name: "m" max_batch_size: 4 dynamic_batching {{ {batching} }}')

    with pytest.raises(ConfigError) as error:
        raise_first(dynamic_batching_problems(config))

    assert expected == error.value.text


@pytest.mark.row("E41")
@pytest.mark.parametrize(
    ("batching", "expected"),
    [
        ("control_input {}", "sequence batching control tensor must have a name for m"),
        (
            control("START", "bool_false_true: [false, true]")
            + control("END", "bool_false_true: [false, true]"),
            "sequence batching control tensor 'C' is specified for multiple control kinds for m",
        ),
        (
            control("START", "bool_false_true: [false, true]", "A")
            + control("START", "bool_false_true: [false, true]", "B"),
            "sequence batching specifies multiple CONTROL_SEQUENCE_START tensors for m",
        ),
        (
            control("END", ""),
            "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or "
            "'bool_false_true' for CONTROL_SEQUENCE_END for m",
        ),
        (
            control("END", "int32_false_true: [0, 1] fp32_false_true: [0, 1]"),
            "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' "
            "and 'bool_false_true' for CONTROL_SEQUENCE_END for m",
        ),
        (
            control("READY", "fp32_false_true: [0]"),
            "sequence batching control 'fp32_false_true' must have exactly 2 entries for "
            "CONTROL_SEQUENCE_READY for m",
        ),
        (
            control("CORRID", "data_type: TYPE_FP32"),
            "unexpected data type for control CONTROL_SEQUENCE_CORRID for m. Allowed data types "
            "are TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING",
        ),
        (
            control("CORRID", "data_type: TYPE_INT64 int32_false_true: [0, 1]"),
            "sequence batching must not specify either 'int32_false_true', 'fp32_false_true' or "
            "'bool_false_true' for CONTROL_SEQUENCE_CORRID for m",
        ),
        (
            "oldest { preferred_batch_size: 0 }",
            "sequence batching preferred batch size must be positive for m",
        ),
        (
            "oldest { preferred_batch_size: 5 }",
            "sequence batching preferred batch size must be <= max batch size for m",
        ),
        (
            "direct { minimum_slot_utilization: 1.5 }",
            "sequence batching minimum slot utilization must be in range (0.0, 1.0] for m",
        ),
    ],
)
def test_wrong_sequence_batching_is_refused(batching: str, expected: str) -> None:
    config = parse_text(f'name: "m" max_batch_size: 4 sequence_batching {{ {batching} }}')

    with pytest.raises(ConfigError) as error:
        raise_first(sequence_batching_problems(config))

    assert expected == error.value.text


def test_a_model_without_batching_has_nothing_to_check() -> None:
    config = parse_text('name: "m"')

    raise_first(dynamic_batching_problems(config))
    raise_first(sequence_batching_problems(config))

    assert config.WhichOneof("scheduling_choice") is None
