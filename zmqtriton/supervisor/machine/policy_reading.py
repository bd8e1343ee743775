"""Derives the core's policy from the options and this machine's cores."""

from __future__ import annotations

import os

from zmqtriton import addons
from zmqtriton.options import Options
from zmqtriton.store_places import is_remote
from zmqtriton.supervisor.machine.directories.runtime import services_of
from zmqtriton.supervisor.machine.python_settings import PythonSettings
from zmqtriton.supervisor.server_processes.roles import ADD_ON
from zmqtriton.supervisor.settings import Policy


def read_policy(options: Options) -> Policy:
    """Return the policy of a server that is started with these options on this machine."""
    cores = len(os.sched_getaffinity(0))
    has_http = options.allow_http or options.allow_sagemaker or options.allow_vertex_ai
    roles = ["http-arbiter"] if has_http else []
    if options.allow_grpc:
        roles += ["grpc"] * (options.grpc_processes or max(1, cores // 2))
    roles += services_of(options)
    if options.allow_metrics or options.agent_check_port is not None:
        roles.append("metrics")
    if options.trace.can_trace:
        roles.append("tracer")
    if options.announce:
        roles.append("announcer")
    roles += [f"{ADD_ON}{name}" for name in addons.rows_of_others(addons.PROCESSES)]
    python = PythonSettings.from_backend_config(options.backend_settings("python"))
    return Policy(
        control_mode=options.model_control_mode,
        startup_models=options.load_model,
        poll_s=float(options.repository_poll_secs),
        reload=options.reload,
        load_slots=options.model_load_thread_count,
        load_slot_timeout_s=python.load_slot_timeout_s,
        load_retries=options.model_load_retry_count,
        exit_on_error=options.exit_on_error,
        vertex_ai_default_model=(
            options.vertex_ai_default_model if options.allow_vertex_ai else None
        ),
        exit_timeout_s=options.exit_timeout_secs,
        exit_drain_s=options.exit_drain_secs,
        # a server that takes over has no clients before its models serve
        early_liveness=options.early_liveness and not options.take_over,
        shares_ports=options.reuse_http_port or options.reuse_grpc_port,
        tells_each_grpc_client=not options.allow_grpc or options.grpc_transport == "native",
        allow_client_shm=options.allow_client_shm,
        repositories=tuple(
            path if is_remote(path) else os.path.abspath(path) for path in options.model_repository
        ),
        frontend_roles=tuple(roles),
        has_fork_server=True,
        load_on_demand=options.load_on_demand,
        one_by_one=options.one_by_one,
        unload_idle_after_s=options.unload_idle_after,
        memory_budget_bytes=options.model_memory_budget,
        gpu_memory_budgets=options.gpu_memory_budget,
    )
