"""The parameters that the broker reads: a value that it would not understand fails the load."""

from __future__ import annotations

import pytest

from tests.support.scripted import string_parameter
from zmqtriton.config.parameters import parameter_problems
from zmqtriton.config.pbtxt import parse_text


def problems(name: str, value: str) -> list[str]:
    config = parse_text(f'name: "m"\n{string_parameter(name, value)}')
    return [problem.text for problem in parameter_problems(config)]


@pytest.mark.parametrize("value", ["none", "64k", "-5", "nan", "inf", "1.5", "", "1000000000"])
@pytest.mark.parametrize("name", ["max_requests", "MAX_REQUESTS"])
def test_a_limit_on_requests_is_a_whole_number(name: str, value: str) -> None:
    text = f"{name} is '{value}', which is no whole number from 0 to 999999999"

    assert [text] == problems(name, value)


@pytest.mark.parametrize("value", ["soon", "-1", "nan", "1e9"])
def test_a_limit_on_executions_is_a_number_of_seconds(value: str) -> None:
    text = f"max_execution_seconds is '{value}', which is no number of seconds"

    assert [text] == problems("max_execution_seconds", value)


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
        config = parse_text(f'name: "m"\n{text}')
        return [problem.text for problem in parameter_problems(config)]

    assert [
        "CUDA_VISIBLE_DEVICES is 'instance', and INSTANCES are threads: these share the variables "
        "of one process"
    ] == texts("threads", "instance")
    assert [] == texts("forks", "instance") + texts("threads", "0") + texts("processes", "instance")
