"""Request is a mapping of its inputs, Response of its outputs."""

from __future__ import annotations

import copy
from collections.abc import MutableMapping

import numpy as np
import pytest

from zmqtriton_extras.pytriton.binding import ResponseValidator
from zmqtriton_extras.pytriton.model_config.triton_model_config import TritonModelConfig
from zmqtriton_extras.pytriton.proxy.types import Request, Response
from zmqtriton_extras.pytriton.tests.bindings import plain


@pytest.mark.row("J06")
def test_a_request_is_a_mapping_of_its_data() -> None:
    a, b = np.zeros(1), np.ones(1)
    request = Request({"a": a})

    request["b"] = b

    assert isinstance(request, MutableMapping)
    assert request["b"] is b
    assert ["a", "b"] == list(request) == list(request.keys())
    assert [a, b] == list(request.values())
    assert [("a", a), ("b", b)] == list(request.items())
    assert 2 == len(request)
    assert "a" in request
    assert request.data is not None

    del request["a"]

    assert {"b": b} == request.data == {**request}
    assert "a" not in request
    with pytest.raises(KeyError, match="'a'"):
        request["a"]


@pytest.mark.row("J06")
def test_a_request_shares_its_data_with_copies_but_deep_ones() -> None:
    data = {"a": np.zeros(1)}
    request = Request(data, {"key": 1})

    data["a"] += 1

    assert {"a": [1]} == plain(request) == plain(copy.copy(request))
    deep = copy.deepcopy(request)
    data["a"] += 1
    assert {"a": [1]} == plain(deep)


@pytest.mark.row("J06")
def test_what_a_request_brings_besides_is_optional() -> None:
    request = Request({})

    assert (None, None, None) == (request.parameters, request.span, request.requested_output_names)


def test_a_request_that_is_not_traced_has_no_span() -> None:
    done = []
    with Request({}).traced_span("work"):
        done.append(1)

    assert [1] == done


def test_a_callable_may_return_responses() -> None:
    response = Response({"a": np.zeros(1)})
    response["b"] = np.ones(2)
    del response["a"]

    assert {"b": [1.0, 1.0]} == {name: array.tolist() for name, array in response.items()}
    assert isinstance(response, MutableMapping)
    validator = ResponseValidator(TritonModelConfig("model"), strict=False)
    validator.validate_responses([Request({})], [response])
    with pytest.raises(ValueError, match="Not all values returned by"):
        validator.validate_responses([Request({})], [Response({"a": [1]})])  # type: ignore[dict-item]
