"""The tables that are printed once all models were tried."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from io import TextIOBase

from zmqtriton import addons, console
from zmqtriton.commit import commit as commit
from zmqtriton.commit import full_version
from zmqtriton.options import Options
from zmqtriton.reading.model_reading import STUB_DIRECTORY
from zmqtriton.reading.python_settings import PythonSettings
from zmqtriton_floor import TRITON_VERSION
from zmqtriton_floor.settings.offers import Hook

_log = logging.getLogger(__name__)

#: The extensions of the protocol, in Triton's order; frontends get them, so that they all agree.
EXTENSIONS = (
    "classification",
    "sequence",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "system_shared_memory",
    "cuda_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
)


#: A word in the list `extensions` of the server's metadata.
EXTENSION = Hook[str]("protocol.extension")


def extensions(options: Options) -> list[str]:
    """Return the extensions of the protocol that the server has with these options."""
    of_add_ons = EXTENSION.words_in(addons.offers_in_use(options.value))
    return [*EXTENSIONS, f"zmqtriton({full_version()})", *of_add_ons]


def startup_tables(
    options: Options,
    models: Sequence[tuple[str, str, str]],
    backends: Sequence[tuple[str, str]],
    gpus: Sequence[int],
    stream: TextIOBase,
) -> Iterator[str]:
    """Make the tables; `backends` are those beside Python's, each with its file."""
    width = _width(stream)
    rows = [
        console.BackendRow(name, path, console.backend_config(options, name))
        for name, path in (("python", str(STUB_DIRECTORY)), *backends)
    ]
    yield console.repository_agent_table(width=width)
    yield console.backend_table(rows, width)
    yield console.model_table([console.ModelRow(*row) for row in models], width)
    yield console.option_table(
        options, version=TRITON_VERSION, extensions=extensions(options), gpus=gpus, width=width
    )


#: Names of RPCs, in Triton's order.
_GRPC_CALLS = (
    "Check",
    "ServerLive",
    "ServerReady",
    "ModelReady",
    "ServerMetadata",
    "ModelMetadata",
    "ModelConfig",
    "SystemSharedMemoryStatus",
    "SystemSharedMemoryRegister",
    "SystemSharedMemoryUnregister",
    "CudaSharedMemoryStatus",
    "CudaSharedMemoryRegister",
    "CudaSharedMemoryUnregister",
    "RepositoryIndex",
    "RepositoryModelLoad",
    "RepositoryModelUnload",
    "ModelStatistics",
    "Trace",
    "Logging",
)


def log_grpc_settings(options: Options, stream: TextIOBase) -> None:
    """Log the settings of gRPC as verbose lines."""
    if options.allow_grpc:
        _log.debug("", extra={"raw": console.keepalive_table(options, _width(stream))})
        for call in _GRPC_CALLS:
            _log.debug("Ready for RPC '%s', 0", call)


#: Version of the backend interface of Triton's Python backend, for the log.
_BACKEND_API_VERSION = "1.19"


def log_start(options: Options) -> None:
    """Log the version, and as verbose lines caches and the settings of the Python backend."""
    _log.info("zmqtriton %s", full_version())
    _log.debug("Create CacheManager with cache_dir: '%s'", options.cache_directory)
    _log.debug("'python' TRITONBACKEND API version: %s", _BACKEND_API_VERSION)
    _log.debug("backend configuration:\n%s", console.backend_config(options, "python"))
    settings = PythonSettings.from_backend_config(options.backend_settings("python"))
    _log.debug(
        "Shared memory configuration is shm-default-byte-size=%d,shm-growth-byte-size=%d,"
        "stub-timeout-seconds=%d",
        settings.segment_bytes,
        settings.segment_step_bytes,
        settings.load_slot_timeout_s,
    )


def _width(stream: TextIOBase) -> int | None:
    """Return the width of the terminal; None without one."""
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return None


def print_to_stderr(text: str) -> None:
    """Print for the server's operator, wherever log records go."""
    sys.stderr.write(f"{text}\n")
