"""The graph of an ensemble's steps."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest

from zmqtriton.config.ensembles import check_cycle, member_names, step_problems
from zmqtriton.config.errors import ConfigError, raise_first
from zmqtriton.config.pbtxt import parse_text


def step(model: str, inputs: dict[str, str], outputs: dict[str, str]) -> str:
    maps = [f'input_map {{ key: "{k}" value: "{v}" }}' for k, v in inputs.items()]
    maps += [f'output_map {{ key: "{k}" value: "{v}" }}' for k, v in outputs.items()]
    return f'step {{ model_name: "{model}" model_version: -1 {" ".join(maps)} }} '


def ensemble(*steps: str, inputs: str = "x", outputs: str = "y", more: str = "") -> Any:
    tensors = [f'input {{ name: "{name}" data_type: TYPE_FP32 dims: 1 }}' for name in inputs]
    tensors += [f'output {{ name: "{name}" data_type: TYPE_FP32 dims: 1 }}' for name in outputs]
    return parse_text(
        f'name: "e" platform: "ensemble" {" ".join(tensors)} {more} '
        f"ensemble_scheduling {{ {''.join(steps)} }}"
    )


def problem(config: Any) -> str:
    with pytest.raises(ConfigError) as error:
        raise_first(step_problems(config))
    return error.value.text


@pytest.mark.row("E42")
def test_a_chain_with_branches_is_sound_in_any_order_of_its_steps() -> None:
    steps = [
        step("join", {"A": "p", "B": "q"}, {"O": "y"}),
        step("left", {"I": "x"}, {"O": "p"}),
        step("right", {"I": "x"}, {"O": "q"}),
    ]

    raise_first(step_problems(ensemble(*steps)))
    raise_first(step_problems(ensemble(*reversed(steps))))

    assert ["join", "left", "right"] == member_names(ensemble(*steps))


@pytest.mark.row("E27", "E50")
@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (ensemble(), "must specify 'step' for ensemble 'e'"),
        (ensemble("step {}"), "must specify 'model_name' in step 0 of ensemble 'e'"),
        (
            ensemble(step("m", {}, {"O": "y"})),
            "must specify 'input_map' in step 0 of ensemble 'e'",
        ),
        (
            ensemble(step("m", {"I": "x"}, {})),
            "must specify 'output_map' in step 0 of ensemble 'e'",
        ),
        (
            ensemble(step("m", {"I": "x"}, {"O": "y"}), step("n", {"I": "x"}, {"O": "y"})),
            "ensemble tensor 'y' can appear in an output map only once for ensemble 'e' step 1",
        ),
        (
            ensemble(step("m", {"I": "x"}, {"O": "y"}), inputs="xz"),
            "ensemble input 'z' for ensemble e' is not used",
        ),
        (
            ensemble(step("m", {"I": "x"}, {"O": "y"}), outputs="yz"),
            "ensemble output 'z' for ensemble e' is not used",
        ),
        (
            ensemble(step("m", {"I": "x", "J": "z"}, {"O": "y"})),
            "output 'y' for ensemble 'e' is not written: at least one of its depending tensors, "
            "'z', is not connected",
        ),
        (
            ensemble(
                step("m", {"I": "x", "J": "b"}, {"O": "a"}),
                step("n", {"I": "a"}, {"O": "b", "P": "y"}),
            ),
            "output 'y' for ensemble 'e' is not written: at least one of its depending tensors, "
            "'b', is not connected",
        ),
        (
            ensemble(step("m", {"I": "x"}, {"O": "y", "P": "z"})),
            "ensemble tensor 'z' is unused in ensemble 'e'",
        ),
        (
            ensemble(step("m", {"I": "x"}, {"O": "y"}), more="instance_group {}"),
            "instance group should not be specified for ensemble 'e'",
        ),
        (
            ensemble(step("m", {"I": "x"}, {"O": "y"}), more="optimization {}"),
            "optimization should not be specified for ensemble 'e'",
        ),
        (
            ensemble(step("m", {"I": "x"}, {"O": "y"}), more="model_warmup {}"),
            "model_warmup can not be specified for ensemble 'e'",
        ),
        (
            ensemble(step("e", {"I": "x"}, {"O": "y"})),
            "circular dependency between ensembles: e -> ... -> e -> e",
        ),
        (
            parse_text('name: "m" platform: "x" ensemble_scheduling {}'),
            "ensemble scheduling cannot be set for model 'm' whose platform is not ensemble",
        ),
    ],
)
def test_an_unsound_ensemble_is_refused(config: Any, expected: str) -> None:
    assert expected == problem(config)


def test_a_long_chain_written_backwards_is_checked_at_once() -> None:
    names = ["x", *(f"t{i}" for i in range(4999)), "y"]
    steps = [step("m", {"I": before}, {"O": after}) for before, after in pairwise(names)]
    config = ensemble(*reversed(steps))

    began = time.process_time()
    raise_first(step_problems(config))

    assert time.process_time() - began < 20.0  # minutes, if each is compared with each


def test_a_step_with_many_tensors_is_no_harder_than_its_text() -> None:
    wide = {f"I{i}": f"x{i}" for i in range(3000)}
    config = ensemble(step("m", wide, {f"O{i}": f"y{i}" for i in range(3000)}))

    began = time.process_time()
    problem(config)

    assert time.process_time() - began < 20.0  # minutes, if each is compared with each


def test_ensembles_that_call_each_other_are_refused() -> None:
    first = ensemble(step("f", {"I": "x"}, {"O": "y"}))
    second = parse_text(
        'name: "f" ensemble_scheduling { step { model_name: "m" } step { model_name: "e" } }'
    )

    with pytest.raises(ConfigError) as error:
        check_cycle("e", {"e": member_names(first), "f": member_names(second)})

    assert "circular dependency between ensembles: e -> ... -> f -> e" == error.value.text


def test_an_ensemble_that_calls_another_is_no_circle() -> None:
    first = ensemble(step("f", {"I": "x"}, {"O": "y"}))
    second = parse_text('name: "f" ensemble_scheduling { step { model_name: "m" } }')

    check_cycle("e", {"e": member_names(first), "f": member_names(second)})

    assert ["f"] == member_names(first)
