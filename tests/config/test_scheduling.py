"""Schedulers, instance groups with their resources, and quotas."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap
from typing import Any

import pytest

from tests.support.refusals import refusal
from tests.support.scripted import string_parameter
from zmqtriton.config.errors import ConfigError, raise_first
from zmqtriton.config.instances import (
    apply_group_defaults,
    group_problems,
    instance_specs,
    set_instance_count,
)
from zmqtriton.config.parameters import Quota, quota_of, quota_problems
from zmqtriton.config.pbtxt import parse_text, to_json
from zmqtriton.config.resources import NO_DEVICE, ResourceNeed, ResourcePool
from zmqtriton.config.validation import dynamic_batching_problems, sequence_batching_problems
from zmqtriton_floor.errors import InvalidArgument, ZmqTritonError
from zmqtriton_floor.settings.broker import RateLimitResource, RateLimits

# -------------------------------------------------------------------------- scheduling
# Dynamic and sequence batching that cannot be done as written.


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

    assert expected == refusal(ConfigError, lambda: raise_first(dynamic_batching_problems(config)))


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

    assert expected == refusal(ConfigError, lambda: raise_first(sequence_batching_problems(config)))


def test_a_model_without_batching_has_nothing_to_check() -> None:
    config = parse_text('name: "m"')

    raise_first(dynamic_batching_problems(config))
    raise_first(sequence_batching_problems(config))

    assert config.WhichOneof("scheduling_choice") is None


# ------------------------------------------------------------------------------ quotas
# The parameters that limit what a model's processes may take.


MIB, GIB = 1 << 20, 1 << 30


USUAL = Quota(max_segment_bytes=5 * MIB, max_memory_bytes=7 * GIB)


def _config(**parameters: str) -> Any:
    texts = [string_parameter(name, value) for name, value in parameters.items()]
    return parse_text("".join(['name: "m"\n', *texts]))


@pytest.mark.row("L22")
@pytest.mark.parametrize(
    ("text", "size"),
    [("1048576", MIB), ("64M", 64 * MIB), ("2g", 2 * GIB), ("1K", 1024), ("3T", 3072 * GIB)],
)
def test_sizes_may_be_short(text: str, size: int) -> None:
    config = _config(max_segment_bytes=text, max_memory_bytes=text, cpu_weight="300")

    assert Quota("m", size, size, 300) == quota_of(config, USUAL)


@pytest.mark.row("L22")
def test_the_usual_limits_hold_where_a_model_sets_none() -> None:
    assert USUAL._replace(model="m") == quota_of(_config(), USUAL)
    assert Quota("m") == quota_of(_config(max_segment_bytes="0", max_memory_bytes="0"), USUAL)


@pytest.mark.row("L22")
@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("max_segment_bytes", "-1", "which is no number of bytes, such as 1048576, 512M or 2G"),
        ("max_memory_bytes", "2GB", "which is no number of bytes, such as 1048576, 512M or 2G"),
        ("max_memory_bytes", "", "which is no number of bytes, such as 1048576, 512M or 2G"),
        ("cpu_weight", "0", "which is no whole number from 1 to 10000"),
        ("cpu_weight", "²", "which is no whole number from 1 to 10000"),
        ("cpu_weight", "10001", "which is no whole number from 1 to 10000"),
        ("max_executions_per_second", "nan", "which is neither 0 nor a number from 0.001 to "),
        ("max_executions_per_second", "-2", "which is neither 0 nor a number from 0.001 to "),
    ],
)
def test_what_cannot_be_meant_is_refused(name: str, value: str, reason: str) -> None:
    config = _config(**{name: value})

    [problem] = quota_problems(config)

    assert problem.text.startswith(f"{name} is '{value}', {reason}")
    assert ("parameters", name) == problem.field
    assert USUAL == quota_of(config, USUAL)


@pytest.mark.row("L22")
def test_an_ensemble_has_no_processes_to_limit() -> None:
    config = _config(cpu_weight="200")
    config.ensemble_scheduling.step.add()

    [problem] = quota_problems(config)

    assert "it has no processes, its members have" in problem.text


# --------------------------------------------------------------------------- resources
# Resources: what instances need, how much there is, and what can never be.


def _needs(priority: int = 1, **counts: int) -> ResourceNeed:
    """Of device 0; what begins with `all_` belongs to none."""
    needs = {}
    for name, count in counts.items():
        needs[name.removeprefix("all_"), NO_DEVICE if name.startswith("all_") else 0] = count
    return ResourceNeed(needs, priority)


def _supply(*entries: tuple[str, int, int]) -> ResourcePool:
    return ResourcePool(RateLimits(True, tuple(starmap(RateLimitResource, entries))))


def _demands(groups: str) -> list[str]:
    config = parse_text(f'name: "m" {groups}')
    for group in config.instance_group:
        group.name, group.count = "m", max(1, group.count)
    assert to_json(config)
    return [instance.resource_needs for instance in instance_specs(config)]


def test_instances_need_what_their_group_says() -> None:
    limits = """rate_limiter { priority: 3 resources [ { name: "R" count: 2 },
        { name: "S" global: true count: 1 }, { name: "R" count: 4 }, { name: "T" } ] }"""

    demands = _demands(f"instance_group [ {{ count: 2 kind: KIND_CPU {limits} }} ]")

    expected = ResourceNeed({("R", 0): 4, ("S", NO_DEVICE): 1}, 3)
    assert [expected, expected] == list(map(ResourceNeed.from_json, demands))


def test_on_gpus_each_has_resources_of_its_own() -> None:
    group = 'kind: KIND_GPU gpus: [ 0, 1 ] rate_limiter { resources { name: "R" count: 1 } }'

    demands = _demands(f"instance_group [ {{ {group} }} ]")

    assert [{("R", 0): 1}, {("R", 1): 1}] == [ResourceNeed.from_json(d).amounts for d in demands]


def test_groups_without_a_limiter_need_nothing_and_priority_0_is_1() -> None:
    assert [""] == _demands("instance_group [ { kind: KIND_CPU } ]")

    both = "instance_group [ { kind: KIND_CPU }, { kind: KIND_CPU rate_limiter {} } ]"
    assert [ResourceNeed({}, 1)] * 2 == list(map(ResourceNeed.from_json, _demands(both)))


@pytest.mark.row("E38")
def test_there_is_as_much_as_the_greediest_needs_unless_it_is_said() -> None:
    demands = [_needs(R=1, all_S=2), _needs(R=5)]

    assert {("R", 0): 5, ("S", NO_DEVICE): 2} == _supply().limits(demands)
    # Without a device: so much on each; what has none gets the most that is said anywhere.
    said = _supply(("R", 7, NO_DEVICE), ("S", 3, 1), ("S", 2, 0))
    assert {("R", 0): 7, ("S", NO_DEVICE): 3} == said.limits(demands)


@pytest.mark.row("E38")
@pytest.mark.parametrize(
    ("entry", "limit"),
    [
        (("R", 4, NO_DEVICE), 4),
        (("R", 2, 0), 2),
        (("R", 9, 1), 0),
        (("X", 9, NO_DEVICE), 0),
    ],
)
def test_what_could_never_execute_is_refused(entry: tuple[str, int, int], limit: int) -> None:
    assert (
        f'Resource count for "R" is limited to {limit} which will prevent scheduling of one or '
        "more model instances, the minimum required count is 5"
    ) == refusal(
        InvalidArgument, lambda: _supply(entry).check_satisfiable([_needs(R=1), _needs(R=5)])
    )


@pytest.mark.row("E38")
def test_a_name_is_either_global_or_of_devices() -> None:
    assert (
        'Resource "R" is present as both global and device-specific resource in the model '
        "configuration."
    ) == refusal(
        InvalidArgument, lambda: _supply().check_satisfiable([_needs(R=1), _needs(all_R=1)])
    )


# --------------------------------------------------------------------------- instances
# Instance groups: their names, kinds and counts, and the instances that follow.


def names(text: str, gpus: Sequence[int] = ()) -> list[tuple[str, str, int]]:
    config = parse_text('name: "m" backend: "python" ' + text)
    apply_group_defaults(config, gpus)
    raise_first(group_problems(config, gpus))
    return [(i.name, i.kind, i.device_id) for i in instance_specs(config)]


@pytest.mark.row("E05")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["m_0"]),
        ("instance_group {}", ["m_0_0"]),
        ("instance_group { count: 2 }", ["m_0_0", "m_0_1"]),
        ("instance_group {} instance_group {}", ["m_0_0", "m_1_0"]),
        ('instance_group { name: "g" } instance_group {}', ["g_0", "m_1_0"]),
    ],
)
def test_instances_are_called_as_in_triton(text: str, expected: list[str]) -> None:
    assert expected == [name for name, _, _ in names(text)]


@pytest.mark.row("E06")
def test_the_kind_follows_the_gpus_unless_it_is_given() -> None:
    auto = "instance_group {}"

    assert [("m_0_0", "CPU", 0)] == names(auto)
    assert [("m_0_0", "GPU", 0), ("m_0_0", "GPU", 3)] == names(auto, gpus=(3, 0))
    assert [("m_0_0", "CPU", 0)] == names("instance_group { kind: KIND_CPU }", gpus=(0,))
    assert [("m_0_0", "MODEL", 0)] == names("instance_group { kind: KIND_MODEL }", gpus=(0,))


@pytest.mark.row("E37")
def test_the_count_is_per_gpu() -> None:
    config = parse_text('name: "m" instance_group { count: 2 kind: KIND_GPU gpus: [0, 1] }')
    apply_group_defaults(config, (0, 1))
    assert [("m_0_0", 0), ("m_0_0", 1), ("m_0_1", 0), ("m_0_1", 1)] == [
        (i.name, i.device_id) for i in instance_specs(config)
    ]


def test_onnx_runs_two_instances_on_the_cpu_and_python_one() -> None:
    onnx = parse_text('name: "o" backend: "onnxruntime"')
    apply_group_defaults(onnx)

    assert ["o_0", "o_1"] == [i.name for i in instance_specs(onnx)]
    assert ["m_0"] == [name for name, _, _ in names("")]


@pytest.mark.row("E37")
def test_passive_groups_and_host_policies_reach_the_instance() -> None:
    config = parse_text('name: "m" instance_group { passive: true host_policy: "numa_1" }')
    apply_group_defaults(config)

    (instance,) = instance_specs(config)

    assert instance.passive
    assert "numa_1" == instance.host_policy


def test_an_ensemble_has_no_instances() -> None:
    config = parse_text('name: "e" platform: "ensemble" ensemble_scheduling {}')
    apply_group_defaults(config, (0,))
    raise_first(group_problems(config, (0,)))

    assert [] == instance_specs(config)


def problem(text: str, gpus: Sequence[int]) -> str:
    return refusal(ZmqTritonError, names, text, gpus)


@pytest.mark.row("E24")
@pytest.mark.parametrize(
    ("text", "gpus", "expected"),
    [
        (
            "instance_group { kind: KIND_GPU }",
            (),
            "instance group m_0 of model m has kind KIND_GPU but no GPUs are available",
        ),
        (
            "instance_group { kind: KIND_GPU gpus: 5 }",
            (0, 1),
            "instance group m_0 of model m specifies invalid or unsupported gpu id 5. GPUs with at "
            "least the minimum required CUDA compute compatibility of 6.000000 are: 0, 1",
        ),
        (
            "instance_group { kind: KIND_CPU gpus: 0 }",
            (0,),
            "instance group m_0 of model m has kind KIND_CPU but specifies one or more GPUs",
        ),
        (
            "instance_group { kind: KIND_MODEL gpus: 0 }",
            (0,),
            "instance group m_0 of model m has kind KIND_MODEL but specifies one or more GPUs",
        ),
        (
            'instance_group { kind: KIND_CPU profile: "0" }',
            (),
            "instance group m_0 of model m and platform specifies profile field which is only "
            "supported for TensorRT models",
        ),
        (
            "instance_group { count: 1000000000 }",
            (),
            "model m asks for 1000000000 instances, the limit is 1024",
        ),
    ],
)
def test_a_group_that_cannot_run_here_is_refused(
    text: str, gpus: tuple[int, ...], expected: str
) -> None:
    assert expected == problem(text, gpus)


def test_no_groups_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^must specify one or more 'instance group's for m$"):
        raise_first(group_problems(parse_text('name: "m"')))


@pytest.mark.row("L06")
def test_a_model_without_groups_gets_the_usual_one() -> None:
    config = parse_text('name: "m" backend: "python"')
    set_instance_count(config, 2)
    apply_group_defaults(config)

    assert ["m_0", "m_1"] == [one.name for one in instance_specs(config)]


@pytest.mark.row("L06")
def test_an_ensemble_cannot_be_scaled() -> None:
    config = parse_text('name: "m" ensemble_scheduling { }')

    with pytest.raises(ZmqTritonError, match="'m' is an ensemble, which has no instances"):
        set_instance_count(config, 2)
