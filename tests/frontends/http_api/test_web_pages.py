"""Inferences that pages in browsers ask for: none of a foreign page that nobody has allowed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.frontends.http_api.fakes import Client, FakeGateway

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
def test_a_foreign_page_gets_nothing_executed_that_its_browser_did_not_ask_for(
    headers: dict[str, str],
) -> None:
    status, error, executed = ask(headers)

    assert (403, 0) == (status, executed)
    assert "This API is not open to web pages, allow one with --http-allowed-origin" == error


@pytest.mark.parametrize("headers", OTHERS, ids=str)
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
def test_other_ways_to_infer_are_closed_to_foreign_pages_too(path: str, status: int) -> None:
    actual, _, executed = ask(FOREIGN, path)

    assert (status, 0) == (actual, executed)
