"""Instance groups: their names, kinds and counts, and the instances that follow."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from zmqtriton.config.errors import ConfigError
from zmqtriton.config.instances import (
    apply_group_defaults,
    check_groups,
    instance_specs,
    set_instance_count,
)
from zmqtriton.config.pbtxt import parse_text
from zmqtriton_floor.errors import ZmqTritonError


def names(text: str, gpus: Sequence[int] = ()) -> list[tuple[str, str, int]]:
    config = parse_text('name: "m" backend: "python" ' + text)
    apply_group_defaults(config, gpus)
    check_groups(config, gpus)
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
    text = "instance_group { count: 2 kind: KIND_GPU gpus: [0, 1] }"

    config = parse_text('name: "m" ' + text)
    apply_group_defaults(config, (0, 1))
    instances = instance_specs(config)

    assert [("m_0_0", 0), ("m_0_0", 1), ("m_0_1", 0), ("m_0_1", 1)] == [
        (i.name, i.device_id) for i in instances
    ]


def test_a_group_that_lists_an_absent_gpu_is_not_run_on_the_cpu_in_silence() -> None:
    expected = "instance group m_0 of model m has kind KIND_CPU but specifies one or more GPUs"

    assert expected == problem("instance_group { gpus: [7] }", (0,))


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
    check_groups(config, (0,))

    assert [] == instance_specs(config)


def problem(text: str, gpus: Sequence[int]) -> str:
    with pytest.raises(ZmqTritonError) as error:
        names(text, gpus)
    return error.value.text


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
        check_groups(parse_text('name: "m"'))


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
