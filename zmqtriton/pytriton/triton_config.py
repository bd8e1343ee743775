"""TritonConfig: the settings of the server that a script starts, or its environment."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from zmqtriton.pytriton.exceptions import PyTritonValidationError

logger = logging.getLogger(__name__)

_PREFIX = "PYTRITON_TRITON_CONFIG_"
_ITEM = re.compile(r"(.+)_([0-9]+)")


@dataclass(kw_only=True)
class TritonConfig:
    """Options of `tritonserver`, which explains them; None leaves one at its default."""

    model_repository: Path | None = None
    id: str | None = None
    log_verbose: int | None = None
    log_file: Path | None = None
    exit_timeout_secs: int | None = None
    exit_on_error: bool | None = None
    strict_readiness: bool | None = None
    allow_http: bool | None = None
    http_address: str | None = None
    http_port: int | None = None
    http_header_forward_pattern: str | None = None
    http_thread_count: int | None = None
    http_restricted_api: str | None = None
    allow_grpc: bool | None = None
    grpc_address: str | None = None
    grpc_port: int | None = None
    grpc_header_forward_pattern: str | None = None
    grpc_infer_allocation_pool_size: int | None = None
    grpc_use_ssl: bool | None = None
    grpc_use_ssl_mutual: bool | None = None
    grpc_server_cert: Path | None = None
    grpc_server_key: Path | None = None
    grpc_root_cert: Path | None = None
    grpc_infer_response_compression_level: str | None = None
    grpc_keepalive_time: int | None = None
    grpc_keepalive_timeout: int | None = None
    grpc_keepalive_permit_without_calls: bool | None = None
    grpc_http2_max_pings_without_data: int | None = None
    grpc_http2_min_recv_ping_interval_without_data: int | None = None
    grpc_http2_max_ping_strikes: int | None = None
    grpc_restricted_protocol: str | None = None
    allow_metrics: bool | None = None
    allow_gpu_metrics: bool | None = None
    allow_cpu_metrics: bool | None = None
    metrics_interval_ms: int | None = None
    metrics_port: int | None = None
    metrics_address: str | None = None
    allow_sagemaker: bool | None = None
    sagemaker_port: int | None = None
    sagemaker_safe_port_range: str | None = None
    sagemaker_thread_count: int | None = None
    allow_vertex_ai: bool | None = None
    vertex_ai_port: int | None = None
    vertex_ai_thread_count: int | None = None
    vertex_ai_default_model: str | None = None
    metrics_config: list[str] | None = None
    trace_config: list[str] | None = None
    cache_config: list[str] | None = None
    cache_directory: str | None = None
    buffer_manager_thread_count: int | None = None

    def __post_init__(self) -> None:
        if not any(allowed in (True, None) for allowed in (self.allow_http, self.allow_grpc)):
            raise PyTritonValidationError("The `http` or `grpc` endpoint has to be allowed.")

    def to_dict(self) -> dict[str, Any]:
        """Return all fields."""
        return asdict(self)

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> TritonConfig:
        """Return a configuration with values of the right types.

        Names that are no fields are ignored with a warning. Raises PyTritonValidationError.
        """
        readers = {field.name: _READERS[str(field.type)] for field in fields(cls)}
        for name in config.keys() - readers:
            logger.warning(
                "Ignoring %s=%s as could not find matching config field. Available fields: %s",
                name,
                config[name],
                ", ".join(readers),
            )
        values = {name: config[name] for name in readers if config.get(name) is not None}
        return cls(**{name: _read(readers[name], name, value) for name, value in values.items()})

    @classmethod
    def from_env(cls) -> TritonConfig:
        """Return what variables such as PYTRITON_TRITON_CONFIG_HTTP_PORT say.

        A list has one variable for each item: PYTRITON_TRITON_CONFIG_CACHE_CONFIG_0 and so on.
        """
        config: dict[str, Any] = {}
        items: list[tuple[str, int, str]] = []
        for variable, value in os.environ.items():
            if variable.startswith(_PREFIX):
                name = variable.removeprefix(_PREFIX).lower()
                if match := _ITEM.fullmatch(name):
                    items.append((match[1], int(match[2]), value))
                else:
                    config[name] = value
        indexed: dict[str, list[str]] = {}
        for name, _, value in sorted(items):
            indexed.setdefault(name, []).append(value)
        return cls.from_dict(config | indexed)

    def over_environment(self) -> TritonConfig:
        """Return this configuration, with fields that it leaves open as the environment says."""
        own_fields = {name: value for name, value in self.to_dict().items() if value is not None}
        return TritonConfig(**{**TritonConfig.from_env().to_dict(), **own_fields})


def _boolean(value: Any) -> bool:
    if not isinstance(value, str):
        return bool(value)
    word = value.strip().lower()
    if word not in ("true", "false", "on", "off", "1", "0"):
        raise ValueError("neither true nor false")
    return word in ("true", "on", "1")


def _text(value: Any) -> str:
    if isinstance(value, (list, dict)):
        raise ValueError("not one value")
    return str(value)


def _list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [str(item) for item in value]


#: By the annotation of a field.
_READERS: dict[str, Callable[[Any], Any]] = {
    "bool | None": _boolean,
    "int | None": int,
    "str | None": _text,
    "Path | None": Path,
    "list[str] | None": _list,
}


def _read(reader: Callable[[Any], Any], name: str, value: Any) -> Any:
    try:
        return reader(value)
    except (TypeError, ValueError) as error:
        raise PyTritonValidationError(f"Invalid value {value!r} for {name}: {error}") from None
