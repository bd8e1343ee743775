"""Refuses dynamic and sequence batching that cannot be done as configured.

Runs on the completed configuration; states are checked in `states`. The texts are Triton's, except
for times beyond `MAX_TIME_US`, which would overflow a timer there instead of failing with a reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import zmqtriton_protos
from zmqtriton.config.errors import FieldPath, Problem

#: About thirty years.
MAX_TIME_US = 10**15

_POLICY = zmqtriton_protos.message("inference.ModelQueuePolicy")
_CONTROL = zmqtriton_protos.message("inference.ModelSequenceBatching.Control")
_FLAG_FIELDS = ("int32_false_true", "fp32_false_true", "bool_false_true")
_FLAG_KINDS = (
    _CONTROL.CONTROL_SEQUENCE_START,
    _CONTROL.CONTROL_SEQUENCE_END,
    _CONTROL.CONTROL_SEQUENCE_READY,
)
_CORRELATION_TYPES = ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING")


def dynamic_batching_problems(config: Any) -> Iterator[Problem]:
    if not config.HasField("dynamic_batching"):
        return
    batching, field = config.dynamic_batching, ("dynamic_batching",)
    what = "dynamic batching preferred size must be"
    yield from _preferred_size_problems(batching.preferred_batch_size, config, what, field)
    yield from _priority_problems(batching, config.name)
    if batching.preserve_ordering:
        yield from _ordering_problems(batching, config.name)
    yield from _time_limit_problems("max_queue_delay_microseconds", batching, config.name, field)
    for where, policy in _queue_policies(batching):
        yield from _time_limit_problems("default_timeout_microseconds", policy, config.name, where)


def _queue_policies(batching: Any) -> Iterator[tuple[FieldPath, Any]]:
    yield ("dynamic_batching", "default_queue_policy"), batching.default_queue_policy
    for level, policy in sorted(batching.priority_queue_policy.items()):
        yield ("dynamic_batching", "priority_queue_policy", str(level)), policy


def _preferred_size_problems(
    sizes: Sequence[int], config: Any, what: str, field: FieldPath
) -> Iterator[Problem]:
    for index, size in enumerate(sizes):
        here = (*field, "preferred_batch_size", index)
        if size <= 0:
            yield Problem(f"{what} positive for {config.name}", here)
        elif size > config.max_batch_size:
            yield Problem(f"{what} <= max batch size for {config.name}", here)


def _priority_problems(batching: Any, model: str) -> Iterator[Problem]:
    levels = batching.priority_levels
    if levels == 0:
        return
    if not 1 <= batching.default_priority_level <= levels:
        yield Problem(
            f"default priority level must be in range [1, {levels}] for {model}",
            ("dynamic_batching", "default_priority_level"),
        )
    for level in sorted(batching.priority_queue_policy):
        if not 1 <= level <= levels:
            yield Problem(
                f"priority queue policy must have priority level in range [1, {levels}] for "
                f"{model}",
                ("dynamic_batching", "priority_queue_policy", str(level)),
            )


def _ordering_problems(batching: Any, model: str) -> Iterator[Problem]:
    if batching.priority_levels > 1:
        yield Problem(
            f"Only one priority level is allowed when 'preserve_ordering' is true for {model}",
            ("dynamic_batching", "priority_levels"),
        )
    for field, policy in _queue_policies(batching):
        if policy.default_timeout_microseconds and policy.timeout_action == _POLICY.DELAY:
            yield Problem(
                "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is "
                f"true for {model}",
                (*field, "timeout_action"),
            )


def _time_limit_problems(
    name: str, section: Any, model: str, field: FieldPath
) -> Iterator[Problem]:
    value = getattr(section, name)
    if value > MAX_TIME_US:
        yield Problem(
            f"'{name}' of {value} exceeds the limit of {MAX_TIME_US} for {model}", (*field, name)
        )


def sequence_batching_problems(config: Any) -> Iterator[Problem]:
    if not config.HasField("sequence_batching"):
        return
    batching = config.sequence_batching
    if config.response_cache.enable:
        yield Problem(
            f"Response Cache does not currently support model {config.name} with sequence "
            "batching scheduler. Please disable the response cache.",
            ("response_cache",),
        )
    yield from _control_name_problems(batching, config.name)
    for kind in _FLAG_KINDS:
        yield from _flag_problems(batching, kind, config.name)
    yield from _correlation_problems(batching, config.name)
    yield from _strategy_problems(config)
    field = ("sequence_batching",)
    yield from _time_limit_problems("max_sequence_idle_microseconds", batching, config.name, field)


def _control_name_problems(batching: Any, model: str) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, tensor in enumerate(batching.control_input):
        field = ("sequence_batching", "control_input", index)
        if not tensor.name:
            yield Problem(f"sequence batching control tensor must have a name for {model}", field)
        elif tensor.name in seen:
            yield Problem(
                f"sequence batching control tensor '{tensor.name}' is specified for multiple "
                f"control kinds for {model}",
                field,
            )
        seen.add(tensor.name)


def _controls_of(batching: Any, kind: int) -> list[tuple[FieldPath, Any]]:
    """Return all controls of this kind and their places; there should be at most one."""
    return [
        (("sequence_batching", "control_input", index, "control", number), control)
        for index, tensor in enumerate(batching.control_input)
        for number, control in enumerate(tensor.control)
        if control.kind == kind
    ]


def _duplicate_control_problem(kind: int, model: str, field: FieldPath) -> Problem:
    name = _CONTROL.Kind.Name(kind)
    return Problem(f"sequence batching specifies multiple {name} tensors for {model}", field)


def _flag_problems(batching: Any, kind: int, model: str) -> Iterator[Problem]:
    for number, (field, control) in enumerate(_controls_of(batching, kind)):
        if number:
            yield _duplicate_control_problem(kind, model, field)
        what = f"for {_CONTROL.Kind.Name(kind)} for {model}"
        fields = [name for name in _FLAG_FIELDS if getattr(control, name)]
        if not fields:
            yield Problem(
                "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or "
                f"'bool_false_true' {what}",
                field,
            )
        elif len(fields) > 1:
            yield Problem(
                "sequence batching specifies more than one from 'int32_false_true', "
                f"'fp32_false_true' and 'bool_false_true' {what}",
                field,
            )
        elif len(getattr(control, fields[0])) != 2:
            yield Problem(
                f"sequence batching control '{fields[0]}' must have exactly 2 entries {what}",
                (*field, fields[0]),
            )


def _correlation_problems(batching: Any, model: str) -> Iterator[Problem]:
    kind = _CONTROL.CONTROL_SEQUENCE_CORRID
    data_types = zmqtriton_protos.enum("inference.DataType").values_by_name
    allowed = [data_types[name].number for name in _CORRELATION_TYPES]
    name = _CONTROL.Kind.Name(kind)
    for number, (field, control) in enumerate(_controls_of(batching, kind)):
        if number:
            yield _duplicate_control_problem(kind, model, field)
        if any(getattr(control, flag) for flag in _FLAG_FIELDS):
            yield Problem(
                "sequence batching must not specify either 'int32_false_true', 'fp32_false_true' "
                f"or 'bool_false_true' for {name} for {model}",
                field,
            )
        if control.data_type not in allowed:
            yield Problem(
                f"unexpected data type for control {name} for {model}. Allowed data types are "
                "TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING",
                (*field, "data_type"),
            )


def _strategy_problems(config: Any) -> Iterator[Problem]:
    batching, model = config.sequence_batching, config.name
    if batching.HasField("oldest"):
        field: FieldPath = ("sequence_batching", "oldest")
        sizes = batching.oldest.preferred_batch_size
        what = "sequence batching preferred batch size must be"
        yield from _preferred_size_problems(sizes, config, what, field)
        yield from _time_limit_problems(
            "max_queue_delay_microseconds", batching.oldest, model, field
        )
    if batching.HasField("direct"):
        field = ("sequence_batching", "direct")
        if not 0.0 <= batching.direct.minimum_slot_utilization <= 1.0:
            yield Problem(
                "sequence batching minimum slot utilization must be in range (0.0, 1.0] for "
                f"{model}",
                (*field, "minimum_slot_utilization"),
            )
        yield from _time_limit_problems(
            "max_queue_delay_microseconds", batching.direct, model, field
        )
