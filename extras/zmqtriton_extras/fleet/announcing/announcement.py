"""The announcement of a server: one JSON object, described in docs/fleet.md. Does no I/O."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from zmqtriton.sdk.frontend import Gateway, ModelVersion
from zmqtriton_extras.fleet import FleetOptions

#: The number of this format; a reader refuses those that it does not know.
FORMAT = 1

STARTING = "starting"  # clients cannot connect yet
READY = "ready"  # as /v2/health/ready says
UNREADY = "unready"  # a model that should serve cannot
DRAINING = "draining"  # it answers, and wants no more
STOPPING = "stopping"  # what was begun goes on, and nothing new is taken
ENDED = "ended"

#: Listeners on these take connections to any address of the machine.
_WILDCARDS = frozenset({"", "0.0.0.0", "::"})


class Process(NamedTuple):
    """The marks of one run of a server, which no other run has."""

    host: str
    pid: int
    started_s: float


def describe_server(
    gateway: Gateway, process: Process, find_host: Callable[[], str]
) -> dict[str, Any]:
    """Return the part of an announcement without models; `find_host` returns the machine's name."""
    settings = gateway.settings
    options = settings.options_of("fleet", FleetOptions)
    document = {
        "format": FORMAT,
        "id": settings.server.id,
        **process._asdict(),
        "version": settings.server.zmqtriton_version,
        "interval_s": options.announce_interval_secs,
        "addresses": _addresses(gateway, options.announce_host, find_host),
    }
    services = ("http", settings.http.use_ssl), ("grpc", settings.grpc.use_ssl)
    encrypted = [name for name, is_encrypted in services if is_encrypted]
    return {**document, "tls": [name for name in encrypted if name in document["addresses"]]}


def _addresses(gateway: Gateway, named: str, find_host: Callable[[], str]) -> dict[str, str]:
    settings = gateway.settings
    http, grpc, metrics = settings.http, settings.grpc, settings.metrics_service
    services: dict[str, tuple[str, int]] = {}
    if http.is_served:
        services["http"] = http.address, http.port
    if grpc.is_served:
        services["grpc"] = grpc.address, grpc.port
    if metrics.is_served:
        services["metrics"] = metrics.address, metrics.port
    if port := settings.option("agent_check_port"):
        services["agent_check"] = metrics.address, port
    addresses = {}
    for name, (address, port) in services.items():
        host = named or address
        host = find_host() if host in _WILDCARDS else host
        addresses[name] = f"{_bracket_ipv6(host)}:{port}"
    return addresses


def _bracket_ipv6(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def server_state(*, is_open: bool, is_draining: bool, is_stopping: bool, is_ready: bool) -> str:
    if is_stopping:
        return STOPPING
    if not is_open:
        return STARTING
    if is_draining:
        return DRAINING
    return READY if is_ready else UNREADY


def describe_models(
    models: Mapping[str, Iterable[ModelVersion]], is_ready: Callable[[ModelVersion], bool]
) -> list[dict[str, Any]]:
    """Return an entry for each version, and one for each model that cannot be read."""
    entries: list[dict[str, Any]] = []
    for name, versions in models.items():
        rows = [_describe_version(version, is_ready(version)) for version in versions]
        entries += rows or [{"name": name, "state": "UNAVAILABLE", "ready": False}]
    return entries


def _describe_version(version: ModelVersion, is_ready: bool) -> dict[str, Any]:
    entry = {"name": version.name, "version": str(version.version), "state": version.state}
    reason = version.reason_text
    if version.is_draining and version.is_loaded:
        entry["state"], reason = "UNAVAILABLE", "draining"
    return {
        **entry,
        **({"reason": reason} if reason else {}),
        "ready": is_ready,
        "instances": version.ready_instances,
    }


class Stamp:
    """Gives each announcement a later time than the one before, even if the clock is set back."""

    def __init__(self) -> None:
        self._last_ms = 0

    def stamp(self, server: Mapping[str, Any], news: Mapping[str, Any], now_s: float) -> bytes:
        """Return the announcement as a line."""
        self._last_ms = max(self._last_ms + 1, int(now_s * 1000))
        document = {**server, "at_s": self._last_ms / 1000, **news}
        return json.dumps(document).encode() + b"\n"
