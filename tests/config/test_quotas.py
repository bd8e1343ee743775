"""The parameters that limit what a model's processes may take."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.scripted import string_parameter
from zmqtriton.config.pbtxt import parse_text
from zmqtriton.config.quotas import Quota, quota_of, quota_problems

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
    unlimited = _config(max_segment_bytes="0", max_memory_bytes="0")
    assert Quota("m") == quota_of(unlimited, USUAL)


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
