"""Ensembles: their steps, maps and members."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest

from tests.support.refusals import refusal
from zmqtriton.config.ensembles import (
    check_cycle,
    check_members,
    member_names,
    step_problems,
)
from zmqtriton.config.errors import ConfigError, raise_first
from zmqtriton.config.pbtxt import parse_text

# --------------------------------------------------------------------------- ensembles
# The graph of an ensemble's steps.


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
    return refusal(ConfigError, lambda: raise_first(step_problems(config)))


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


@pytest.mark.slow
def test_a_long_chain_written_backwards_is_checked_at_once() -> None:
    names = ["x", *(f"t{i}" for i in range(4999)), "y"]
    steps = [step("m", {"I": before}, {"O": after}) for before, after in pairwise(names)]
    config = ensemble(*reversed(steps))

    began = time.process_time()
    raise_first(step_problems(config))

    assert time.process_time() - began < 20.0  # minutes, if each is compared with each


def test_ensembles_that_call_each_other_are_refused() -> None:
    first = ensemble(step("f", {"I": "x"}, {"O": "y"}))
    second = parse_text(
        'name: "f" ensemble_scheduling { step { model_name: "m" } step { model_name: "e" } }'
    )

    assert "circular dependency between ensembles: e -> ... -> f -> e" == refusal(
        ConfigError, lambda: check_cycle("e", {"e": member_names(first), "f": member_names(second)})
    )


def test_an_ensemble_that_calls_another_is_no_circle() -> None:
    first = ensemble(step("f", {"I": "x"}, {"O": "y"}))
    second = parse_text('name: "f" ensemble_scheduling { step { model_name: "m" } }')

    check_cycle("e", {"e": member_names(first), "f": member_names(second)})

    assert ["f"] == member_names(first)


# -------------------------------------------------------------------- ensemble members
# Checks that the members of an ensemble fit it and each other.


def tensor(kind: str, name: str, data_type: str = "TYPE_FP32", dims: str = "[4]") -> str:
    return f'{kind} {{ name: "{name}" data_type: {data_type} dims: {dims} }} '


def member(name: str, *tensors: str, batch: int = 0, decoupled: bool = False) -> Any:
    policy = "model_transaction_policy { decoupled: true }" if decoupled else ""
    return parse_text(f'name: "{name}" max_batch_size: {batch} {policy} {"".join(tensors)}')


CHAIN = """step { model_name: "a" input_map { key: "I" value: "x" }
                  output_map { key: "O" value: "t" } }
           step { model_name: "b" input_map { key: "I" value: "t" }
                  output_map { key: "O" value: "y" } }"""


def chain(x: str = "", y: str = "", batch: int = 0) -> Any:
    return parse_text(
        f'name: "e" platform: "ensemble" max_batch_size: {batch} '
        f"{x or tensor('input', 'x')} {y or tensor('output', 'y')} "
        f"ensemble_scheduling {{ {CHAIN} }}"
    )


def plain(name: str, **options: Any) -> Any:
    return member(name, tensor("input", "I"), tensor("output", "O"), **options)


def problem_of_members(config: Any, **members: Any) -> str:
    return refusal(ConfigError, check_members, config, members)


@pytest.mark.row("E43")
def test_a_decoupled_member_makes_the_ensemble_decoupled() -> None:
    config = chain()

    check_members(config, {"a": plain("a", decoupled=True), "b": plain("b")})

    assert config.model_transaction_policy.decoupled


@pytest.mark.row("E51")
def test_types_must_agree() -> None:
    b = member("b", tensor("input", "I", "TYPE_INT8"), tensor("output", "O"))

    assert (
        "in ensemble e, ensemble tensor t: inconsistent data type: TYPE_FP32 is inferred from "
        "model a while TYPE_INT8 is inferred from model b"
    ) == problem_of_members(chain(), a=plain("a"), b=b)


@pytest.mark.row("E51")
def test_shapes_must_agree_where_both_are_fixed() -> None:
    wrong = member("b", tensor("input", "I", dims="[5]"), tensor("output", "O"))
    variable = member("b", tensor("input", "I", dims="[-1]"), tensor("output", "O"))

    assert (
        "in ensemble e, ensemble tensor t: inconsistent shape: [4] is inferred from model a while "
        "[5] is inferred from model b"
    ) == problem_of_members(chain(), a=plain("a"), b=wrong)
    check_members(chain(), {"a": plain("a"), "b": variable})


@pytest.mark.row("E51")
def test_the_ensemble_may_not_batch_more_than_a_member() -> None:
    assert (
        "ensemble e allows maximum batch size 8, but it contains model b which only allows maximum "
        "batch size to be 1"
    ) == problem_of_members(chain(batch=8), a=plain("a", batch=8), b=plain("b", batch=1))


@pytest.mark.row("E51")
def test_maps_may_only_name_tensors_that_the_member_has() -> None:
    no_input = member("a", tensor("input", "J"), tensor("output", "O"))
    no_output = member("a", tensor("input", "I"), tensor("output", "P"))

    assert (
        "in ensemble e, ensemble tensor x is mapping to non-existing input I in model a"
    ) == problem_of_members(chain(), a=no_input, b=plain("b"))
    assert (
        "in ensemble e, ensemble tensor t is mapped from non-existing output O in model a"
    ) == problem_of_members(chain(), a=no_output, b=plain("b"))


@pytest.mark.row("E51", "E59")
def test_every_input_must_be_mapped_unless_it_is_optional() -> None:
    second = 'input { name: "J" data_type: TYPE_FP32 dims: 1 optional: %s }'
    required = member("a", tensor("input", "I"), second % "false", tensor("output", "O"))
    optional = member("a", tensor("input", "I"), second % "true", tensor("output", "O"))

    assert (
        "in ensemble e, input J in model a is not mapped to any ensemble tensors"
    ) == problem_of_members(chain(), a=required, b=plain("b"))
    check_members(chain(), {"a": optional, "b": plain("b")})


@pytest.mark.row("E55")
def test_two_decoupled_members_may_follow_but_not_meet() -> None:
    meet = parse_text(
        f"""name: "e" platform: "ensemble" {tensor("input", "x")} {tensor("output", "y")}
        ensemble_scheduling {{
          step {{ model_name: "a" input_map {{ key: "I" value: "x" }}
                 output_map {{ key: "O" value: "s" }} }}
          step {{ model_name: "b" input_map {{ key: "I" value: "x" }}
                 output_map {{ key: "O" value: "t" }} }}
          step {{ model_name: "c" input_map {{ key: "I" value: "s" }}
                 input_map {{ key: "J" value: "t" }} output_map {{ key: "O" value: "y" }} }} }}"""
    )
    a, b = plain("a", decoupled=True), plain("b", decoupled=True)
    c = member("c", tensor("input", "I"), tensor("input", "J"), tensor("output", "O"))

    assert (
        "in ensemble e, step of model 'c' receives inputs originated from different decoupled "
        "models"
    ) == problem_of_members(meet, a=a, b=b, c=c)
    following = chain()
    check_members(following, {"a": a, "b": b})
    assert following.model_transaction_policy.decoupled
