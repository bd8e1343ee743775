"""Options of Triton's API, and the options of our server that they become.

Each field of Triton's is accepted; README.md and WITHOUT_EFFECT list fields without effect.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from zmqtriton.sdk.process import Server
from zmqtriton.sdk.wire import InvalidArgument
from zmqtriton_extras.tritonserver.enums import (
    InstanceGroupKind,
    InvalidArgumentError,
    LogFormat,
    ModelControlMode,
    RateLimitMode,
    UnsupportedError,
)
from zmqtriton_extras.tritonserver.log_records import LogCallback

uint = Annotated[int, "not negative"]

_NO_MACHINE = "the text of metrics() has no numbers of the machine"
#: Fields that are accepted and change nothing, with the reason.
WITHOUT_EFFECT = {
    "pinned_memory_pool_size": "no memory is pinned",
    "cuda_memory_pool_sizes": "memory of a GPU is taken as it is needed",
    "cache_directory": "the response cache is built in",
    "buffer_manager_thread_count": "tensors are copied by no threads of their own",
    "model_namespacing": "a name in two repositories is refused",
    "enable_peer_access": "CUDA decides which GPUs may read each other's memory",
    "repo_agent_directory": "the only agent, checksum, is built in",
    "gpu_metrics": _NO_MACHINE,
    "cpu_metrics": _NO_MACHINE,
    "metrics_interval": _NO_MACHINE,
}


@dataclass(slots=True)
class RateLimiterResource:
    name: str
    count: uint
    device: uint


@dataclass(slots=True)
class ModelLoadDeviceLimit:
    kind: InstanceGroupKind
    device: uint
    #: Share of the device's memory beyond which no model is loaded.
    fraction: float


@dataclass(slots=True)
class Options:
    """The options of a server, which are checked when it starts."""

    model_repository: str | list[str] = field(default_factory=list)
    server_id: str = "triton"
    model_control_mode: ModelControlMode = ModelControlMode.NONE
    startup_models: list[str] = field(default_factory=list)
    strict_model_config: bool = False
    rate_limiter_mode: RateLimitMode = RateLimitMode.OFF
    rate_limiter_resources: list[RateLimiterResource] = field(default_factory=list)
    pinned_memory_pool_size: uint = 1 << 28
    cuda_memory_pool_sizes: dict[int, uint] = field(default_factory=dict)
    cache_config: dict[str, dict[str, Any]] = field(default_factory=dict)
    cache_directory: str = "/opt/tritonserver/caches"
    min_supported_compute_capability: float = 6.0
    exit_on_error: bool = True
    strict_readiness: bool = True
    exit_timeout: uint = 30
    buffer_manager_thread_count: uint = 0
    model_load_thread_count: uint = 4
    model_load_retry_count: uint = 0
    model_namespacing: bool = False
    enable_peer_access: bool = True
    log_file: str | None = None
    log_info: bool = False
    log_warn: bool = False
    log_error: bool = False
    log_format: LogFormat = LogFormat.DEFAULT
    log_verbose: uint = 0
    metrics: bool = True
    gpu_metrics: bool = True
    cpu_metrics: bool = True
    metrics_interval: uint = 2000
    backend_directory: str = "/opt/tritonserver/backends"
    repo_agent_directory: str = "/opt/tritonserver/repoagents"
    model_load_device_limits: list[ModelLoadDeviceLimit] = field(default_factory=list)
    backend_configuration: dict[str, dict[str, str]] = field(default_factory=dict)
    host_policies: dict[str, dict[str, str]] = field(default_factory=dict)
    metrics_configuration: dict[str, dict[str, str]] = field(default_factory=dict)
    #: Gets the records of the log, in place of file and stderr.
    log_callback: LogCallback | None = None


def server_options(options: Options) -> dict[str, Any]:
    """Return the arguments of `zmqtriton.Server`.

    Raises TypeError for a value of a wrong type, InvalidArgumentError for a value that the server
    would refuse, and UnsupportedError for a limit on a device that is no GPU.
    """
    if options.model_repository is None:
        raise InvalidArgumentError("Model repository must be specified.")
    _check_types(options)
    repositories = _repositories(options.model_repository)
    if not repositories:
        raise InvalidArgumentError("--model-repository must be specified")
    words: dict[str, Any] = {
        "id": options.server_id,
        "model_control_mode": options.model_control_mode.name.lower(),
        "exit_on_error": options.exit_on_error,
        "strict_readiness": options.strict_readiness,
        "exit_timeout_secs": options.exit_timeout,
        "model_load_thread_count": options.model_load_thread_count,
        "model_load_retry_count": options.model_load_retry_count,
        "min_supported_compute_capability": options.min_supported_compute_capability,
        "backend_directory": options.backend_directory,
        "cache_config": [*_settings(options.cache_config)],
        "backend_config": [*_settings(options.backend_configuration)],
        "host_policy": [*_settings(options.host_policies)],
        "metrics_config": [*_settings(options.metrics_configuration)],
        **_limits(options),
        **_logging(options),
    }
    if options.strict_model_config:
        words["disable_auto_complete_config"] = True
    if options.model_control_mode is ModelControlMode.EXPLICIT:
        words["load_model"] = options.startup_models
    elif options.model_control_mode is ModelControlMode.POLL:
        words["repository_poll_secs"] = 0  # poll_model_repository() looks
    _check(words)
    return {"model_repository": repositories, **words}


def _repositories(given: str | list[str]) -> list[str]:
    return [os.fspath(path) for path in (given if isinstance(given, list) else [given])]


def _limits(options: Options) -> dict[str, Any]:
    is_limited = options.rate_limiter_mode is RateLimitMode.EXEC_COUNT
    for limit in options.model_load_device_limits:
        if limit.kind is not InstanceGroupKind.GPU:
            raise UnsupportedError(f"given device kind is not supported, got: {limit.kind.name}")
    return {
        "rate_limit": "execution_count" if is_limited else "off",
        "rate_limit_resource": [
            f"{resource.name}:{resource.count}:{resource.device}"
            for resource in options.rate_limiter_resources
        ],
        "model_load_gpu_limit": [
            f"{limit.device}:{limit.fraction}" for limit in options.model_load_device_limits
        ],
    }


def _logging(options: Options) -> dict[str, Any]:
    """Return the options of the log: a level includes more severe ones."""
    has_info = options.log_info or options.log_verbose > 0
    has_warnings = options.log_warn or has_info
    is_iso = options.log_format is LogFormat.ISO8601
    words: dict[str, Any] = {
        "log_verbose": options.log_verbose,
        "log_info": has_info,
        "log_warning": has_warnings,
        "log_error": options.log_error or has_warnings,
        "log_format": "ISO8601" if is_iso else "default",
    }
    if options.log_callback is not None:
        return {**words, "log_format": "json"}
    return words | ({"log_file": options.log_file} if options.log_file else {})


def _settings(groups: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield settings with their group, such as `local,size=1048576`; "" means all groups."""
    for group, settings in groups.items():
        for name, value in settings.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            yield f"{group}{',' if group else ''}{name}={text}"


def _check_types(options: Options) -> None:
    """Raise TypeError for a value whose type is not that of the field's default."""
    defaults = Options()
    for each in fields(Options):
        value, kind = getattr(options, each.name), type(getattr(defaults, each.name))
        kinds: tuple[type[Any], ...] = (kind,)
        if each.name == "model_repository":
            kinds = (str, list, os.PathLike)
        elif each.name == "log_file":
            kinds = (str, type(None), os.PathLike)
        elif each.name == "log_callback":
            kinds = (Callable, type(None))  # type: ignore[assignment]
        elif kind is float:
            kinds = (float, int)
        if not isinstance(value, kinds):
            raise TypeError(
                f"{each.name} must be a {kinds[0].__name__}, got {type(value).__name__}"
            )


def _check(words: dict[str, Any]) -> None:
    """Raise InvalidArgumentError for options that the server would refuse."""
    try:
        Server.check({"model_repository": "/", **words})
    except InvalidArgument as error:
        raise InvalidArgumentError(str(error)) from None
