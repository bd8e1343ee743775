from __future__ import annotations

from typing import Any

import pytest

from tests.frontends.fake_gateway import version_info
from tests.frontends.http_api.fakes import Client, FakeGateway
from zmqtriton_floor.settings.frontends import Restriction

OPENAI = {"allow_openai": True}
INFERENCE_KEY = Restriction(("inference", "metadata"), "infer-key", "one")
OPENAI_KEY = Restriction(("openai",), "authorization", "Bearer two")
#: One request of each route, and what it would get.
OPENAI_REQUESTS = [("POST", "/v1/completions", 400), ("GET", "/v1/models", 200)]


@pytest.mark.parametrize(("method", "path", "status"), OPENAI_REQUESTS)
@pytest.mark.parametrize(
    ("groups", "header"),
    [
        ([INFERENCE_KEY], ("infer-key", "one")),
        ([OPENAI_KEY], ("authorization", "Bearer two")),
        # the key of the narrower group is enough
        ([INFERENCE_KEY, OPENAI_KEY], ("authorization", "Bearer two")),
    ],
)
@pytest.mark.row("L08")
def test_keys_protect_openai_s_api(
    groups: list[Any], header: tuple[str, str], method: str, path: str, status: int
) -> None:
    client = Client(FakeGateway(**OPENAI, http_restricted_api=tuple(groups)))

    refused = client.request(method, path, b"{}")
    wrong = client.request(method, path, b"{}", {header[0]: "Bearer"})
    admitted = client.request(method, path, b"{}", dict([header]))

    assert (401, 401, status) == (refused.status_code, wrong.status_code, admitted.status_code)
    assert {
        "message": f"This API is restricted, expecting header '{header[0]}'. The request "
        "does not have it",
        "type": "authentication_error",
        "param": None,
        "code": "invalid_auth",
    } == refused.json["error"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/completions", 405),
        ("POST", "/v1/models", 405),
        ("POST", "/v1/responses", 400),
        ("GET", "/v1/responses", 405),
        ("GET", "/v1/responses/resp_1", 404),
        ("GET", "/v1/models/nobody", 404),
    ],
)
@pytest.mark.row("L08")
def test_what_openai_s_api_does_not_have_is_refused_in_its_form(
    method: str, path: str, status: int
) -> None:
    result = Client(FakeGateway(**OPENAI)).request(method, path)

    assert status == result.status_code
    assert {"message", "type", "param", "code"} == result.json["error"].keys()


@pytest.mark.parametrize("path", ["/v1/models", "/v1/chat/completions", "/v1/completions"])
@pytest.mark.row("L08")
def test_without_the_option_there_is_no_openai_s_api(path: str) -> None:
    result = Client(FakeGateway()).request("POST", path, b"{}")

    assert (result.status_code, result.json) == (404, {"error": "Not Found"})


@pytest.mark.row("L08")
def test_a_fault_at_openai_s_api_says_nothing_of_our_insides() -> None:
    gateway = FakeGateway(**OPENAI)
    gateway.catalogue.newest = None  # type: ignore[method-assign, assignment]

    result = Client(gateway).request("GET", "/v1/models")

    error = {"message": "internal error", "type": "server_error", "param": None, "code": None}
    assert (500, {"error": error}) == (result.status_code, result.json)


@pytest.mark.parametrize("path", ["/health", "/health/ready"])
def test_probes_of_other_servers_are_answered(path: str) -> None:
    gateway, restricted = FakeGateway(**OPENAI), (Restriction(("health",), "key", "one"),)
    client, guarded = Client(gateway), Client(FakeGateway(**OPENAI, http_restricted_api=restricted))

    assert 200 == client.request("GET", path).status_code
    assert 403 == guarded.request("GET", path).status_code
    assert 404 == Client(FakeGateway()).request("GET", path).status_code
    gateway.catalogue.update(version_info("late")._replace(state="LOADING"))
    late = client.request("GET", path)
    assert 400 == late.status_code
    assert "model versions that should serve are not ready" in late.json["error"]
