"""Refuses a completed configuration that cannot be served, with Triton's texts.

Runs after `model_config.apply_defaults`, and again after a model's own auto-completion. Yields
problems in the order of Triton's checks; looks at the message only: directories are checked in
`files`, instance groups in `instances`, states in `states`. Beyond Triton's rules it refuses
numbers that no machine can hold, and times beyond `MAX_TIME_US`, which would overflow a timer, so
that the load fails with a reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby
from math import prod
from typing import Any

import zmqtriton_protos
from zmqtriton.config.backends import ENSEMBLE, PLATFORMS
from zmqtriton.config.batching import (
    complete_delay_problems,
    cost_problems,
    delay_problems,
    measured_problems,
)
from zmqtriton.config.ensembles import step_problems
from zmqtriton.config.errors import FieldPath, Problem, rule_problems
from zmqtriton_floor.errors import closest_match

#: Maximum number of elements: no 64-bit process can address more, so a larger tensor is a slip of
#: the pen.
MAX_TENSOR_ELEMENTS = 1 << 47

_INPUT = zmqtriton_protos.message("inference.ModelInput")
_IMAGE_FORMATS = (_INPUT.FORMAT_NHWC, _INPUT.FORMAT_NCHW)
_DATA_TYPES = frozenset(zmqtriton_protos.enum("inference.DataType").values_by_number) - {0}
_TENSORRT = "tensorrt_plan"
#: Maximum time in an option: about thirty years.
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
        is_large = size > max(0, config.max_batch_size)
        yield from rule_problems(
            (size <= 0, f"{what} positive for {config.name}", here),
            (is_large, f"{what} <= max batch size for {config.name}", here),
        )


def _priority_problems(batching: Any, model: str) -> Iterator[Problem]:
    levels = batching.priority_levels
    if levels == 0:
        return
    yield from rule_problems(
        (
            not 1 <= batching.default_priority_level <= levels,
            f"default priority level must be in range [1, {levels}] for {model}",
            ("dynamic_batching", "default_priority_level"),
        ),
        *(
            (
                not 1 <= level <= levels,
                f"priority queue policy must have priority level in range [1, {levels}] for "
                f"{model}",
                ("dynamic_batching", "priority_queue_policy", str(level)),
            )
            for level in sorted(batching.priority_queue_policy)
        ),
    )


def _ordering_problems(batching: Any, model: str) -> Iterator[Problem]:
    yield from rule_problems(
        (
            batching.priority_levels > 1,
            f"Only one priority level is allowed when 'preserve_ordering' is true for {model}",
            ("dynamic_batching", "priority_levels"),
        ),
        *(
            (
                policy.default_timeout_microseconds and policy.timeout_action == _POLICY.DELAY,
                "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is "
                f"true for {model}",
                (*field, "timeout_action"),
            )
            for field, policy in _queue_policies(batching)
        ),
    )


def _time_limit_problems(
    name: str, section: Any, model: str, field: FieldPath
) -> Iterator[Problem]:
    value = getattr(section, name)
    text = f"'{name}' of {value} exceeds the limit of {MAX_TIME_US} for {model}"
    return rule_problems((value > MAX_TIME_US, text, (*field, name)))


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
        yield from rule_problems(
            (
                not fields,
                "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or "
                f"'bool_false_true' {what}",
                field,
            ),
            (
                len(fields) > 1,
                "sequence batching specifies more than one from 'int32_false_true', "
                f"'fp32_false_true' and 'bool_false_true' {what}",
                field,
            ),
            *(
                (
                    len(fields) == 1 and len(getattr(control, name)) != 2,
                    f"sequence batching control '{name}' must have exactly 2 entries {what}",
                    (*field, name),
                )
                for name in fields
            ),
        )


def _correlation_problems(batching: Any, model: str) -> Iterator[Problem]:
    kind = _CONTROL.CONTROL_SEQUENCE_CORRID
    data_types = zmqtriton_protos.enum("inference.DataType").values_by_name
    allowed = [data_types[name].number for name in _CORRELATION_TYPES]
    name = _CONTROL.Kind.Name(kind)
    for number, (field, control) in enumerate(_controls_of(batching, kind)):
        if number:
            yield _duplicate_control_problem(kind, model, field)
        yield from rule_problems(
            (
                any(getattr(control, flag) for flag in _FLAG_FIELDS),
                "sequence batching must not specify either 'int32_false_true', 'fp32_false_true' "
                f"or 'bool_false_true' for {name} for {model}",
                field,
            ),
            (
                control.data_type not in allowed,
                f"unexpected data type for control {name} for {model}. Allowed data types are "
                "TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING",
                (*field, "data_type"),
            ),
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


def config_problems(config: Any) -> Iterator[Problem]:
    """Return all rules that the configuration breaks, except those for tensors."""
    yield from _backend_problems(config)
    name = config.name
    yield from rule_problems(
        (
            config.max_batch_size < 0,
            f"'max_batch_size' must be non-negative value for {name}",
            ("max_batch_size",),
        ),
        (
            not config.HasField("version_policy"),
            f"must specify 'version policy' for {name}",
            (),
        ),
    )
    yield from dynamic_batching_problems(config)
    yield from sequence_batching_problems(config)
    if config.HasField("ensemble_scheduling"):
        yield from step_problems(config)
    elif config.platform == ENSEMBLE:
        yield Problem(
            f"ensemble scheduling must be set for ensemble {config.name} whose platform is "
            f"{ENSEMBLE}",
            ("platform",),
        )
    if config.model_transaction_policy.decoupled and config.response_cache.enable:
        yield Problem(
            f"Response Cache does not currently support model {config.name} with 'decoupled' "
            "transaction policy. Please disable the response cache.",
            ("response_cache",),
        )
    yield from _metric_problems(config)
    yield from _warmup_problems(config)
    yield from cost_problems(config)
    yield from delay_problems(config)


def tensor_problems(config: Any) -> Iterator[Problem]:
    """Return problems of inputs, outputs and batch tensors, which a model may add by completion."""
    for problem in chain(_input_output_problems(config), _batch_tensor_problems(config)):
        yield replace(problem, text=f"{problem.text} for {config.name}")
    yield from measured_problems(config)
    yield from complete_delay_problems(config)


def _backend_problems(config: Any) -> Iterator[Problem]:
    name, platform, backend = config.name, config.platform, config.backend
    if not name:
        yield Problem("model configuration must specify 'name'")
    if not backend and platform != ENSEMBLE:
        meant = closest_match(
            platform, [ENSEMBLE, *(p for platforms in PLATFORMS.values() for p in platforms)]
        )
        yield Problem(
            f"unexpected platform type '{platform}' for {name}", ("platform",), suggestion=meant
        )
    if backend and platform == ENSEMBLE:
        yield Problem(
            f"Ensemble model '{name}' must have platform type '{platform}' and empty backend type",
            ("backend",),
        )
    if backend in PLATFORMS and platform not in PLATFORMS[backend]:
        yield Problem(
            f"unexpected 'platform' and 'backend' pair, got:{platform}, {backend}",
            ("platform",),
            suggestion=closest_match(platform, PLATFORMS[backend]),
        )


def _input_output_problems(config: Any) -> Iterator[Problem]:
    is_tensorrt = config.platform == _TENSORRT
    for section, tensors in (("input", config.input), ("output", config.output)):
        for index, tensor in enumerate(tensors):
            field = (section, index)
            yield from _shape_problems(tensor, f"model {section}", field)
            is_image = section == "input" and tensor.format in _IMAGE_FORMATS
            yield from rule_problems(
                (
                    is_image and len(tensor.dims) != 3,
                    "model input NHWC/NCHW require 3 dims",
                    (*field, "dims"),
                ),
                (
                    tensor.is_shape_tensor and not is_tensorrt,
                    "shape tensors are only supported for TensorRT platform",
                    (*field, "is_shape_tensor"),
                ),
                (
                    tensor.is_non_linear_format_io and not is_tensorrt,
                    "Non-linear IO format is only supported for the TensorRT platform",
                    (*field, "is_non_linear_format_io"),
                ),
            )


def _shape_problems(tensor: Any, kind: str, field: FieldPath) -> Iterator[Problem]:
    if not tensor.name:
        yield Problem(f"{kind} must specify 'name'", field)
        return
    where = f"{kind} '{tensor.name}'"
    if tensor.data_type not in _DATA_TYPES:
        yield Problem(f"{where} must specify 'data_type'", field)
    if not tensor.dims:
        yield Problem(f"{where} must specify 'dims'", field)
        return
    wrong = list(_dim_problems(tensor.dims, f"{where} dimension", (*field, "dims")))
    if tensor.HasField("reshape"):
        shape = (*field, "reshape", "shape")
        wrong += _dim_problems(tensor.reshape.shape, f"{where} reshape dimensions", shape)
        if not wrong:
            yield from _reshape_problems(tensor, where, (*field, "reshape"))
    yield from wrong


def _dim_problems(dims: Sequence[int], what: str, field: FieldPath) -> Iterator[Problem]:
    for index, dim in enumerate(dims):
        if dim < 1 and dim != -1:
            yield Problem(
                f"{what} must be integer >= 1, or -1 to indicate a variable-size dimension",
                (*field, index),
            )
            return
    if prod(dim for dim in dims if dim > 0) > MAX_TENSOR_ELEMENTS:
        yield Problem(f"{what} must describe at most {MAX_TENSOR_ELEMENTS} elements", field)


def _reshape_problems(tensor: Any, where: str, field: FieldPath) -> Iterator[Problem]:
    """Return problems of a reshape, whose sides must hold the same number of elements.

    That also holds between two dimensions of variable size.
    """
    shape = tensor.reshape.shape
    before, after = _fixed_element_counts(tensor.dims), _fixed_element_counts(shape)
    if not shape:
        # an empty shape is a scalar, which only a tensor of one element can become
        if before == [1]:
            return
    elif len(before) > 1 and len(after) > 1 and len(before) != len(after):
        yield Problem(
            f"{where} has different number of variable-size dimensions for dims and reshape", field
        )
        return
    if before != after:
        yield Problem(f"{where} has different size for dims and reshape", field)


def _fixed_element_counts(dims: Sequence[int]) -> list[int]:
    """Return the element counts between dimensions of variable size: [2, 4, -1, 6] -> [8, 6]."""
    sizes = [1]
    for variable, run in groupby(dims, key=lambda dim: dim == -1):
        if variable:
            sizes += [1 for _ in run]
        else:
            sizes[-1] = prod(run)
    return sizes


def _batch_tensor_problems(config: Any) -> Iterator[Problem]:
    names = {tensor.name for tensor in config.input}
    outputs = {tensor.name for tensor in config.output}
    data_types = zmqtriton_protos.enum("inference.DataType").values_by_name
    allowed = [data_types[name].number for name in ("TYPE_INT32", "TYPE_FP32")]
    for what, batches in (("input", config.batch_input), ("output", config.batch_output)):
        kinds = zmqtriton_protos.enum(f"inference.Batch{what.title()}.Kind").values_by_number
        for index, batch in enumerate(batches):
            field = (f"batch_{what}", index)
            if batch.kind not in kinds:
                yield Problem(f"unknown batch {what} kind '{batch.kind}'", (*field, "kind"))
                continue
            yield from rule_problems(
                (
                    len(batch.source_input) != 1,
                    f"batch {what} kind '{kinds[batch.kind].name}' expects 1 source input, got "
                    f"{len(batch.source_input)}",
                    field,
                ),
                (
                    what == "input" and batch.data_type not in allowed,
                    "batch input data type must be TYPE_INT32 or TYPE_FP32",
                    (*field, "data_type"),
                ),
            )
            for number, source in enumerate(batch.source_input):
                if source not in names:
                    yield Problem(
                        f"unknown source input name '{source}'",
                        (*field, "source_input", number),
                        suggestion=closest_match(source, names),
                    )
            if what == "output":
                yield from _target_problems(batch.target_name, outputs, field)


def _target_problems(
    targets: Sequence[str], outputs: set[str], field: FieldPath
) -> Iterator[Problem]:
    seen: set[str] = set()
    for number, target in enumerate(targets):
        here = (*field, "target_name", number)
        if target not in outputs:
            meant = closest_match(target, outputs)
            yield Problem(f"unknown target output name '{target}'", here, suggestion=meant)
        elif target in seen:
            yield Problem(f"target output name '{target}' can only be specified once", here)
        seen.add(target)


def _metric_problems(config: Any) -> Iterator[Problem]:
    for index, control in enumerate(config.model_metrics.metric_control):
        field = ("model_metrics", "metric_control", index)
        has_name, has_options = map(control.HasField, ("metric_identifier", "histogram_options"))
        is_nameless = has_name and not control.metric_identifier.family
        is_empty = has_options and not control.histogram_options.buckets
        yield from rule_problems(
            (not has_name, "metric control must specify 'metric_identifier'", field),
            (is_nameless, "metric identifier must specify non-empty 'family'", field),
            (not has_options, "metric control must specify 'histogram_options'", field),
            (is_empty, "histogram options must specify non-empty 'buckets'", field),
        )


def _warmup_problems(config: Any) -> Iterator[Problem]:
    for index, sample in enumerate(config.model_warmup):
        for name, tensor in sorted(sample.inputs.items()):
            field = ("model_warmup", index, "inputs", name)
            yield from rule_problems(
                (
                    any(dim < 0 for dim in tensor.dims),
                    "warmup setting expects all variable-size dimensions are specified for input "
                    f"'{name}'",
                    field,
                ),
                (
                    tensor.WhichOneof("input_data_type") is None,
                    f"warmup setting for input '{name}' must specify one of 'zero_data', "
                    "'random_data' and 'input_data_file'",
                    field,
                ),
            )
