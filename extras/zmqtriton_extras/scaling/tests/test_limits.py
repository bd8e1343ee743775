"""The parameters by which a model's instances follow its load."""

from __future__ import annotations

import pytest

from zmqtriton.config.pbtxt import parse_text
from zmqtriton_extras.scaling.limits import (
    problems,
    read,
)

pytestmark = pytest.mark.row("L06")


def config(more: str = "", **values: str) -> object:
    parameters = " ".join(
        f'parameters {{ key: "autoscale_{name}" value {{ string_value: "{value}" }} }}'
        for name, value in values.items()
    )
    return parse_text(f'name: "m" backend: "python" {parameters} {more}')


def problem(more: str = "", **values: str) -> str:
    return next((each.text for each in problems(config(more, **values))), "")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"max_instances": "many"}, "autoscale_max_instances is 'many', which is no whole number"),
        ({"max_instances": "0"}, "from 1 to 1024"),
        ({"max_instances": "1025"}, "from 1 to 1024"),
        ({"max_instances": "2", "min_instances": "3"}, "is 3, more than the 2 that"),
        ({"max_instances": "2", "min_instances": "0"}, "use --load-on-demand"),
        ({"min_instances": "1"}, "means nothing without autoscale_max_instances"),
        ({"max_instances": "2", "queue_milliseconds": "0"}, "no duration above 0"),
        ({"max_instances": "2", "down_after_seconds": "nan"}, "no duration above 0"),
    ],
)
def test_what_cannot_be_meant_is_said(values: dict[str, str], text: str) -> None:
    assert text in problem(**values)
    assert read(config(**values)) is None


def test_a_duration_may_be_less_than_one() -> None:
    assert "" == problem(max_instances="2", queue_milliseconds="0.5", down_after_seconds="0.5")


def test_it_is_for_models_with_one_instance_group() -> None:
    two = "instance_group { count: 1 } instance_group { count: 1 }"
    assert "several instance groups" in problem(two, max_instances="2")
    assert "means nothing to an ensemble" in problem("ensemble_scheduling { }", max_instances="2")
