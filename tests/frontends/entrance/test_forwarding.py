from __future__ import annotations

from typing import Any

import pytest

from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_frontends.entrance.steps.forwarding import Forwarding


def forwarded(pattern: str, *headers: tuple[str, str | bytes]) -> dict[str, Any]:
    parameters: dict[str, Any] = {"own": 1}
    Forwarding(pattern).add(parameters, headers)
    return parameters


@pytest.mark.row("C32", "D45")
def test_headers_that_match_anywhere_become_parameters_as_they_are_written() -> None:
    headers = (("X-My-Key", b"1"), ("other-x-MY", "2"), ("y", "3"))

    assert {"own": 1, "X-My-Key": "1", "other-x-MY": "2"} == forwarded("x-my", *headers)


def test_case_counts_where_the_expression_says_so() -> None:
    assert {"own": 1, "X-A": "2"} == forwarded("(?-i)X-A", ("x-a", "1"), ("X-A", "2"))


def test_nothing_is_forwarded_without_an_expression() -> None:
    assert not Forwarding("")
    assert {"own": 1} == forwarded("", ("x", "1"))


def test_a_value_that_is_no_utf_8_is_taken_byte_by_byte() -> None:
    assert {"own": 1, "a": "é", "b": "é"} == forwarded("", *()) | forwarded(
        ".", ("a", b"\xc3\xa9"), ("b", b"\xe9")
    )


@pytest.mark.parametrize(
    "name",
    [
        "sequence_id",
        "sequence_start",
        "sequence_end",
        "priority",
        "Timeout",
        "headers",
        "binary_data_output",
        "triton_x",
        "Triton_Enable_Empty_Final_Response",
    ],
)
@pytest.mark.row("C32", "D45")
def test_names_that_mean_something_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        forwarded(".*", (name, "1"))

    text = f"Header '{name}' is reserved for Triton usage and cannot be forwarded."
    assert text == error.value.text


def test_tokens_are_hidden_and_what_comes_behind_them_is_forwarded() -> None:
    parameters: dict[str, Any] = {}

    Forwarding(".", hides_tokens=True).add(parameters, [("Authorization", "x"), ("y", "1")])

    assert {"y": "1"} == parameters
    assert {"own": 1, "Authorization": "x"} == forwarded(".", ("Authorization", "x"))
