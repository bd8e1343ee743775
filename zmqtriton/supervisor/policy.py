"""The policy of the core: what the options decide, as plain values."""

from __future__ import annotations

from dataclasses import dataclass


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
    load_slot_timeout_s: float = 30.0
    load_retries: int = 0
    exit_on_error: bool = True
    exit_timeout_s: int = 30
    early_liveness: bool = False
    allow_client_shm: bool = False
    #: How often the service manager hears that the server lives; None: there is none.
    watchdog_interval_s: float | None = None
    #: Their paths, for whoever asks.
    repositories: tuple[str, ...] = ()
    #: Where copies of models in object stores are kept.
    storage_directory: str = ""
    #: Frontends' roles, one for each process.
    frontend_roles: tuple[str, ...] = ()
    #: Stubs may be forked by a process that has loaded what they need.
    has_fork_server: bool = False
    #: Requests have models loaded that are not.
    load_on_demand: bool = False
    #: Such a model goes when it was idle for so long; 0: it stays.
    unload_idle_after_s: float = 0.0
    #: What the processes of models may take when such a model is loaded; 0: what there is.
    memory_budget_bytes: int = 0
