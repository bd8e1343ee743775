"""The parsed command line: one field per option, with Triton's default.

Made by the parser and handed, frozen, to everything that is started. If several options decide one
thing (auto-completion, tracing, the cache), only the decision is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from zmqtriton.options.declared import DECLARED
from zmqtriton.options.values import (
    ModelFile,
    RateLimitResource,
    Restriction,
    Setting,
    TraceOptions,
)


@dataclass(frozen=True)
class Options:
    # Server
    #: File of options; "": none.
    config: str = ""
    id: str = "triton"
    exit_timeout_secs: int = 30
    take_over: bool = False
    one_by_one: bool = False
    #: File of bearer tokens; "": clients need none.
    tokens: str = ""
    #: Descriptor that the server's owner holds the other end of; -1: the server has no owner.
    owner_descriptor: int = -1
    #: Maximum number of unanswered requests; 0: as many as the broker can take.
    max_requests: int = 0
    #: Maximum number of unanswered requests of each model; 0: no limit.
    max_model_requests: int = 0
    #: Maximum size of each model's shared memory for large tensors, in bytes; 0: no limit.
    max_model_segment_bytes: int = 0
    #: Maximum memory of each instance of a model, in bytes; 0: no limit.
    max_model_memory_bytes: int = 0
    #: Memory for incomplete requests and unread responses, per protocol; 0: a share of the memory.
    client_memory_byte_size: int = 0
    early_liveness: bool = False
    #: Directory for sockets; "": $RUNTIME_DIRECTORY, else a new private directory.
    runtime_directory: str = ""

    # Logging
    log_verbose: int = 0
    log_info: bool = True
    log_warning: bool = True
    log_error: bool = True
    #: Format of the log: default, ISO8601 or json.
    log_format: str = "default"
    #: File of the log; "": stderr.
    log_file: str = ""

    # Model repository
    model_repository: tuple[str, ...] = ()
    model_file: tuple[ModelFile, ...] = ()
    exit_on_error: bool = True
    #: True if configurations are not auto-completed.
    strict_model_config: bool = False
    strict_readiness: bool = True
    #: Mode of control: none, poll or explicit.
    model_control_mode: str = "none"
    #: Seconds between polls; 0 unless the mode is poll. In mode poll, 0 loads once and never polls
    #: again.
    repository_poll_secs: int = 15
    #: Names of models to load at start, or "*" alone; empty unless the mode is explicit.
    load_model: tuple[str, ...] = ()
    load_on_demand: bool = False
    load_on_demand_timeout: float = 60.0
    model_config_name: str = ""
    model_load_thread_count: int = 4
    model_load_retry_count: int = 0
    #: Seconds after which an instance that died too often is tried again; 0: never.
    instance_retry_secs: float = 30.0
    model_namespacing: bool = False
    enable_peer_access: bool = True
    build_environments: bool = False
    #: Names of variables, or beginnings of names with * behind.
    model_env: tuple[str, ...] = ()
    stub_user: tuple[str, ...] = ()
    #: Cache of environments; "": below $CACHE_DIRECTORY, else below the user's cache.
    environment_directory: str = ""
    #: Directory of decisions; "": $STATE_DIRECTORY, else below the user's ~/.local/state.
    state_directory: str = ""

    # HTTP
    allow_http: bool = True
    http_address: str = "0.0.0.0"
    http_port: int = 8000
    reuse_http_port: bool = False
    #: Regular expression that matches any part of a header's name, in any case; "" forwards none.
    http_header_forward_pattern: str = ""
    #: Number of processes; 0: by the number of cores.
    http_workers: int = 0
    http_thread_count: int = 8
    http_max_input_size: int = 64 << 20
    http_restricted_api: tuple[Restriction, ...] = ()
    http_allowed_origin: tuple[str, ...] = ()
    http_allowed_host: tuple[str, ...] = ()
    http_use_ssl: bool = False
    http_use_ssl_mutual: bool = False
    http_server_cert: str = ""
    http_server_key: str = ""
    http_root_cert: str = ""

    # gRPC; times are milliseconds
    allow_grpc: bool = True
    grpc_address: str = "0.0.0.0"
    grpc_port: int = 8001
    reuse_grpc_port: bool = False
    grpc_header_forward_pattern: str = ""
    #: Number of processes; 0: by the number of cores.
    grpc_processes: int = 0
    grpc_transport: str = "native"
    grpc_max_input_size: int = 2**31 - 1
    #: Value of the option; if it is not given, True if gRPC listens on loopback.
    grpc_reflection: bool = False
    grpc_infer_thread_count: int = 2
    grpc_infer_allocation_pool_size: int = 8
    grpc_max_response_pool_size: int = 2**31 - 1
    grpc_use_ssl: bool = False
    grpc_use_ssl_mutual: bool = False
    grpc_server_cert: str = ""
    grpc_server_key: str = ""
    grpc_root_cert: str = ""
    grpc_infer_response_compression_level: str = "none"
    grpc_keepalive_time: int = 7_200_000
    grpc_keepalive_timeout: int = 20_000
    grpc_keepalive_permit_without_calls: bool = False
    grpc_http2_max_pings_without_data: int = 2
    grpc_http2_min_recv_ping_interval_without_data: int = 300_000
    grpc_http2_max_ping_strikes: int = 2
    #: Maximum age of a connection, and further time for its open calls; 0: no limit.
    grpc_max_connection_age: int = 0
    grpc_max_connection_age_grace: int = 0
    grpc_restricted_protocol: tuple[Restriction, ...] = ()

    # Shared memory of clients
    #: Value of the option; if it is not given, True if HTTP and gRPC listen on loopback only.
    allow_client_shm: bool = False
    trust_client_shm: bool = False

    # Metrics
    allow_metrics: bool = True
    allow_gpu_metrics: bool = True
    allow_cpu_metrics: bool = True
    #: Address of the metrics; HTTP's if it is not given.
    metrics_address: str = ""
    metrics_port: int = 8002
    metrics_interval_ms: float = 2000.0
    metrics_config: tuple[Setting, ...] = ()

    # Tracing, caching, limits
    trace: TraceOptions = field(default_factory=TraceOptions)
    cache_config: tuple[Setting, ...] = ()
    cache_directory: str = "/opt/tritonserver/caches"
    #: Mode of the rate limiter: execution_count or off.
    rate_limit: str = "off"
    rate_limit_resource: tuple[RateLimitResource, ...] = ()

    # Backends
    backend_directory: str = "/opt/tritonserver/backends"
    backend_config: tuple[Setting, ...] = ()
    repoagent_directory: str = "/opt/tritonserver/repoagents"

    # Memory and devices
    pinned_memory_pool_byte_size: int = 256 << 20
    #: (GPU, bytes)
    cuda_memory_pool_byte_size: tuple[tuple[int, int], ...] = ()
    cuda_virtual_address_size: tuple[tuple[int, int], ...] = ()
    min_supported_compute_capability: float = 6.0
    buffer_manager_thread_count: int = 0
    host_policy: tuple[Setting, ...] = ()
    #: (GPU, fraction of its memory)
    model_load_gpu_limit: tuple[tuple[int, float], ...] = ()

    #: Options that add-ons declare, by field.
    of_add_ons: Mapping[str, Any] = field(
        default_factory=lambda: {each.field: each.default for each in DECLARED},
        hash=False,
    )
    #: Warnings for the operator, one line each, in the order of the command line.
    warnings: tuple[str, ...] = ()
    #: Sources of the options that were given, by field: the command line, the environment or a
    #: file.
    origins: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    def value(self, field: str) -> Any:
        """Return an option by its field; None if its add-on is not installed."""
        return getattr(self, field) if hasattr(self, field) else self.of_add_ons.get(field)

    def backend_settings(self, backend: str) -> dict[str, str]:
        """Return a backend's settings: its own over the global ones, the last over the first."""
        return {
            setting.key: setting.value
            for name in ("", backend)
            for setting in self.backend_config
            if setting.name == name
        }

    def backend_command_line(self, backend: str) -> dict[str, str]:
        """Return the settings that Triton gives a backend: the general ones, then its own."""
        return {
            "auto-complete-config": "false" if self.strict_model_config else "true",
            "backend-directory": self.backend_directory,
            "min-compute-capability": f"{self.min_supported_compute_capability:.6f}",
            "default-max-batch-size": "4",
            **self.backend_settings(backend),
        }


#: The default of each option by its field.
DEFAULTS: dict[str, Any] = {
    **{each.name: each.default for each in fields(Options) if each.name != "of_add_ons"},
    **{option.field: option.default for option in DECLARED},
}
