"""Tokens and the endpoints that they protect."""

from __future__ import annotations

import pytest

from zmqtriton_extras.pytriton.exceptions import PyTritonValidationError
from zmqtriton_extras.pytriton.server_options import TritonSecurityConfig
from zmqtriton_extras.pytriton.triton import (
    DefaultTritonLifecyclePolicy,
    TritonLifecyclePolicy,
    VertextAILifecyclePolicy,
)


@pytest.mark.row("J31")
def test_what_changes_the_server_is_protected_by_a_new_token() -> None:
    one, two = TritonSecurityConfig(), TritonSecurityConfig()

    expected = ["shared-memory", "model-repository", "statistics", "trace", "logging"]
    assert expected == one.restricted_endpoints == two.restricted_endpoints
    assert one.access_token
    assert two.access_token
    assert len(one.access_token) >= 32
    assert one.access_token != two.access_token


@pytest.mark.row("J31")
def test_nothing_is_protected_if_that_is_said() -> None:
    security = TritonSecurityConfig(restricted_endpoints=[])

    assert (None, []) == (security.access_token, security.restricted_endpoints)


@pytest.mark.row("J31")
def test_a_token_may_be_chosen_and_is_not_printed() -> None:
    security = TritonSecurityConfig("my-token", ["health"])

    assert ("my-token", ["health"]) == (security.access_token, security.restricted_endpoints)
    assert "my-token" not in repr(security)


@pytest.mark.row("J31")
def test_unknown_endpoints_are_refused() -> None:
    with pytest.raises(PyTritonValidationError) as caught:
        TritonSecurityConfig(restricted_endpoints=["models", "health", "all"])

    assert (
        "Invalid endpoint names: all, models. Valid endpoints are: health, inference, logging, "
        "metadata, model-config, model-repository, shared-memory, statistics, trace"
    ) == str(caught.value)


def test_there_are_two_policies_of_life() -> None:
    assert TritonLifecyclePolicy(True, False) == DefaultTritonLifecyclePolicy
    assert TritonLifecyclePolicy(False, True) == VertextAILifecyclePolicy
