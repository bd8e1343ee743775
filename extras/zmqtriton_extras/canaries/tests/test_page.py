"""Canaries over HTTP: which call becomes which, and who may make it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.frontends.http_api.fakes import Client, FakeGateway

PATH = "/v2/models/identity/canary"
FOUND = {"model": "identity", "phase": "RUNNING", "stable": 1, "canary": 2}


def post(path: str, document: Any = None, **settings: Any) -> tuple[Any, FakeGateway]:
    served = FakeGateway(**settings)
    served.control_result = FOUND
    body = b"" if document is None else json.dumps(document).encode()
    return Client(served).request("POST", path, body, {}), served


@pytest.mark.row("L16")
@pytest.mark.parametrize(
    ("path", "document", "verb"),
    [
        (PATH, {"version": 2, "weight": 10}, "canary.start"),
        (PATH, {"weight": "20%"}, "canary.change"),
        (f"{PATH}/promote", None, "canary.promote"),
        (f"{PATH}/abort", None, "canary.abort"),
    ],
)
def test_each_path_is_a_call(path: str, document: dict[str, Any] | None, verb: str) -> None:
    answer, served = post(path, document, model_control_mode="explicit")

    assert (answer.status_code, answer.json) == (200, FOUND)
    assert [(verb, {**(document or {}), "model": "identity"})] == served.calls


@pytest.mark.parametrize("path", [PATH, f"{PATH}/promote", f"{PATH}/abort"])
def test_without_the_right_to_steer_nothing_changes(path: str) -> None:
    answer, served = post(path, {"version": 2, "weight": 10})

    assert answer.status_code == 403
    assert served.calls == []


def test_everybody_may_look() -> None:
    served = FakeGateway()
    served.control_result = [FOUND]

    assert Client(served).request("GET", PATH).json == FOUND
    assert served.calls == [("canary.status", {"model": "identity"})]


def test_a_body_that_is_no_object_is_refused() -> None:
    answer, served = post(PATH, [1], model_control_mode="explicit")

    assert answer.status_code == 400
    assert served.calls == []
