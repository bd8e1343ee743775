"""Paths of the HTTP frontend, and who may ask them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.frontends.fake_gateway import version_info
from tests.frontends.http_api.fakes import Client, FakeGateway
from zmqtriton.options.values import HTTP_CATEGORIES
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.settings.frontends import AddOnPort
from zmqtriton_frontends.access import refusals
from zmqtriton_frontends.http_api.app import routes
from zmqtriton_frontends.http_api.asgi import access
from zmqtriton_frontends.http_api.extension import EndpointParts
from zmqtriton_frontends.http_api.server.service import MAIN, all_endpoints

# --------------------------------------------------------------------------------- app


def get(path: str, gateway: FakeGateway | None = None) -> Any:
    return Client(gateway or FakeGateway()).request("GET", path)


def post(path: str, body: Any = b"", gateway: FakeGateway | None = None) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Client(gateway or FakeGateway()).request("POST", path, data)


@pytest.mark.addons
@pytest.mark.extra("openai", "clouds", "jobs", "routes", "web_sockets")
def test_every_route_has_a_category_and_stands_once() -> None:
    table = routes(FakeGateway(allow_openai=True))

    pages = {route for route in table if route.path in ("/", "/docs", "/pages/{file:name}")}
    assert {""} == {route.category for route in pages}
    assert {route.category for route in table if route not in pages} <= set(HTTP_CATEGORIES)
    assert len({(route.method, route.path) for route in table}) == len(table)


@pytest.mark.parametrize(
    "path",
    [
        "/v2/",
        "/v3",
        "/metrics",
        "/v2/models",
        "/v2/models/",
        "/v2/models//infer",
        "/v2/models/identity/",
        "/v2/models/identity/nope",
        "/v2/models/identity/versions/x",
        "/v2/models/identity/versions/-1/ready",
        "/v2/models/identity/versions/٣",
        "/v2/models/a%2Fb/ready",
        "/v2/models/" + "x" * 256,
        "/v2/systemsharedmemory/region//status",
        "/v2/models/identity/versions/1/trace/setting",
        "/v2/logging/x",
    ],
)
def test_an_unknown_path_is_not_found(path: str) -> None:
    result = get(path)

    assert (result.status_code, result.json) == (404, {"error": "Not Found"})
    assert result.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/v2", "GET, HEAD"),
        ("PUT", "/v2/health/live", "GET, HEAD"),
        ("GET", "/v2/models/identity/infer", "POST"),
        ("GET", "/v2/repository/index", "POST"),
        ("OPTIONS", "/v2/models/identity/infer", "POST"),
        ("DELETE", "/v2/models/identity", "GET, HEAD"),
    ],
)
def test_a_wrong_method_is_not_allowed(method: str, path: str, allowed: str) -> None:
    result = Client(FakeGateway()).request(method, path)

    assert (result.status_code, result.json) == (405, {"error": "Method Not Allowed"})
    assert result.headers["allow"] == allowed


@pytest.mark.parametrize(
    "path", ["/", "/docs", "/v2", "/v2/models/identity/config", "/v2/models/unknown", "/nothing"]
)
def test_head_is_get_without_its_body(path: str) -> None:
    whole, head = (Client(FakeGateway()).request(method, path) for method in ("GET", "HEAD"))

    assert b"" == head.content
    assert (whole.status_code, dict(whole.headers)) == (head.status_code, dict(head.headers))


# ---------------------------------------------------------- health and metadata
@pytest.mark.row("C02")
def test_a_server_with_a_model_that_is_not_ready_is_not_ready(gateway: FakeGateway) -> None:
    gateway.catalogue.update(version_info("late")._replace(state="LOADING"))

    result = get("/v2/health/ready", gateway)

    assert result.status_code == 400
    assert "model versions that should serve are not ready" in result.json["error"]
    assert get("/v2/health/live", gateway).status_code == 200


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("identity/ready", 200, None),
        ("identity/versions/1/ready", 200, None),
        ("dead/ready", 400, "Model version not ready"),
        ("dead/versions/1/ready", 400, "Model version not ready"),
        ("nope/ready", 400, "Request for unknown model: 'nope' is not found"),
        (
            "identity/versions/2/ready",
            404,
            "Request for unknown model: 'identity' version 2 is not found",
        ),
    ],
)
def test_readiness_of_a_model(
    gateway: FakeGateway, path: str, status: int, error: str | None
) -> None:
    gateway.catalogue.update(version_info("dead")._replace(ready_instances=0))

    result = get(f"/v2/models/{path}", gateway)

    assert result.status_code == status
    assert result.content == (
        b"" if error is None else json.dumps({"error": error}, separators=(",", ":")).encode()
    )


@pytest.mark.parametrize("path", ["batching", "batching/versions/1"])
def test_metadata_of_a_model(path: str) -> None:
    assert get(f"/v2/models/{path}").json == {
        "name": "batching",
        "versions": ["1"],
        "platform": "python",
        "inputs": [
            {"name": "INPUT0", "datatype": "FP32", "shape": [-1, 2]},
            {"name": "INPUT1", "datatype": "FP32", "shape": [-1, 2]},
        ],
        "outputs": [{"name": "OUTPUT0", "datatype": "FP32", "shape": [-1, -1]}],
    }


# -------------------------------------------------------------------- statistics
@pytest.mark.parametrize(
    ("path", "call"),
    [
        ("stats", ("", -1)),
        ("identity/stats", ("identity", -1)),
        ("identity/versions/1/stats", ("identity", 1)),
        ("strings/stats", ("strings", -1)),
    ],
)
def test_statistics_are_asked_for_what_the_path_names(
    gateway: FakeGateway, path: str, call: tuple[str, int]
) -> None:
    gateway.counters["model_stats"] = [
        {"name": "m", "zmqtriton": {"pending": 1}, "inference_count": 2}
    ]

    result = get(f"/v2/models/{path}", gateway)

    assert gateway.statistics_calls == [call]
    assert result.json == {"model_stats": [{"name": "m", "inference_count": 2}]}


def test_a_version_that_no_header_could_carry_is_refused(gateway: FakeGateway) -> None:
    result = get(f"/v2/models/identity/versions/{'9' * 30}/stats", gateway)

    assert (result.status_code, gateway.statistics_calls) == (400, [])


# -------------------------------------------------------------------- repository
@pytest.mark.parametrize(
    ("path", "body", "ready"),
    [
        ("index", b"", False),
        ("index", b"{}", False),
        ("index", {"ready": True}, True),
        ("any/index", {"ready": False}, False),
        ("index", [], False),
    ],
)
def test_the_index_is_an_array(gateway: FakeGateway, path: str, body: Any, ready: bool) -> None:
    gateway.control_result = [{"name": "m"}]

    result = post(f"/v2/repository/{path}", body, gateway)

    assert gateway.calls == [("index", {"ready": ready})]
    assert result.json == [{"name": "m"}]


def test_load_passes_its_configuration_on_and_stages_its_files(tmp_path: Path) -> None:
    gateway = FakeGateway(runtime_directory=str(tmp_path))
    # With a line break, as the program base64 makes them.
    parameters = {"config": "{}", "file:1/model.py": "eHh4eHh4\neHg="}

    result = post("/v2/repository/models/m/load", {"parameters": parameters}, gateway)

    ((verb, arguments),) = gateway.calls
    name = arguments["files"]["staged"]
    assert ("load", "m", {"config": "{}"}) == (verb, arguments["model"], arguments["parameters"])
    assert b"xxxxxxxx" == (tmp_path / "files" / name / "1" / "model.py").read_bytes()
    assert (result.status_code, result.content) == (200, b"")


@pytest.mark.parametrize("content", ["eA=", "####", "eA==eA==", "\u00e9A=="])
def test_what_is_not_base64_is_refused(tmp_path: Path, content: str) -> None:
    gateway = FakeGateway(runtime_directory=str(tmp_path))
    parameters = {"config": "{}", "file:1/model.py": "eA==", "file:1/data": content}

    result = post("/v2/repository/models/m/load", {"parameters": parameters}, gateway)

    assert (400, {"error": "the content of parameter 'file:1/data' is not base64"}) == (
        result.status_code,
        result.json,
    )
    assert ([], []) == (gateway.calls, list(tmp_path.iterdir()))


def test_unload_says_whether_dependents_go_too(gateway: FakeGateway) -> None:
    post("/v2/repository/models/m/unload", gateway=gateway)
    post("/v2/repository/models/m/unload", {"parameters": {"unload_dependents": True}}, gateway)

    assert gateway.calls == [
        ("unload", {"model": "m", "unload_dependents": False}),
        ("unload", {"model": "m", "unload_dependents": True}),
    ]


@pytest.mark.parametrize(
    ("path", "body", "status", "error"),
    [
        ("index", {"ready": 1}, 400, "attempt to access JSON non-boolean as boolean"),
        ("index", b"zz", 400, "failed to parse the request JSON buffer"),
        ("index", b'{"ready":' + b"[" * 50_000, 400, "JSON nesting depth exceeds maximum"),
        ("index", b" " * 70_000, 400, "a request of this route has at most 65536 bytes"),
        ("models/m/load", {"parameters": dict.fromkeys(map(str, range(4097)), "")}, 400, "a load "),
        (
            "models/m/load",
            {"parameters": {"config": " " * (2 << 20)}},
            400,
            "the config of a load ",
        ),
        ("models/m/load", {"parameters": []}, 400, "attempt to get members for non-object"),
        ("models/m/load", {"parameters": {"config": 1}}, 400, "attempt to access JSON non-string"),
        (
            "models/m/load",
            {"parameters": {"x": "y"}},
            500,
            "unexpected error on creating Triton parameter",
        ),
        (
            "models/m/unload",
            {"parameters": {"unload_dependents": "x"}},
            400,
            "Unable to parse 'unload_dependents': ",
        ),
        ("r/models/m/load", b"", 501, "'repository_name' specification is not supported"),
        ("r/models/m/unload", b"", 501, "'repository_name' specification is not supported"),
    ],
)
def test_a_control_call_of_the_wrong_form_is_refused(
    gateway: FakeGateway, path: str, body: Any, status: int, error: str
) -> None:
    result = post(f"/v2/repository/{path}", body, gateway)

    assert (status, error) == (result.status_code, result.json["error"][: len(error)])
    assert gateway.calls == []


def test_what_a_client_wrote_does_not_fill_an_error(gateway: FakeGateway) -> None:
    gateway.control_result = InvalidArgument("x" * 100_000)

    assert len(post("/v2/repository/models/m/load", gateway=gateway).content) < 4096


# --------------------------------------------------------------------------- endpoints
# Endpoints of add-ons, at ports of their own.


def test_an_endpoint_is_made_by_the_add_on_that_declares_its_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[EndpointParts] = []

    async def application(scope: Any, receive: Any, send: Any) -> None: ...

    def make(parts: EndpointParts) -> Any:
        seen.append(parts)
        return application

    module = ModuleType("an_add_on")
    module.make = make  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "an_add_on", module)
    gateway: Any = FakeGateway()
    ports = tuple(AddOnPort(name, name.title(), "an_add_on:make") for name in ("own", "off"))
    gateway.settings = gateway.settings._replace(ports=ports)
    main: Any = object()

    made = all_endpoints([MAIN, "own"], gateway, main, None)  # type: ignore[arg-type]

    assert {MAIN: main, "own": application} == made
    assert [(gateway, main)] == [(parts.gateway, parts.application) for parts in seen]


# --------------------------------------------------------------------------- web pages
# Inferences that pages in browsers ask for: none of a foreign page that nobody has allowed.


FOREIGN = {"Origin": "http://evil.example"}


BODY = json.dumps(
    {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [1.0]}]}
).encode()


#: What browsers send for any page, with the bodies of forms.
UNASKED: list[dict[str, str]] = [
    FOREIGN,
    {"Origin": "null"},
    {**FOREIGN, "Content-Type": "text/plain"},
    {**FOREIGN, "Content-Type": "Text/Plain ; charset=UTF-8"},
    {**FOREIGN, "Content-Type": "multipart/form-data; boundary=x"},
    {**FOREIGN, "Content-Type": "application/x-www-form-urlencoded"},
    {**FOREIGN, "Content-Type": "text/plain", "Sec-Fetch-Site": "cross-site"},
    {**FOREIGN, "Content-Type": "text/plain", "Sec-Fetch-Site": "same-site"},
]


#: What no page sends, or what a browser has asked for before, or what comes from a page of here.
OTHERS: list[dict[str, str]] = [
    {},
    {"Content-Type": "text/plain"},
    {"Content-Type": "application/x-www-form-urlencoded"},  # as of curl
    {**FOREIGN, "Content-Type": "application/json"},
    {**FOREIGN, "Content-Type": "application/octet-stream"},
    {**FOREIGN, "Inference-Header-Content-Length": str(len(BODY))},
    {**FOREIGN, "Content-Type": "text/plain", "Authorization": "Bearer x"},
    {**FOREIGN, "Content-Type": "text/plain", "Sec-Fetch-Site": "same-origin"},
    {"Origin": "https://desk.example", "Content-Type": "text/plain"},
]


def ask(headers: dict[str, str], path: str = "/v2/models/identity/infer") -> tuple[int, Any, int]:
    """The status, the error, and how many requests the models got."""
    gateway = FakeGateway(http_allowed_origin=["https://desk.example"], allow_openai=True)
    answer = Client(gateway).request("POST", path, BODY, headers)
    return answer.status_code, answer.json.get("error"), len(gateway.requests)


@pytest.mark.parametrize("headers", UNASKED, ids=str)
@pytest.mark.extra("openai")
def test_a_foreign_page_gets_nothing_executed_that_its_browser_did_not_ask_for(
    headers: dict[str, str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[refusals.Refusal] = []
    monkeypatch.setattr(refusals, "listeners", [reports.append])
    status, error, executed = ask(headers)

    assert (403, 0) == (status, executed)
    [line] = [one.getMessage() for one in caplog.records if "is refused" in one.getMessage()]
    assert line.startswith(f"a page of '{headers['Origin']}' is refused: This API is not open to")
    assert "This API is not open to web pages, allow one with --http-allowed-origin" == error
    assert [("identity", error)] == [(report.model, report.text) for report in reports]


def test_each_foreign_page_is_logged_once_and_not_more_of_them_than_the_log_can_bear(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a thousand pages would take long
    monkeypatch.setattr(access, "_MAX_REFUSED", 2)
    client = Client(FakeGateway())
    for page in ("a", "a", "b", "a", "c"):
        client.request("POST", "/v2/models/identity/infer", BODY, {"Origin": f"http://{page}"})

    assert ["http://a", "http://b"] == re.findall("a page of '(.*)' is refused", caplog.text)


@pytest.mark.parametrize("headers", OTHERS, ids=str)
@pytest.mark.extra("openai")
def test_all_else_is_executed(headers: dict[str, str]) -> None:
    assert (200, None, 1) == ask(headers)


@pytest.mark.addons
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v2/models/identity/generate", 403),
        ("/v2/models/identity/generate_stream", 403),
        # as OpenAI's clients know a refusal
        ("/v1/embeddings", 401),
    ],
)
@pytest.mark.extra("openai")
def test_other_ways_to_infer_are_closed_to_foreign_pages_too(path: str, status: int) -> None:
    actual, _, executed = ask(FOREIGN, path)

    assert (status, 0) == (actual, executed)
