"""Reports of the entrance, and requests that it forwards."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.frontends.fake_gateway import FakeGateway, version_info
from tests.support.refusals import refusal
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.settings.frontends import Restriction
from zmqtriton_floor.wire import RequestBody, Tensor
from zmqtriton_frontends.entrance.ask import Ask, Content
from zmqtriton_frontends.entrance.forwarding import Forwarding
from zmqtriton_frontends.entrance.reports import Reports
from zmqtriton_frontends.inference import load_metrics
from zmqtriton_frontends.inference.admission import (
    CheckedRequest,
    Pairs,
    SchedulingOptions,
    prepare,
    reported,
)

# ----------------------------------------------------------------------------- reports
# Reports to a client beside its answer: what it asks for, and no more than it may know.


SUMS = dict.fromkeys((*load_metrics.SUMS, "limit"), 1)


class Frontend(FakeGateway):
    """One with the model m, and its reports."""

    def __init__(self, coding: str = "latin-1", **settings: Any) -> None:
        super().__init__([version_info("m")], settings)
        self.counters = {"loads": [SUMS]}
        self.reports = Reports(self, coding)

    def enter(self, **headers: str) -> CheckedRequest:
        by_name = {name.replace("_", "-").encode(): value for name, value in headers.items()}
        body = RequestBody("7", {}, [], [Tensor("INPUT0", 11, [1], b"abcd")])
        checked = prepare(self.catalogue, self.catalogue.find("m"), body, SchedulingOptions())
        ask = Ask(("m", ""), lambda _: Content(body), by_name.get, begun_ns=1)
        return self.reports(ask, checked)

    def pairs(self, **headers: str) -> Pairs:
        return asyncio.run(reported(self.enter(**headers).reports))


@pytest.mark.parametrize(
    ("headers", "wants"),
    [
        ({}, False),
        ({b"x-stage-times": "1"}, True),
        ({b"endpoint-load-metrics-format": "json"}, True),
        ({b"accept": "*/*"}, False),
    ],
)
def test_headers_ask(headers: dict[bytes, str], wants: bool) -> None:
    assert wants is bool(Frontend().reports.wanted_by(headers.get))


def test_the_load_as_bytes_has_a_name_of_its_own() -> None:
    pairs = Frontend().pairs(endpoint_load_metrics_format="bin")

    load = load_metrics.of_model([SUMS])
    assert [("endpoint-load-metrics-bin", load_metrics.write_binary(load))] == pairs


def test_a_form_that_nobody_knows_is_left_out() -> None:
    assert [] == Frontend().pairs(endpoint_load_metrics_format="xml")


def test_stages_cost_no_question_about_the_load() -> None:
    frontend = Frontend()
    frontend.pairs(x_stage_times="1")
    assert [] == frontend.statistics_calls


@pytest.mark.parametrize("coding", ["latin-1", "utf-8"])  # of HTTP, and of gRPC
@pytest.mark.parametrize(("key", "may"), [("schlüssel", True), ("€", False)])
def test_a_key_may_have_letters_that_are_not_ascii(coding: str, key: str, may: bool) -> None:
    frontend = Frontend(
        coding, http_restricted_api=(Restriction(("statistics",), "X-Key", "schlüssel"),)
    )
    header = key.encode().decode(coding)

    assert may is bool(frontend.pairs(endpoint_load_metrics_format="json", x_key=header))


# -------------------------------------------------------------------------- forwarding


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
    text = f"Header '{name}' is reserved for Triton usage and cannot be forwarded."
    assert text == refusal(InvalidArgument, forwarded, ".*", (name, "1"))


@pytest.mark.row("L09")
def test_tokens_are_hidden_and_what_comes_behind_them_is_forwarded() -> None:
    parameters: dict[str, Any] = {}

    Forwarding(".", hides_tokens=True).add(parameters, [("Authorization", "x"), ("y", "1")])

    assert {"y": "1"} == parameters
    assert {"own": 1, "Authorization": "x"} == forwarded(".", ("Authorization", "x"))
