"""The rule of a model: read, refused, and what it makes of a name."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from zmqtriton.config.parameters import parameter_problems
from zmqtriton.config.pbtxt import parse_text
from zmqtriton_extras.affinity.problems import affinity_warnings
from zmqtriton_extras.affinity.rule import Rule, busier_by, number_of, parse, weight

_BATCHES = "max_batch_size: 8 dynamic_batching {}"


def config(affinity: str, more: str = "", **parameters: str) -> Any:
    parameters["AFFINITY"] = affinity
    texts = [
        f'parameters {{ key: "{k}" value {{ string_value: "{v}" }} }}'
        for k, v in parameters.items()
        if v
    ]
    return parse_text(" ".join(['name: "m" ', more, *texts]), "config.pbtxt")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("header:X-Session", Rule("header", "X-Session")),
        ("parameter:lora", Rule("parameter", "lora")),
        ("input:text_input", Rule("input", "text_input")),
        ("input:text_input:256", Rule("input", "text_input", 256)),
        ("input:a:b", Rule("input", "a:b")),
    ],
)
def test_a_rule_names_what_requests_have_in_common(text: str, rule: Rule) -> None:
    assert rule == parse(text)
    assert list(parameter_problems(config(text))) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "X-Session",
        "header:",
        "header:X Session",
        "cookie:a",
        "input::4",
        "input:a:0",
        "input:a:9999999999999",
        "parameter:" + "n" * 1025,
    ],
)
def test_a_text_that_is_no_rule_is_refused_with_the_forms(text: str) -> None:
    model = config("header:X")
    model.parameters["AFFINITY"].string_value = text

    [problem] = parameter_problems(model)

    assert problem.text.endswith("which is none of header:NAME, parameter:NAME or input:NAME:BYTES")


@pytest.mark.parametrize("limit", ["0", "-1", "some", "1000001", "٣"])
def test_a_limit_that_is_none_is_refused(limit: str) -> None:
    [problem] = parameter_problems(config("header:X", AFFINITY_BUSIER_BY=limit))

    assert "which is no whole number from 1 to 1000000" in problem.text


def test_sequences_have_their_own_affinity() -> None:
    [problem] = parameter_problems(config("header:X", "sequence_batching {}"))

    assert "not for sequence_batching" in problem.text


def test_a_check_warns_of_rules_that_change_nothing() -> None:
    declared = 'input { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] }'
    assert list(affinity_warnings(config("input:text_input", declared))) == []
    assert list(affinity_warnings(config("input:anything"))) == [], "code may add inputs"

    [unknown] = affinity_warnings(config("input:text_inptu:8", declared))
    [alone] = affinity_warnings(config("", AFFINITY_BUSIER_BY="3"))

    assert ("names the input 'text_inptu'" in unknown.text, "text_input") == (
        True,
        unknown.suggestion,
    )
    assert "means nothing without AFFINITY" in alone.text


def test_usually_an_instance_may_be_busier_by_a_batch() -> None:
    batching: dict[str, Any] = {"max_batch_size": 16}
    assert 4 == busier_by({}) == busier_by(batching)
    assert busier_by({**batching, "dynamic_batching": {}}) == 16
    assert busier_by({"parameters": {"AFFINITY_BUSIER_BY": {"string_value": "2"}}}) == 2


def test_names_are_spread_over_instances_and_stay_when_others_come() -> None:
    numbers = [number_of(b"session %d" % number) for number in range(4000)]
    assert len(set(numbers)) == len(numbers)
    assert all(0 < each < 1 << 63 for each in numbers)

    def homes(count: int) -> list[str]:
        names = [f"m_0_{index}" for index in range(count)]
        return [max(names, key=lambda name: weight(number, name)) for number in numbers]

    four, five = homes(4), homes(5)
    assert all(900 < count < 1100 for count in Counter(four).values())
    moved = [now for was, now in zip(four, five, strict=True) if was != now]
    assert {"m_0_4"} == set(moved)
    assert 700 < len(moved) < 900
