"""The facts that are judged. None is what could not be found out, and nothing is said of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Limits:
    """The limits of the server's process, or of the shell; infinite if there is none."""

    descriptors: float = 65536
    processes: float = math.inf
    locked_bytes: float = math.inf
    #: The owner is root, whom some limits do not bind.
    is_root: bool = False


@dataclass(frozen=True)
class ProcessUse:
    """A process of the server."""

    name: str
    pid: int
    descriptors: int | None = None
    swapped_bytes: int = 0
    #: It waits to be reaped, or is stopped.
    state: str = "S"


@dataclass(frozen=True)
class Memory:
    """The memory of the machine and of the control group, with its ancestors."""

    total_bytes: int = 16 << 30
    available_bytes: int = 8 << 30
    group_limit_bytes: int | None = None
    #: Without what the kernel can drop.
    group_used_bytes: int = 0
    #: How many processes the kernel has killed in the group.
    oom_kills: int = 0
    #: vm.overcommit_memory
    overcommit: int = 0


@dataclass(frozen=True)
class Cores:
    #: Those that the process may use.
    count: int = 4
    #: The share of time that the control group allows, in cores.
    quota: float | None = None
    instances: int = 0


@dataclass(frozen=True)
class Place:
    """A directory and its file system."""

    path: str
    total_bytes: int = 1 << 40
    free_bytes: int = 1 << 39
    is_writable: bool = True
    can_execute: bool = True


@dataclass(frozen=True)
class SharedMemory:
    """The file system at /dev/shm."""

    total_bytes: int = 8 << 30
    free_bytes: int = 8 << 30
    #: Files that a tritonserver has left there, and their bytes.
    leftovers: tuple[str, ...] = ()
    leftover_bytes: int = 0


@dataclass(frozen=True)
class Port:
    """A port that a server would open."""

    option: str
    number: int
    #: Why it cannot be bound; "" if it can.
    problem: str = ""
    #: `process 12 (nginx)`, if it is known.
    holder: str = ""
    is_forbidden: bool = False


@dataclass(frozen=True)
class Interpreter:
    """This Python."""

    path: str = "/usr/bin/python3"
    is_optimized: bool = True
    is_debug_build: bool = False
    encoding: str = "utf-8"


@dataclass(frozen=True)
class ModelPython:
    """The environment that a model asks for."""

    model: str
    #: Why it has none; "" if it has.
    problem: str = ""
    #: It is built from this file.
    requirements: str = ""


@dataclass(frozen=True)
class Certificate:
    option: str
    path: str
    key_path: str = ""
    #: Why both cannot be used; "" if they can.
    problem: str = ""
    begins_s: float = 0.0
    ends_s: float = math.inf
    #: Others than the owner and its group may read the key.
    is_key_public: bool = False


@dataclass(frozen=True)
class SecretFile:
    option: str
    path: str
    problem: str = ""
    is_public: bool = False


@dataclass(frozen=True)
class RuntimeDirectory:
    """A directory that a server has made, or should use."""

    path: str
    #: The server that it belonged to is dead.
    is_stale: bool = False
    #: It is alive and says nothing.
    is_silent: bool = False
    #: It is another user's.
    is_forbidden: bool = False
    #: Why a server cannot use it; "" if it can.
    problem: str = ""


@dataclass(frozen=True)
class Unit:
    """The settings of a systemd unit."""

    path: str
    stop_timeout_s: float | None = None
    descriptors: float | None = None
    kill_mode: str = ""
    #: How its last run ended, if it is down because of that.
    failure: str = ""
    #: Its command names no program.
    missing_program: str = ""


@dataclass(frozen=True)
class Gpu:
    has_devices: bool = False
    #: Device files that this user may not open.
    forbidden_devices: tuple[str, ...] = ()
    #: Why the driver's library does not answer; "" if it does.
    nvml_problem: str = ""
    count: int = 0
    #: The version of cupy; "" if there is none.
    cupy: str = ""


@dataclass(frozen=True)
class Kernel:
    release: str = ""
    libc: str = ""
    #: By name, the calls that fail, with the reason.
    failing_calls: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Package:
    """A library that the server needs."""

    name: str
    requirement: str
    #: "" if it is missing.
    version: str
    is_accepted: bool = True


@dataclass(frozen=True)
class Installation:
    version: str = ""
    #: As the package's metadata has it.
    recorded_version: str = ""
    #: The programs `zmqtriton` on PATH that are not beside this one.
    other_programs: tuple[str, ...] = ()


@dataclass(frozen=True)
class StubUser:
    name: str
    #: Why models cannot run as this user; "" if they can.
    problem: str = ""


@dataclass(frozen=True)
class RunningServer:
    id: str
    pid: int
    version: str
    #: Model versions that should serve and do not.
    troubled: tuple[str, ...] = ()
    processes: Sequence[ProcessUse] = ()


@dataclass(frozen=True)
class Facts:
    """Everything that is judged. The defaults are a healthy machine without a server."""

    now_s: float = 1.8e9
    #: When this program's files were made.
    installed_s: float = 0.0
    #: The options of the server, by name; those with which it would be started if none runs.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Why there are none; "" if there are.
    options_problem: str = ""
    server: RunningServer | None = None
    #: What could not be read, with the reason.
    unread: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = Limits()
    memory: Memory = Memory()
    cores: Cores = Cores()
    shared_memory: SharedMemory | None = None
    environment_cache: Place | None = None
    log_directory: Place | None = None
    temporary: Place | None = None
    #: Repositories that cannot be read, with the reason.
    repository_problems: Mapping[str, str] = field(default_factory=dict)
    ports: Sequence[Port] = ()
    interpreter: Interpreter = Interpreter()
    model_pythons: Sequence[ModelPython] = ()
    has_uv: bool = True
    certificates: Sequence[Certificate] = ()
    secret_files: Sequence[SecretFile] = ()
    runtime_directories: Sequence[RuntimeDirectory] = ()
    units: Sequence[Unit] = ()
    gpu: Gpu = Gpu()
    kernel: Kernel = Kernel()
    packages: Sequence[Package] = ()
    installation: Installation = Installation()
    stub_users: Sequence[StubUser] = ()
    #: Variables that send requests for this machine to a proxy.
    proxies: Sequence[str] = ()
    #: "" if it can be written to, else why not.
    home_problem: str = ""
