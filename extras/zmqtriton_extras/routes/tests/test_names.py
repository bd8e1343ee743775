"""The paths that models may have for their routes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.frontends.http_api.in_process_server import HttpHarness, run_scenario
from tests.support.scenarios import scenario
from zmqtriton_extras.routes import names
from zmqtriton_frontends.http_api.app import routes


@pytest.mark.parametrize(
    "path", ["/ocr", "/api/ocr", "/a.b/c-d_e~f/1", "/" + "x" * 199, "/v3", "/models2"]
)
def test_a_path_of_plain_names_is_one(path: str) -> None:
    assert names.path_problem(path) == ""


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "ocr",
        "//ocr",
        "/ocr/",
        "/a//b",
        "/../v2",
        "/a/./b",
        "/..",
        "/%2e%2e",
        "/a b",
        "/a\0",
        "/ä",
        "/{name}",
        "/a?b",
        "/a#b",
        "/a\n",
        "/" + "x" * 200,
    ],
)
def test_any_other_path_is_refused(path: str) -> None:
    assert "must be a path such as '/ocr'" in names.path_problem(path)


@pytest.mark.parametrize(
    "path", ["/v2", "/v2/mine", "/v1/chat", "/health", "/models/ocr", "/docs", "/ping"]
)
def test_a_path_of_the_server_itself_is_refused(path: str) -> None:
    assert "is the server's own" in names.path_problem(path)


@pytest.mark.parametrize(
    ("path", "other", "are_within"),
    [
        ("/a", "/a", True),
        ("/a", "/a/b", True),
        ("/a/b", "/a", True),
        ("/a", "/ab", False),
        ("/a/b", "/a/c", False),
    ],
)
def test_a_path_takes_all_that_is_below_it(path: str, other: str, are_within: bool) -> None:
    assert are_within is names.are_within(path, other)


@pytest.mark.extra("openai")
@scenario(run_scenario, allow_openai=True)
async def test_no_route_of_the_server_can_be_taken(harness: HttpHarness, /) -> None:
    gateway: Any = harness.gateway
    table = routes(gateway)

    first = {route.path.split("/")[1] for route in table} - {"", "{path:path}"}
    assert set() == first - names.OWN_PATHS
    assert names.OWN_PATHS - {"invocations", "ping", "models"} <= first
