"""The settings that every process of the server gets."""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import time
from collections.abc import Mapping
from typing import Any

from zmqtriton import addons
from zmqtriton.options import Options
from zmqtriton.options.clouds import endpoint_settings
from zmqtriton.supervisor.machine import listeners, tables
from zmqtriton.supervisor.machine.capacity import available_bytes, segment_budget_bytes
from zmqtriton.supervisor.machine.directories.runtime import RuntimeDirectory
from zmqtriton.supervisor.machine.python_settings import PythonSettings
from zmqtriton_floor import TRITON_VERSION, __version__

#: The share of the memory available at start that incomplete requests may have in the frontends of
#: each protocol, outside of segments, and as much that unread answers may keep; while it is read
#: and placed, a body is in memory several times.
_CLIENT_SHARE = 1 / 8
_LEAST_CLIENT_BYTES = 16 << 20

#: The number of requests that a model's batcher waits for before it begins: sizes of batches are
#: then the same each time.
_HOLD_BACK = "TRITONSERVER_DELAY_SCHEDULER"

_log = logging.getLogger(__name__)


def process_settings(
    options: Options,
    directory: RuntimeDirectory,
    storage: RuntimeDirectory | None,
    sockets: Mapping[str, listeners.BoundSocket],
) -> dict[str, Any]:
    """Return all options, with the bound ports and the sizes that this machine allows."""
    settings = dataclasses.asdict(options)
    settings["runtime_directory"] = str(directory.path)
    settings["storage_directory"] = str(storage.path) if storage else ""
    settings["server_version"] = TRITON_VERSION
    settings["zmqtriton_version"] = __version__
    settings["held_requests"] = _held_requests(os.environ.get(_HOLD_BACK, ""))
    settings["started_at"] = int(time.time())
    settings["server_extensions"] = tables.extensions(options)
    python = PythonSettings.from_backend_config(options.backend_settings("python"))
    settings["segment_bytes"] = python.segment_bytes
    settings["segment_step_bytes"] = python.segment_step_bytes
    sizes = [int(found.value) for found in options.cache_config if found.key == "size"]
    settings["cache_bytes"] = sizes[-1] if sizes else 0
    # The rest is for tensors in transit: a process without room for an answer cannot answer.
    settings["cache_shared_bytes"] = segment_budget_bytes() // 4
    settings["client_bytes"] = options.client_memory_byte_size or max(
        _LEAST_CLIENT_BYTES, int(available_bytes() * _CLIENT_SHARE)
    )
    settings["passed_sockets"] = [role for role, held in sockets.items() if held.is_passed]
    settings["metrics_address"] = options.metrics_address or options.http_address
    settings["http_addons"] = list(addons.rows(addons.HTTP).values())
    settings["clouds"] = endpoint_settings(os.environ)
    for role, name in (
        (listeners.HTTP, "http_port"),
        (listeners.SAGEMAKER, "sagemaker_port"),
        (listeners.VERTEX_AI, "vertex_ai_port"),
        (listeners.GRPC, "grpc_port"),
        (listeners.METRICS, "metrics_port"),
        (listeners.AGENT_CHECK, "agent_check_port"),
    ):
        if role in sockets:
            settings[name] = sockets[role].port
    # the option may be a name, and who can reach the server depends on what that means
    bound = sockets.get(listeners.HTTP)
    settings["http_bound_address"] = bound.address if bound else options.http_address
    return settings


def _held_requests(text: str) -> int:
    """Return the number at the beginning of a text, as Triton reads it; 0 if there is none."""
    found = re.match(r"\s*\+?(\d{1,9})", text)
    held = int(found[1]) if found else 0
    if held:
        _log.warning("%s: batchers wait for %s requests before they begin", _HOLD_BACK, held)
    return held
