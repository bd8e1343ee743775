"""Refuses dynamic and sequence batching that cannot be done as it is written.

Called by `validation` with the completed configuration. The texts are Triton's, except for
times beyond `MAX_TIME_US`, which would overflow a timer instead of failing with a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import zmqtriton_protos
from zmqtriton.config.errors import ConfigError

#: Some thirty years.
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


def check_dynamic_batching(config: Any) -> None:
    if not config.HasField("dynamic_batching"):
        return
    batching = config.dynamic_batching
    _check_preferred(
        batching.preferred_batch_size, config, "dynamic batching preferred size must be"
    )
    _check_priorities(batching, config.name)
    policies = [batching.default_queue_policy, *batching.priority_queue_policy.values()]
    if batching.preserve_ordering:
        _check_ordering(batching, policies, config.name)
    _check_time("max_queue_delay_microseconds", batching, config.name)
    for policy in policies:
        _check_time("default_timeout_microseconds", policy, config.name)


def _check_preferred(sizes: Sequence[int], config: Any, what: str) -> None:
    for size in sizes:
        if size <= 0:
            raise ConfigError(f"{what} positive for {config.name}")
        if size > config.max_batch_size:
            raise ConfigError(f"{what} <= max batch size for {config.name}")


def _check_priorities(batching: Any, model: str) -> None:
    levels = batching.priority_levels
    if levels == 0:
        return
    if not 1 <= batching.default_priority_level <= levels:
        raise ConfigError(f"default priority level must be in range [1, {levels}] for {model}")
    for level in batching.priority_queue_policy:
        if not 1 <= level <= levels:
            raise ConfigError(
                f"priority queue policy must have priority level in range [1, {levels}] for {model}"
            )


def _check_ordering(batching: Any, policies: Iterable[Any], model: str) -> None:
    if batching.priority_levels > 1:
        raise ConfigError(
            f"Only one priority level is allowed when 'preserve_ordering' is true for {model}"
        )
    for policy in policies:
        if policy.default_timeout_microseconds and policy.timeout_action == _POLICY.DELAY:
            raise ConfigError(
                "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is "
                f"true for {model}"
            )


def _check_time(name: str, section: Any, model: str) -> None:
    value = getattr(section, name)
    if value > MAX_TIME_US:
        raise ConfigError(f"'{name}' of {value} exceeds the limit of {MAX_TIME_US} for {model}")


def check_sequence_batching(config: Any) -> None:
    if not config.HasField("sequence_batching"):
        return
    batching = config.sequence_batching
    if config.response_cache.enable:
        raise ConfigError(
            f"Response Cache does not currently support model {config.name} with sequence "
            "batching scheduler. Please disable the response cache."
        )
    _check_control_names(batching, config.name)
    for kind in _FLAG_KINDS:
        _check_flag_control(batching, kind, config.name)
    _check_correlation_control(batching, config.name)
    _check_strategy(config)
    _check_states(config)
    _check_time("max_sequence_idle_microseconds", batching, config.name)


def _check_control_names(batching: Any, model: str) -> None:
    seen: set[str] = set()
    for tensor in batching.control_input:
        if not tensor.name:
            raise ConfigError(f"sequence batching control tensor must have a name for {model}")
        if tensor.name in seen:
            raise ConfigError(
                f"sequence batching control tensor '{tensor.name}' is specified for multiple "
                f"control kinds for {model}"
            )
        seen.add(tensor.name)


def _control_of(batching: Any, kind: int, model: str) -> Any:
    """The one control of this kind, or None."""
    controls = [c for tensor in batching.control_input for c in tensor.control if c.kind == kind]
    if len(controls) > 1:
        raise ConfigError(
            f"sequence batching specifies multiple {_CONTROL.Kind.Name(kind)} tensors for {model}"
        )
    return controls[0] if controls else None


def _check_flag_control(batching: Any, kind: int, model: str) -> None:
    control = _control_of(batching, kind, model)
    if control is None:
        return
    what = f"for {_CONTROL.Kind.Name(kind)} for {model}"
    given = [name for name in _FLAG_FIELDS if getattr(control, name)]
    if not given:
        raise ConfigError(
            "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or "
            f"'bool_false_true' {what}"
        )
    if len(given) > 1:
        raise ConfigError(
            "sequence batching specifies more than one from 'int32_false_true', "
            f"'fp32_false_true' and 'bool_false_true' {what}"
        )
    if len(getattr(control, given[0])) != 2:
        raise ConfigError(
            f"sequence batching control '{given[0]}' must have exactly 2 entries {what}"
        )


def _check_correlation_control(batching: Any, model: str) -> None:
    kind = _CONTROL.CONTROL_SEQUENCE_CORRID
    control = _control_of(batching, kind, model)
    if control is None:
        return
    what = f"for {_CONTROL.Kind.Name(kind)} for {model}"
    if any(getattr(control, name) for name in _FLAG_FIELDS):
        raise ConfigError(
            "sequence batching must not specify either 'int32_false_true', 'fp32_false_true' or "
            f"'bool_false_true' {what}"
        )
    data_types = zmqtriton_protos.enum("inference.DataType").values_by_name
    if control.data_type not in [data_types[name].number for name in _CORRELATION_TYPES]:
        raise ConfigError(
            f"unexpected data type for control {_CONTROL.Kind.Name(kind)} for {model}. Allowed "
            "data types are TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING"
        )


def _check_strategy(config: Any) -> None:
    batching = config.sequence_batching
    if batching.HasField("oldest"):
        _check_preferred(
            batching.oldest.preferred_batch_size,
            config,
            "sequence batching preferred batch size must be",
        )
        _check_time("max_queue_delay_microseconds", batching.oldest, config.name)
    if batching.HasField("direct"):
        if not 0.0 <= batching.direct.minimum_slot_utilization <= 1.0:
            raise ConfigError(
                "sequence batching minimum slot utilization must be in range (0.0, 1.0] for "
                f"{config.name}"
            )
        _check_time("max_queue_delay_microseconds", batching.direct, config.name)


def _check_states(config: Any) -> None:
    for state in config.sequence_batching.state:
        if len(state.initial_state) > 1:
            raise ConfigError(
                f"initial_state field for state input '{state.input_name}' must contain exactly "
                f"one or zero element. Found '{len(state.initial_state)}' elements."
            )
        for initial in state.initial_state:
            if not initial.name:
                raise ConfigError(
                    f"Field 'name' must be set when using initial_state for state input "
                    f"'{state.input_name}'."
                )
            if initial.WhichOneof("state_data") is None:
                raise ConfigError(
                    f"initial_state field for state input '{state.input_name}' must specify "
                    "'zero_data' or 'data_file'"
                )
