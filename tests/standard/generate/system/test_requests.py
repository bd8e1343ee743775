"""Requests of `generate`, as models of a real server get them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.support.server import Server

pytestmark = [
    pytest.mark.long(
        "standard/generate/test_request.py::test_objects_and_lists_within_parameters_are_parameters_with_their_json",
        "standard/generate/test_events.py::test_inputs_may_be_binary_and_compressed_and_headers_reach_the_model",
    ),
    pytest.mark.system,
    pytest.mark.server(
        models=["told"],
        options=["--http-header-forward-pattern=^x-my-", "--http-header-forward-generate"],
        frontends=(),
    ),
]


def generate(server: Server, model: str, document: Any) -> tuple[int, dict[str, Any]]:
    """Return the status and the document of the response."""
    url = f"{server.url}/v2/models/{model}/generate"
    request = urllib.request.Request(url, json.dumps(document).encode(), {"X-My-User": "ann"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def told_parameters(server: Server, document: Any) -> Any:
    status, fields = generate(server, "told", document)
    assert status == 200, fields
    return json.loads(fields["TOLD"])["parameters"]


def test_nested_objects_reach_the_model_as_json_text(server: Server) -> None:
    nested = {"format": {"type": "json"}, "stop": ["a", "b"], "n": 1}

    parameters = told_parameters(server, {"INPUT0": 1, "parameters": nested})

    assert parameters == {
        "format": '{"type":"json"}',
        "stop": '["a","b"]',
        "n": 1,
        "X-My-User": "ann",
    }
