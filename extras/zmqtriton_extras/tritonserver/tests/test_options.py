"""Options: Triton's fields and defaults, the options of our server that they become."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tests.support.needs import ROOT
from zmqtriton_extras.tritonserver.api import (
    InstanceGroupKind,
    InvalidArgumentError,
    LogFormat,
    ModelControlMode,
    ModelLoadDeviceLimit,
    Options,
    RateLimiterResource,
    RateLimitMode,
    UnsupportedError,
)
from zmqtriton_extras.tritonserver.options import WITHOUT_EFFECT, server_options

README = ROOT / "extras" / "zmqtriton_extras" / "tritonserver" / "README.md"
#: The fields of Triton's class, in its order: arguments may be given by position. The last is of
#: 26.08.
FIELDS = (
    "model_repository server_id model_control_mode startup_models strict_model_config "
    "rate_limiter_mode rate_limiter_resources pinned_memory_pool_size cuda_memory_pool_sizes "
    "cache_config cache_directory min_supported_compute_capability exit_on_error "
    "strict_readiness exit_timeout buffer_manager_thread_count model_load_thread_count "
    "model_load_retry_count model_namespacing enable_peer_access log_file log_info log_warn "
    "log_error log_format log_verbose metrics gpu_metrics cpu_metrics metrics_interval "
    "backend_directory repo_agent_directory model_load_device_limits backend_configuration "
    "host_policies metrics_configuration log_callback"
)
EXPLICIT = ModelControlMode.EXPLICIT


@pytest.mark.row("J60")
def test_it_has_the_fields_of_tritons() -> None:
    assert FIELDS.split() == [field.name for field in fields(Options)]


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        ({"model_repository": "m"}, {"model_repository": ["m"]}),
        ({"model_repository": ["m", Path("n")]}, {"model_repository": ["m", "n"]}),
        ({"server_id": "s"}, {"id": "s"}),
        ({"model_control_mode": ModelControlMode.POLL}, {"repository_poll_secs": 0}),
        (
            {"model_control_mode": EXPLICIT, "startup_models": ["a", "b"]},
            {"model_control_mode": "explicit", "load_model": ["a", "b"]},
        ),
        ({"strict_model_config": True}, {"disable_auto_complete_config": True}),
        ({"rate_limiter_mode": RateLimitMode.EXEC_COUNT}, {"rate_limit": "execution_count"}),
        (
            {"rate_limiter_resources": [RateLimiterResource("R", 4, 0)]},
            {"rate_limit_resource": ["R:4:0"]},
        ),
        ({"cache_config": {"local": {"size": 1048576}}}, {"cache_config": ["local,size=1048576"]}),
        (
            {"backend_configuration": {"python": {"a": "1"}, "": {"b": True}}},
            {"backend_config": ["python,a=1", "b=true"]},
        ),
        (
            {"host_policies": {"gpu_0": {"cpu-cores": "0-3"}}},
            {"host_policy": ["gpu_0,cpu-cores=0-3"]},
        ),
        (
            {"metrics_configuration": {"": {"summary_latencies": "true"}}},
            {"metrics_config": ["summary_latencies=true"]},
        ),
        (
            {"model_load_device_limits": [ModelLoadDeviceLimit(InstanceGroupKind.GPU, 1, 0.5)]},
            {"model_load_gpu_limit": ["1:0.5"]},
        ),
        ({"exit_timeout": 5}, {"exit_timeout_secs": 5}),
        ({"exit_on_error": False, "strict_readiness": False}, {"exit_on_error": False}),
        ({"model_load_thread_count": 8}, {"model_load_thread_count": 8}),
        ({"model_load_retry_count": 2}, {"model_load_retry_count": 2}),
        ({"min_supported_compute_capability": 7}, {"min_supported_compute_capability": 7}),
        ({"backend_directory": "/b"}, {"backend_directory": "/b"}),
        ({"log_file": "/tmp/log"}, {"log_file": "/tmp/log"}),
        ({"log_format": LogFormat.ISO8601}, {"log_format": "ISO8601"}),
        ({"log_format": LogFormat.ISO8601, "log_callback": print}, {"log_format": "json"}),
    ],
)
def test_a_field_becomes_an_option(given: dict[str, Any], becomes: dict[str, Any]) -> None:
    found = server_options(Options(**{"model_repository": "models", **given}))

    assert becomes == {name: found[name] for name in becomes}


@pytest.mark.parametrize(
    ("given", "levels"),
    [
        ({}, (False, False, False)),
        ({"log_error": True}, (False, False, True)),
        ({"log_warn": True}, (False, True, True)),
        ({"log_info": True}, (True, True, True)),
        ({"log_verbose": 1}, (True, True, True)),
    ],
)
def test_a_level_of_the_log_includes_those_above_it(
    given: dict[str, Any], levels: tuple[bool, bool, bool]
) -> None:
    found = server_options(Options("models", **given))

    assert levels == (found["log_info"], found["log_warning"], found["log_error"])


def test_a_callback_gets_the_log_in_place_of_a_file() -> None:
    assert "log_file" not in server_options(Options("m", log_file="/l", log_callback=print))


def test_startup_models_count_in_mode_explicit_alone() -> None:
    assert "load_model" not in server_options(Options("models", startup_models=["a"]))


@pytest.mark.row("J60")
def test_what_has_no_effect_changes_nothing_and_stands_in_the_readme() -> None:
    plain = server_options(Options("models"))
    changed: dict[str, Any] = {
        "pinned_memory_pool_size": 1,
        "cuda_memory_pool_sizes": {0: 1},
        "cache_directory": "/c",
        "buffer_manager_thread_count": 3,
        "model_namespacing": True,
        "enable_peer_access": False,
        "repo_agent_directory": "/r",
        "gpu_metrics": False,
        "cpu_metrics": False,
        "metrics_interval": 1,
    }
    _, _, paragraph = README.read_text("utf-8").partition("change nothing")
    paragraph, _, _ = paragraph.partition("\n\n")

    assert changed.keys() == WITHOUT_EFFECT.keys()
    assert WITHOUT_EFFECT.keys() == set(re.findall("`([a-z_]+)`", paragraph))
    assert plain == server_options(Options("models", **changed))


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"model_repository": None}, InvalidArgumentError, "Model repository must be specified."),
        ({"model_repository": []}, InvalidArgumentError, "must be specified"),
        ({"model_repository": 1}, TypeError, "model_repository must be a"),
        ({"server_id": 1}, TypeError, "server_id must be a str, got int"),
        ({"log_verbose": "much"}, TypeError, "log_verbose must be a int, got str"),
        ({"log_callback": 1}, TypeError, "log_callback must be a Callable, got int"),
        ({"model_control_mode": "explicit"}, TypeError, "model_control_mode must be a Model"),
        ({"model_load_thread_count": -1}, InvalidArgumentError, "model-load-thread-count"),
        (
            {"model_load_device_limits": [ModelLoadDeviceLimit(InstanceGroupKind.CPU, 0, 0.5)]},
            UnsupportedError,
            "given device kind is not supported, got: CPU",
        ),
    ],
)
def test_wrong_values_are_refused(given: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        server_options(Options(**{"model_repository": "models", **given}))
