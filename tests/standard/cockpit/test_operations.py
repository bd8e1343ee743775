"""Operations on models over HTTP, and the clients that may do them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.frontends.http_api.fakes import Client, FakeGateway
from zmqtriton_floor.settings.frontends import Restriction

pytestmark = pytest.mark.row("L06")

SCALE = "/v2/models/identity/scale"
INSTANCES = {"model": "identity", "versions": {"1": {"instances": 2, "ready": 2}}}
KEY = (Restriction(("steering",), "steer-key", "secret"),)


def gateway(**settings: Any) -> FakeGateway:
    made = FakeGateway(**settings)
    made.control_result = INSTANCES
    return made


def post(served: FakeGateway, document: Any, **headers: str) -> Any:
    return Client(served).request("POST", SCALE, json.dumps(document).encode(), headers)


def test_a_key_opens_it_in_every_control_mode() -> None:
    served = gateway(http_restricted_api=KEY)

    assert 403 == post(served, {"count": 2}).status_code
    assert 200 == post(served, {"count": 2}, **{"steer-key": "secret"}).status_code


def test_otherwise_it_is_the_operator_s_alone() -> None:
    served = gateway()

    answer = post(served, {"count": 2})

    assert 403 == answer.status_code
    assert "--model-control-mode=explicit" in answer.json["error"]
    assert [] == served.calls
    assert INSTANCES == Client(served).request("GET", SCALE).json


@pytest.mark.parametrize(
    ("document", "text"),
    [({}, "number of instances is missing"), ([2], "must be a JSON object"), (None, "JSON object")],
)
def test_what_is_no_change_is_refused(document: Any, text: str) -> None:
    answer = post(gateway(model_control_mode="explicit"), document)

    assert 400 == answer.status_code
    assert text in answer.json["error"]


DRAIN = "/v2/models/identity/drain"


@pytest.mark.row("L14")
@pytest.mark.parametrize(
    ("path", "call"),
    [
        (DRAIN, ("drain", {"then": "unload", "model": "identity"})),
        ("/v2/models/identity/undrain", ("undrain", {"then": "unload", "model": "identity"})),
        ("/v2/drain", ("drain", {"then": "unload", "model": ""})),
        ("/v2/undrain", ("undrain", {"then": "unload", "model": ""})),
    ],
)
def test_who_has_the_key_drains(path: str, call: tuple[str, dict[str, str]]) -> None:
    served = gateway(http_restricted_api=KEY)
    body = json.dumps({"then": "unload"}).encode()

    refused = Client(served).request("POST", path, body)
    answer = Client(served).request("POST", path, body, {"steer-key": "secret"})

    assert (403, 200) == (refused.status_code, answer.status_code)
    assert [call] == served.calls


def test_everybody_sees_how_far_a_drain_is() -> None:
    served = gateway()

    Client(served).request("GET", DRAIN)
    Client(served).request("GET", "/v2/drain")

    assert [("drain.state", {"model": "identity"}), ("drain.state", {"model": ""})] == served.calls
