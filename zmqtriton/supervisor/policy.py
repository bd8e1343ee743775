"""The core's policy: the options' decisions, as plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """The options for loading and stopping."""

    #: none, poll or explicit
    control_mode: str = "none"
    #: names, or "*" alone; read in mode explicit
    startup_models: tuple[str, ...] = ()
    poll_s: float = 0.0
    #: Models are loaded again when their files change.
    reload: bool = False
    load_slots: int = 4
    #: A load that takes longer does not hold up others.
    load_slot_timeout_s: float = 30.0
    load_retries: int = 0
    exit_on_error: bool = True
    #: "": the only model; None: Vertex AI's endpoints are not served.
    vertex_ai_default_model: str | None = None
    exit_timeout_s: int = 30
    #: How long the server is not ready before it stops.
    exit_drain_s: float = 0.0
    early_liveness: bool = False
    #: Other servers may have the ports of this one.
    shares_ports: bool = False
    #: Each client of gRPC is told to go on its own, when its sequences have ended.
    tells_each_grpc_client: bool = True
    allow_client_shm: bool = False
    #: How often the service manager is told that the server lives; None without one.
    watchdog_interval_s: float | None = None
    #: Their paths, for the answers that show them.
    repositories: tuple[str, ...] = ()
    #: Holds copies of models in object stores.
    storage_directory: str = ""
    #: One role for each frontend process.
    frontend_roles: tuple[str, ...] = ()
    #: Stubs may be forked by a process that has loaded what they need.
    has_fork_server: bool = False
    #: Models are loaded when the server that this one replaces has ended; requests wait for them.
    one_by_one: bool = False
    #: Models are loaded when requests ask for them.
    load_on_demand: bool = False
    #: Such a model is unloaded after this idle time; 0 is never.
    unload_idle_after_s: float = 0.0
    #: What models' processes may take when such a model is loaded; 0 is what there is.
    memory_budget_bytes: int = 0
    #: The same of GPUs, by number.
    gpu_memory_budgets: tuple[tuple[int, int], ...] = ()
