"""The server that a script starts: its settings, the protection of its endpoints, its addresses.

The settings come from the script or its environment, and become options of the server.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from zmqtriton.sdk.process import Server
from zmqtriton.sdk.process import options as option_values
from zmqtriton.sdk.wire import InvalidArgument
from zmqtriton_extras.pytriton import constants
from zmqtriton_extras.pytriton.constants import TRITON_ACCESS_HEADER
from zmqtriton_extras.pytriton.exceptions import PyTritonValidationError

_ANY_ADDRESS = re.compile(r"0+\.0+\.0+\.0+|\[?::\]?")
_RESTRICTIONS = (("http_restricted_api", "api"), ("grpc_restricted_protocol", "protocol"))
#: Fields of the address, the port, and the port that is the default.
_ENDPOINTS = {
    "http": (("http_address",), "http_port", constants.DEFAULT_HTTP_PORT),
    "grpc": (("grpc_address",), "grpc_port", constants.DEFAULT_GRPC_PORT),
    "metrics": (
        ("metrics_address", "http_address"),
        "metrics_port",
        constants.DEFAULT_METRICS_PORT,
    ),
}
VALID_TRITON_ENDPOINTS = set(option_values.CATEGORIES)
DEFAULT_PROTECTED_ENDPOINTS = [
    "shared-memory",
    "model-repository",
    "statistics",
    "trace",
    "logging",
]
logger = logging.getLogger("zmqtriton.pytriton.server_options")

_PREFIX = "PYTRITON_TRITON_CONFIG_"
_ITEM = re.compile(r"(.+)_([0-9]+)")


@dataclass(kw_only=True)
class TritonConfig:
    """Options of `tritonserver`, whose help explains them; None leaves one at its default."""

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
        """Return the options in variables such as PYTRITON_TRITON_CONFIG_HTTP_PORT.

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
        """Return the configuration with fields that are not set taken from the environment."""
        own_fields = {name: value for name, value in self.to_dict().items() if value is not None}
        return TritonConfig(**{**TritonConfig.from_env().to_dict(), **own_fields})


def _boolean(value: Any) -> bool:
    if not isinstance(value, str):
        return bool(value)
    word = value.strip().lower()
    if word not in ("true", "false", "on", "off", "1", "0"):
        raise ValueError("must be true or false")
    return word in ("true", "on", "1")


def _text(value: Any) -> str:
    if isinstance(value, (list, dict)):
        raise ValueError("not one value")
    return str(value)


def _list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [str(item) for item in value]


#: Readers of values by the annotation of a field.
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


@dataclass
class TritonSecurityConfig:
    """Endpoints that answer only to requests with a token."""

    #: Access token; by default a new one, if there are endpoints to protect.
    access_token: str | None = field(default=None, repr=False)
    #: Protected endpoints; by default DEFAULT_PROTECTED_ENDPOINTS, an empty list for none.
    restricted_endpoints: list[str] | None = None

    def __post_init__(self) -> None:
        if self.restricted_endpoints is None:
            self.restricted_endpoints = list(DEFAULT_PROTECTED_ENDPOINTS)
        _check_names(self.restricted_endpoints)
        if self.access_token is None and self.restricted_endpoints:
            self.access_token = secrets.token_urlsafe(32)


def _check_names(endpoints: Iterable[str]) -> None:
    unknown = set(endpoints) - VALID_TRITON_ENDPOINTS
    if unknown:
        raise PyTritonValidationError(
            f"Invalid endpoint names: {', '.join(sorted(unknown))}. "
            f"Valid endpoints are: {', '.join(sorted(VALID_TRITON_ENDPOINTS))}"
        )


def server_options(
    config: TritonConfig,
    security: TritonSecurityConfig,
    *,
    model_repository: Path,
    token_file: Path,
) -> dict[str, Any]:
    """Return the options for `zmqtriton.Server`; a list has an option's values.

    The server loads the models of its repository (`model_repository` unless the configuration has
    one) at its start, and others on request. `token_file` is for the access token, since all users
    of a machine can read command lines; the caller writes it. Raises PyTritonValidationError for
    options that the server would refuse.
    """
    options = {
        "model_repository": model_repository,
        "model_control_mode": "explicit",
        "load_model": "*",
        "allow_http": True,
        "allow_grpc": True,
        "allow_metrics": True,
        **{name: value for name, value in config.to_dict().items() if value is not None},
    }
    for name, kind in _RESTRICTIONS:
        own = options.get(name)
        rest = _unrestricted(f"--{name.replace('_', '-')}", kind, own, security)
        if rest:
            token = f"{','.join(rest)}:{TRITON_ACCESS_HEADER}=@{token_file.absolute()}"
            options[name] = [token] if own is None else [own, token]
    unsupported_options(options)
    return options


def _unrestricted(
    option: str, kind: str, own: str | None, security: TritonSecurityConfig
) -> list[str]:
    """Return the endpoints that the token protects, without those that the user restricts."""
    try:
        restricted = (
            () if own is None else option_values.restriction(option, kind, "")(own).categories
        )
    except option_values.BadValue as error:
        raise PyTritonValidationError(str(error)) from None
    endpoints = security.restricted_endpoints if security.access_token else None
    return [name for name in endpoints or () if name not in restricted]


def unsupported_options(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return warnings about options without effect."""
    try:
        return Server.check(options)
    except InvalidArgument as error:
        raise PyTritonValidationError(str(error)) from None


def endpoint(config: TritonConfig, protocol: str) -> str:
    """Return the URL at which this machine finds `http`, `grpc` or `metrics`."""
    address_fields, port_field, default_port = _ENDPOINTS[protocol]
    addresses = (getattr(config, name) for name in address_fields)
    listened = (address for address in addresses if address and not _ANY_ADDRESS.fullmatch(address))
    address = next(listened, constants.TRITON_LOCAL_IP)
    if ":" in address and not address.startswith("["):
        address = f"[{address}]"
    scheme = "grpc" if protocol == "grpc" else "http"
    port = getattr(config, port_field)
    return f"{scheme}://{address}:{port or default_port}"
