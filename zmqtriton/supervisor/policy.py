"""What the options mean for the core, which reads none of them itself."""

from __future__ import annotations

import os
from dataclasses import dataclass

from zmqtriton.options import Options
from zmqtriton.storage.places import is_remote
from zmqtriton.supervisor.python_settings import PythonSettings


@dataclass(frozen=True)
class Policy:
    """What the options say about loading and stopping."""

    #: none, poll or explicit
    control_mode: str = "none"
    #: Names, or "*" alone; read in mode explicit.
    startup_models: tuple[str, ...] = ()
    poll_s: float = 0.0
    load_slots: int = 4
    #: A load that takes longer does not hold up others.
    load_patience_s: float = 30.0
    load_retries: int = 0
    exit_on_error: bool = True
    exit_timeout_s: int = 30
    early_liveness: bool = False
    allow_client_shm: bool = False
    #: How often the service manager hears that the server lives; None: there is none.
    beat_s: float | None = None
    #: Their paths, for whoever asks.
    repositories: tuple[str, ...] = ()
    #: Where copies of models in object stores are kept.
    storage_directory: str = ""
    #: Frontends' roles, one for each process.
    roles: tuple[str, ...] = ()
    #: Stubs may be forked by a process that has loaded what they need.
    has_nursery: bool = False
    #: Requests have models loaded that are not.
    load_on_demand: bool = False
    #: Such a model goes when it was idle for so long; 0: it stays.
    idle_after_s: float = 0.0
    #: What the processes of models may take when such a model is loaded; 0: what there is.
    memory_budget_bytes: int = 0


def policy(options: Options) -> Policy:
    """What the options mean for the core."""
    cores = len(os.sched_getaffinity(0))
    roles = ["http-arbiter"] if options.allow_http else []
    if options.allow_grpc:
        roles += ["grpc"] * (options.grpc_processes or max(1, cores // 2))
    if options.allow_metrics:
        roles.append("metrics")
    if options.trace.may_be_on:
        roles.append("tracer")
    python = PythonSettings.read(options.backend_settings("python"))
    return Policy(
        control_mode=options.model_control_mode,
        startup_models=options.load_model,
        poll_s=float(options.repository_poll_secs),
        load_slots=options.model_load_thread_count,
        load_patience_s=python.patience_s,
        load_retries=options.model_load_retry_count,
        exit_on_error=options.exit_on_error,
        exit_timeout_s=options.exit_timeout_secs,
        early_liveness=options.early_liveness,
        allow_client_shm=options.allow_client_shm,
        repositories=tuple(
            path if is_remote(path) else os.path.abspath(path) for path in options.model_repository
        ),
        roles=tuple(roles),
        has_nursery=True,
        load_on_demand=options.load_on_demand,
        idle_after_s=options.unload_idle_after,
        memory_budget_bytes=options.model_memory_budget,
    )
