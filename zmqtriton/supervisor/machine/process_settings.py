"""The settings of all processes, and the core's policy, made of the options and this machine.

The bound sockets, and the machine's memory and cores, decide where the options do not.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from zmqtriton import addons
from zmqtriton.host.capacity import available_bytes, segment_budget_bytes
from zmqtriton.logs.log import log_options
from zmqtriton.options import Options
from zmqtriton.reading.python_settings import PythonSettings
from zmqtriton.roles import SERVING_ROLES, frontend_roles, services_of
from zmqtriton.start import listeners, tables
from zmqtriton.start.secrets import access_by_role, cache_secrets
from zmqtriton.store_places import is_remote
from zmqtriton.supervisor.machine.directories.runtime import RuntimeDirectory
from zmqtriton.supervisor.settings import Policy, Settings
from zmqtriton_floor import TRITON_VERSION, __version__
from zmqtriton_floor.metrics import config_of
from zmqtriton_floor.settings import frontends
from zmqtriton_floor.settings.broker import (
    BrokerSettings,
    Cache,
    OnDemand,
    RateLimits,
    RequestLimits,
)
from zmqtriton_floor.settings.frontends import FrontendSettings
from zmqtriton_floor.settings.offers import Offers
from zmqtriton_floor.settings.stub import Memory, StubSettings
from zmqtriton_floor.settings.tracing import TracerSettings

#: Share of the memory available at the start that incomplete requests and unread responses together
#: may have in the frontends of each protocol, outside of segments. A body is in memory several
#: times while it is read and placed.
_CLIENT_SHARE = 1 / 8
_LEAST_CLIENT_BYTES = 16 << 20

#: Maximum wait of a request, in seconds, for a model that moves from another server.
_MOVE_WITHIN_S = 3600.0
#: The number of requests that a model's batcher waits for before it begins: sizes of batches are
#: then the same each time.
_HOLD_BACK = "TRITONSERVER_DELAY_SCHEDULER"
#: Any value but 0 has all processes look for tensors that are read after their block is free, by a
#: tool that only the sources of the server have.
_POISON = "ZT_POISON"
_POISON_TOOL = Path(__file__).parents[3] / "tools/poison.py"

_log = logging.getLogger(__name__)


class Machine(NamedTuple):
    """Facts of this machine that are settings in addition to the options."""

    runtime_directory: str = ""
    named_directory: str = ""
    storage_directory: str = ""
    started_at: int = 0
    available_bytes: int = 0
    segment_budget_bytes: int = 0
    #: Ports of bound sockets, by the field of the options.
    ports: Mapping[str, int] = {}
    passed_sockets: tuple[str, ...] = ()
    #: "": as the option calls it.
    http_bound_address: str = ""
    environment: Mapping[str, str] = {}
    offers: Offers = Offers()


def process_settings(
    options: Options,
    directory: RuntimeDirectory,
    storage: RuntimeDirectory | None,
    sockets: Mapping[str, listeners.BoundSocket],
) -> Settings:
    """Return the settings of a server on this machine."""
    http = sockets.get(listeners.HTTP)
    machine = Machine(
        runtime_directory=str(directory.path),
        named_directory=str(directory.named or ""),
        storage_directory=str(storage.path) if storage else "",
        started_at=int(time.time()),
        available_bytes=available_bytes(),
        segment_budget_bytes=segment_budget_bytes(),
        ports=bound_ports(sockets),
        passed_sockets=tuple(role for role, held in sockets.items() if held.is_passed),
        http_bound_address=http.address if http else "",
        environment=os.environ,
        offers=addons.offers_in_use(options.value),
    )
    return settings_of(options, machine)


def bound_ports(sockets: Mapping[str, listeners.BoundSocket]) -> dict[str, int]:
    """Return the ports of the sockets, by field of the options."""
    return {
        name: sockets[role].port
        for role, name in listeners.port_fields().items()
        if role in sockets
    }


def settings_of(options: Options, machine: Machine) -> Settings:
    """Return the settings of a server with these options; the only place that makes them."""
    log = log_options(options)
    metrics = config_of((setting.key, setting.value) for setting in options.metrics_config)
    on_demand = OnDemand(options.load_on_demand, options.load_on_demand_timeout)
    if options.one_by_one:
        on_demand = OnDemand(True, max(on_demand.timeout_s, _MOVE_WITHIN_S))
    memory = _memory(options, machine)
    trace = options.trace
    broker = BrokerSettings(
        log=log,
        metrics=metrics,
        cache=_cache(options, machine),
        limits=RequestLimits(options.max_requests, options.max_model_requests),
        rate=RateLimits(options.rate_limit == "execution_count", options.rate_limit_resource),
        on_demand=on_demand,
        held_requests=_held_requests(machine.environment.get(_HOLD_BACK, "")),
        storage_directory=machine.storage_directory,
        named_directory=machine.named_directory,
        serving_roles=tuple(sorted(SERVING_ROLES)),
        offers=machine.offers,
    )
    return Settings(
        stub=StubSettings(log, memory, metrics, trace.mode),
        broker=broker,
        tracer=TracerSettings(log, trace.mode, trace.file, trace.opentelemetry),
        frontend=_frontend(options, machine, memory, broker),
        access=access_by_role(options),
        told_alone=_told_alone(options, machine.ports),
        cache_secrets=cache_secrets() if options.cache_config else {},
        trace=trace,
        log_file=options.log_file,
        local_sockets=tuple(n for n, s in services_of(options).items() if s.has_socket),
        model_load_gpu_limit=options.model_load_gpu_limit,
    )


def _memory(options: Options, machine: Machine) -> Memory:
    python = PythonSettings.from_backend_config(options.backend_settings("python"))
    client_bytes = options.client_memory_byte_size or max(
        _LEAST_CLIENT_BYTES, int(machine.available_bytes * _CLIENT_SHARE)
    )
    return Memory(
        python.segment_bytes,
        python.segment_step_bytes,
        client_bytes,
        poison=_poison(machine.environment.get(_POISON, "")),
    )


def _cache(options: Options, machine: Machine) -> Cache:
    sizes = [int(setting.value) for setting in options.cache_config if setting.key == "size"]
    return Cache(
        bytes=sizes[-1] if sizes else 0,
        # The rest is for tensors in transit: a process without room for an answer cannot answer.
        shared_bytes=machine.segment_budget_bytes // 4,
    )


def _frontend(
    options: Options,
    machine: Machine,
    memory: Memory,
    broker: BrokerSettings,
) -> FrontendSettings:
    return FrontendSettings(
        log=broker.log,
        memory=memory,
        metrics=broker.metrics,
        server=frontends.ServerFacts(
            id=options.id,
            server_version=TRITON_VERSION,
            zmqtriton_version=__version__,
            commit=tables.commit(),
            extensions=tuple(tables.extensions(options)),
            started_at=machine.started_at,
            runtime_directory=machine.runtime_directory,
            exit_timeout_s=options.exit_timeout_secs,
            passed_sockets=machine.passed_sockets,
            stub_user=options.stub_user,
            state_directory=options.state_directory,
            add_ons=_told_to_all(options, machine.ports),
        ),
        models=frontends.Models(
            options.model_control_mode,
            options.strict_readiness,
            broker.on_demand,
        ),
        http=_http(options, machine),
        grpc=_grpc(options, machine),
        metrics_service=frontends.MetricsService(
            is_served=options.allow_metrics,
            address=options.metrics_address or options.http_address,
            port=machine.ports.get("metrics_port", options.metrics_port),
            interval_ms=options.metrics_interval_ms,
            allow_cpu_metrics=options.allow_cpu_metrics,
            allow_gpu_metrics=options.allow_gpu_metrics,
        ),
        ports=tuple(
            frontends.AddOnPort(each.name, each.title, each.serve) for each in addons.ports()
        ),
        offers=broker.offers,
    )


def _http(options: Options, machine: Machine) -> frontends.Http:
    return frontends.Http(
        is_served=options.allow_http,
        address=options.http_address,
        # the option may be a name, and who can reach the server depends on what that means
        bound_address=machine.http_bound_address or options.http_address,
        port=machine.ports.get("http_port", options.http_port),
        reuse_port=options.reuse_http_port,
        use_ssl=options.http_use_ssl,
        header_forward_pattern=options.http_header_forward_pattern,
        workers=options.http_workers,
        max_input_size=options.http_max_input_size,
        allowed_hosts=options.http_allowed_host,
    )


def _grpc(options: Options, machine: Machine) -> frontends.Grpc:
    return frontends.Grpc(
        is_served=options.allow_grpc,
        address=options.grpc_address,
        port=machine.ports.get("grpc_port", options.grpc_port),
        reuse_port=options.reuse_grpc_port,
        use_ssl=options.grpc_use_ssl,
        header_forward_pattern=options.grpc_header_forward_pattern,
        processes=options.grpc_processes,
        transport=options.grpc_transport,
        max_input_size=options.grpc_max_input_size,
        reflection=options.grpc_reflection,
        infer_response_compression_level=options.grpc_infer_response_compression_level,
        keepalive_time=options.grpc_keepalive_time,
        keepalive_timeout=options.grpc_keepalive_timeout,
        keepalive_permit_without_calls=options.grpc_keepalive_permit_without_calls,
        http2_max_pings_without_data=options.grpc_http2_max_pings_without_data,
        http2_min_recv_ping_interval_without_data=(
            options.grpc_http2_min_recv_ping_interval_without_data
        ),
        http2_max_ping_strikes=options.grpc_http2_max_ping_strikes,
        max_connection_age=options.grpc_max_connection_age,
        max_connection_age_grace=options.grpc_max_connection_age_grace,
    )


def _poison(text: str) -> str:
    """Return the file of the tool that fills free memory, if this value of ZT_POISON enables it."""
    if text in ("", "0"):
        return ""
    if not _POISON_TOOL.exists():
        _log.warning("%s has no effect: this server has no %s", _POISON, _POISON_TOOL)
        return ""
    _log.info("%s: tensors are looked for that are read after their block is free", _POISON)
    return str(_POISON_TOOL)


def _held_requests(text: str) -> int:
    """Return the number at the beginning of a text, as Triton reads it; 0 without one."""
    match = re.match(r"\s*\+?(\d{1,9})", text)
    held = int(match[1]) if match else 0
    if held:
        _log.warning("%s: batchers wait for %s requests before they begin", _HOLD_BACK, held)
    return held


def _told_to_all(options: Options, ports: Mapping[str, int]) -> tuple[tuple[str, str], ...]:
    """Return the options of each add-on for all frontends, with the ports as bound."""
    return tuple(
        (name, _document(options, ports, [o for o in declared if not o.declared.is_secret]))
        for name, declared in addons.options().items()
        if declared
    )


def _told_alone(options: Options, ports: Mapping[str, int]) -> dict[str, tuple[str, str]]:
    """Return the options of add-ons with secret ones, by the role of the process that has them."""
    processes = {name: found.declared.process for name, found in addons.add_ons().items()}
    return {
        process.name or name: (name, _document(options, ports, declared))
        for name, declared in addons.options().items()
        if (process := processes[name]) is not None
        and any(each.declared.is_secret for each in declared)
    }


def _document(
    options: Options, ports: Mapping[str, int], declared: Iterable[addons.DeclaredOption]
) -> str:
    return json.dumps({o.field: ports.get(o.field, options.value(o.field)) for o in declared})


def read_policy(options: Options) -> Policy:
    """Return the policy of a server that is started with these options on this machine."""
    python = PythonSettings.from_backend_config(options.backend_settings("python"))
    return Policy(
        control_mode=options.model_control_mode,
        startup_models=options.load_model,
        poll_s=float(options.repository_poll_secs),
        load_slots=options.model_load_thread_count,
        load_slot_timeout_s=python.load_slot_timeout_s,
        load_retries=options.model_load_retry_count,
        exit_on_error=options.exit_on_error,
        exit_timeout_s=options.exit_timeout_secs,
        # a server that takes over has no clients before its models serve
        early_liveness=options.early_liveness and not options.take_over,
        shares_ports=options.reuse_http_port or options.reuse_grpc_port,
        tells_each_grpc_client=not options.allow_grpc or options.grpc_transport == "native",
        allow_client_shm=options.allow_client_shm,
        repositories=tuple(
            path if is_remote(path) else os.path.abspath(path) for path in options.model_repository
        ),
        frontend_roles=tuple(frontend_roles(options)),
        has_fork_server=True,
        host_policies=frozenset(setting.name for setting in options.host_policy),
        load_on_demand=options.load_on_demand,
        one_by_one=options.one_by_one,
        of_add_ons=options.of_add_ons,
    )
