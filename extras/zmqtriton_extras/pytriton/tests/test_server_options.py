"""From a script's configuration to the options of our server, as its own parser reads them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from zmqtriton.embedded.server import Server
from zmqtriton.options.parser import parse
from zmqtriton.options.result import Options
from zmqtriton.options.values import Restriction, Setting
from zmqtriton_extras.pytriton.exceptions import PyTritonValidationError
from zmqtriton_extras.pytriton.server_options import (
    TritonConfig,
    TritonSecurityConfig,
    endpoint,
    server_options,
    unsupported_options,
)

TOKEN = Path("/run/token")
OPEN = TritonSecurityConfig(restricted_endpoints=[])


def options(security: TritonSecurityConfig = OPEN, **settings: Any) -> dict[str, Any]:
    return server_options(
        TritonConfig(**settings), security, model_repository=Path("/models"), token_file=TOKEN
    )


def parsed(settings: dict[str, Any]) -> Options:
    """Return what a server makes of the options."""
    words = Server(**settings)._command(0)
    return parse([word for word in words[3:] if not word.startswith("--owner-descriptor")])


def test_a_server_begins_with_its_repository_and_loads_on_request() -> None:
    server_options = parsed(options())

    assert ("/models",) == server_options.model_repository
    assert ("explicit", ("*",)) == (server_options.model_control_mode, server_options.load_model)
    assert (True, True, True) == (
        server_options.allow_http,
        server_options.allow_grpc,
        server_options.allow_metrics,
    )
    assert ("/own",) == parsed(options(model_repository=Path("/own"))).model_repository


@pytest.mark.row("J30")
@pytest.mark.extra("clouds")
def test_each_field_is_an_option() -> None:
    values = {"bool | None": True, "int | None": 3, "list[str] | None": None}
    settings: dict[str, Any] = {
        field.name: values.get(str(field.type), "low") for field in fields(TritonConfig)
    }
    settings |= {
        "http_port": 1,
        "grpc_port": 2,
        "metrics_port": 4,
        "sagemaker_port": 5,
        "vertex_ai_port": 6,
        "sagemaker_safe_port_range": "1-9",
        "http_restricted_api": "health:k=v",
        "grpc_restricted_protocol": "health:k=v",
        "cache_config": ["local,size=1024", "local,size=2048"],
        "metrics_config": ["counter_latencies=true"],
        "trace_config": ["mode=triton", "rate=7"],
    }

    server_options = parsed(options(**settings))

    differing = {
        name for name in settings if str(settings[name]) != str(server_options.value(name))
    }
    assert {
        "model_repository",
        "sagemaker_safe_port_range",
        "metrics_interval_ms",
        "http_restricted_api",
        "grpc_restricted_protocol",
        "cache_config",
        "metrics_config",
        "trace_config",
    } == differing
    assert (1, 9) == server_options.value("sagemaker_safe_port_range")
    assert 3.0 == server_options.metrics_interval_ms
    assert (Restriction(("health",), "k", "v"),) == server_options.http_restricted_api
    assert (Restriction(("health",), "triton-grpc-protocol-k", "v"),) == (
        server_options.grpc_restricted_protocol
    )
    assert (Setting("local", "size", "1024"), Setting("local", "size", "2048")) == (
        server_options.cache_config
    )
    assert 7 == server_options.trace.rate


@pytest.mark.row("J31")
def test_the_token_travels_in_a_file() -> None:
    security = TritonSecurityConfig("my-token", ["logging", "trace"])

    server_options = parsed(options(security))

    assert (Restriction(("logging", "trace"), "triton-access-token", "@/run/token"),) == (
        server_options.http_restricted_api
    )
    assert (
        "triton-grpc-protocol-triton-access-token"
        == server_options.grpc_restricted_protocol[0].header
    )
    assert "my-token" not in str(server_options)


@pytest.mark.row("J31")
def test_the_users_restrictions_stay_and_the_token_protects_the_rest() -> None:
    """PyTriton replaces them by the token's."""
    security = TritonSecurityConfig("my-token", ["logging", "trace"])

    server_options = parsed(options(security, http_restricted_api="inference,trace:key=value"))

    assert [("inference", "trace"), ("logging",)] == [
        group.categories for group in server_options.http_restricted_api
    ]
    assert ["key", "triton-access-token"] == [
        group.header for group in server_options.http_restricted_api
    ]
    assert [("logging", "trace")] == [
        group.categories for group in server_options.grpc_restricted_protocol
    ]


@pytest.mark.row("J30")
@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"http_port": 70000}, "Port must be in the range 0 to 65535. Got 70000"),
        ({"http_restricted_api": "nothing"}, "--http-restricted-api option format is"),
        ({"grpc_port": 8000}, "The server cannot listen to HTTP requests and GRPC requests"),
        ({"cache_config": ["redis,host=x"]}, "unable to find 'libtritoncache_redis.so'"),
    ],
)
def test_what_the_server_would_refuse_is_refused(settings: Any, text: str) -> None:
    for security in (OPEN, TritonSecurityConfig()):
        with pytest.raises(PyTritonValidationError) as caught:
            options(security, **settings)

        assert text in str(caught.value)


@pytest.mark.row("J30")
@pytest.mark.extra("clouds")
def test_what_the_server_does_not_have_is_named() -> None:
    warnings = unsupported_options(
        options(
            http_thread_count=3,
            grpc_infer_allocation_pool_size=3,
            sagemaker_thread_count=3,
            buffer_manager_thread_count=3,
            cache_directory="/caches",
        )
    )

    assert {
        "--http-thread-count",
        "--grpc-infer-allocation-pool-size",
        "--sagemaker-thread-count",
        "--buffer-manager-thread-count",
        "--cache-directory",
    } == {warning.split(": ")[1] for warning in warnings}


@pytest.mark.parametrize(
    ("settings", "protocol", "expected"),
    [
        ({}, "http", "http://127.0.0.1:8000"),
        ({}, "grpc", "grpc://127.0.0.1:8001"),
        ({}, "metrics", "http://127.0.0.1:8002"),
        ({"http_address": "0.0.0.0", "http_port": 1}, "http", "http://127.0.0.1:1"),
        ({"http_address": "10.0.0.1"}, "metrics", "http://10.0.0.1:8002"),
        (
            {"http_address": "10.0.0.1", "metrics_address": "10.0.0.2", "metrics_port": 3},
            "metrics",
            "http://10.0.0.2:3",
        ),
        ({"http_address": "::1"}, "http", "http://[::1]:8000"),
        ({"http_address": "::"}, "http", "http://127.0.0.1:8000"),
    ],
)
def test_a_server_has_addresses(settings: Any, protocol: str, expected: str) -> None:
    assert expected == endpoint(TritonConfig(**settings), protocol)
