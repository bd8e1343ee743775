"""The settings of all processes: each option in its field, of its kind, and each field read."""

from __future__ import annotations

import ast
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from tests.supervisor.settings import options_with, settings
from tests.support.poison import FILE
from zmqtriton.options import Options
from zmqtriton.options.values import RateLimitResource, Restriction, Setting, TraceOptions
from zmqtriton.roles import LOCAL_SERVICES
from zmqtriton.supervisor.machine import process_settings
from zmqtriton.supervisor.settings import Settings
from zmqtriton_floor.logs import LogOptions
from zmqtriton_floor.metrics import MetricsConfig
from zmqtriton_floor.settings.broker import BrokerSettings
from zmqtriton_floor.settings.frontends import FrontendSettings
from zmqtriton_floor.settings.stub import StubSettings
from zmqtriton_floor.settings.tracing import TracerSettings

ROOT = Path(__file__).resolve().parents[2]
_KINDS = (StubSettings, BrokerSettings, FrontendSettings, TracerSettings)

#: Options that the supervisor alone needs, and has from Options, or that do nothing.
_OWN = frozenset(
    """
    owner_descriptor max_model_segment_bytes max_model_memory_bytes early_liveness
    take_over
    model_repository model_file exit_on_error strict_model_config repository_poll_secs
    load_model model_config_name
    model_load_thread_count
    model_load_retry_count instance_retry_secs model_namespacing enable_peer_access
    build_environments model_env environment_directory
    allow_client_shm trust_client_shm
    http_thread_count grpc_infer_thread_count
    grpc_infer_allocation_pool_size grpc_max_response_pool_size cache_directory backend_directory
    repoagent_directory pinned_memory_pool_byte_size cuda_memory_pool_byte_size
    cuda_virtual_address_size min_supported_compute_capability buffer_manager_thread_count
    host_policy warnings config origins
    """.split()
)
_RESTRICTION = (Restriction(("trace",), "k", "v"),)
#: Values for options of which not every value of the kind means something, or nothing alone.
_VALUES: dict[str, Any] = {
    "rate_limit": "execution_count",
    "rate_limit_resource": (RateLimitResource("R", 2, -1),),
    "http_restricted_api": _RESTRICTION,
    "grpc_restricted_protocol": _RESTRICTION,
    "zmq_door_restricted": _RESTRICTION,
    "metrics_config": (Setting("", "histogram_latencies", "true"),),
    "cache_config": (Setting("local", "size", "7"),),
    "backend_config": (Setting("python", "shm-default-byte-size", str(8 << 20)),),
    "trace": TraceOptions("opentelemetry"),
    "model_load_gpu_limit": ((0, 0.5),),
    "agent_check_port": 9000,
    "sagemaker_safe_port_range": (1, 2),
}
_FILES = ("server_cert", "server_key", "root_cert")
#: Options that mean something only beside others.
_BESIDE: dict[str, dict[str, Any]] = {
    f"{service}_{name}": {f"{service}_use_ssl": True, f"{service}_use_ssl_mutual": True}
    for service in ("http", "grpc")
    for name in _FILES
}
_BESIDE |= {
    f"{service}_use_ssl_mutual": {f"{service}_use_ssl": True, f"{service}_root_cert": "/root"}
    for service in ("http", "grpc")
}
_BESIDE |= {name: {"capture": "1"} for name in ("capture_to", "capture_byte_size")}
_BESIDE["otlp_metrics_interval_secs"] = {"otlp_metrics": "http://c"}
_BESIDE |= {
    name: {"jobs": True}
    for name in ("jobs_keep_secs", "jobs_max_bytes", "webhook_allow", "webhook_secret_file")
}


def _other(option: str, default: Any) -> Any:
    """A value that is not the default."""
    if option in _VALUES:
        return _VALUES[option]
    if isinstance(default, bool):
        return not default
    if isinstance(default, (int, float)):
        return default + 1
    return "other" if isinstance(default, str) else ("other",)


def _documents(server_settings: Settings) -> dict[str, str]:
    """The documents by role, but for secrets that each server makes anew."""
    parts = dataclasses.replace(server_settings, cache_secrets={})
    roles = ("stub", "broker", "tracer", "http", "grpc", "metrics", "announcer", "guest")
    documents = {role: parts.document(role) for role in (*roles, *LOCAL_SERVICES)}
    own = (
        server_settings.trace,
        server_settings.log_file,
        server_settings.local_sockets,
        server_settings.model_load_gpu_limit,
    )
    return {**documents, "supervisor": repr((*own, sorted(server_settings.cache_secrets)))}


@pytest.mark.parametrize(
    "option",
    [
        *(field.name for field in dataclasses.fields(Options) if field.name != "of_add_ons"),
        *(pytest.param(name, marks=[pytest.mark.addons]) for name in Options().of_add_ons),
    ],
)
def test_each_option_is_told_to_a_process_or_is_the_supervisors_own(option: str) -> None:
    beside = _BESIDE.get(option, {})

    changed = settings(**{**beside, option: _other(option, options_with(**beside).value(option))})

    assert (option in _OWN) is (_documents(settings(**beside)) == _documents(changed))


@pytest.mark.parametrize(
    ("value", "tool", "is_poisoned"),
    [("1", FILE, True), ("1", "/installed/tools/poison.py", False), ("0", FILE, False)],
)
def test_owners_of_memory_get_the_tool_that_poisons_it_where_it_is(
    value: str, tool: str, is_poisoned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_settings, "_POISON_TOOL", Path(tool))

    documents = _documents(settings(environment={"ZT_POISON": value}))

    memories = [
        memory
        for document in list(documents.values())[:-1]
        if (memory := json.loads(document).get("memory")) is not None
    ]
    assert len(memories) == len(documents) - 3  # the supervisor, the broker and the tracer
    assert {is_poisoned} == {bool(memory["poison"]) for memory in memories}


def _classes(cls: Any) -> Iterator[Any]:
    yield cls
    for kind in get_type_hints(cls).values():
        for part in (kind, *getattr(kind, "__args__", ())):
            if hasattr(part, "_fields"):
                yield from _classes(part)


def _names_read() -> set[str]:
    """The attributes that the product reads, but for the files that make settings."""
    names = set()
    for part in ("zmqtriton", "frontends", "stub", "standard", "extras"):
        for path in (ROOT / part).rglob("*.py"):
            if path.name == "process_settings.py" or path.parts[-2:-1] == ("options",):
                continue
            if "ettings" in (text := path.read_text("utf-8")) or "LogOptions" in text:
                tree = ast.parse(text)
                names |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    return names


@pytest.mark.slow
@pytest.mark.addons
@pytest.mark.extra("clouds", "fleet")
def test_each_field_has_a_reader() -> None:
    read = _names_read()
    fields = {
        f"{cls.__name__}.{name}": name
        for kind in _KINDS
        for cls in _classes(kind)
        # these are unpacked
        if cls not in (Restriction, RateLimitResource, LogOptions, MetricsConfig)
        for name in cls._fields
    }

    assert [] == sorted(field for field, name in fields.items() if name not in read)
    assert len(fields) > 60
