"""The answer to `zmqtriton-ctl status`: every process, and why others are missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from zmqtriton.supervisor.models.failure_text import shorten
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.server_processes.peers import Peer
from zmqtriton.supervisor.settings import Settings
from zmqtriton.supervisor.states import GenerationState
from zmqtriton_floor.endpoints import local_service_path
from zmqtriton_floor.reasons import Reason
from zmqtriton_floor.settings.frontends import Grpc, Http, MetricsService


def describe_server(settings: Settings, directory: str, ready: str) -> dict[str, Any]:
    """Describe the server, for people who have several; `ready` puts its state into words."""
    frontend = settings.frontend
    services: dict[str, Http | Grpc | MetricsService]
    services = {"http": frontend.http, "grpc": frontend.grpc, "metrics": frontend.metrics_service}
    addresses = {
        name: f"{_bracket_ipv6(service.address)}:{service.port}"
        for name, service in services.items()
        if service.is_served
    }
    addresses |= {name: local_service_path(directory, name) for name in settings.local_services}
    return {
        "id": frontend.server.id,
        "version": frontend.server.zmqtriton_version,
        "commit": frontend.server.commit,
        "directory": directory,
        "addresses": addresses,
        "ready": ready,
    }


def _bracket_ipv6(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def load_seconds(generations: Iterable[Generation]) -> dict[str, dict[str, float]]:
    """Return how long each version took to load, in seconds, by model and version."""
    times: dict[str, dict[str, float]] = {}
    for generation in generations:
        if generation.state is GenerationState.SERVING:
            of_model = times.setdefault(generation.blueprint.name, {})
            of_model[str(generation.version)] = generation.load_s
    return times


def describe_processes(
    pid: int,
    started_s: Mapping[int, float],
    phase: str,
    peers: Iterable[Peer],
    generations: Iterable[Generation],
) -> list[dict[str, Any]]:
    """Describe the processes.

    `started_s` is the wall clock by serial number, with 0 for the supervisor.
    """
    processes: list[dict[str, Any]] = [
        {"role": "supervisor", "pid": pid, "started_s": started_s.get(0, 0.0), "state": phase}
    ]
    for peer in peers:
        processes.append(
            {
                "role": peer.role,
                "serial": peer.serial,
                "pid": peer.pid,
                "started_s": peer.started_s,
                "restarts": peer.restarts,
                **_last_reason(peer.last_death_reason),
            }
        )
    for generation in generations:
        for instance in generation.instances:
            processes.append(
                {
                    "role": "stub",
                    "serial": instance.serial,
                    "pid": instance.pid,
                    "started_s": started_s.get(instance.serial, 0.0) if instance.pid else 0.0,
                    "model": generation.blueprint.name,
                    "version": generation.version,
                    "generation": generation.number,
                    "instance": instance.name,
                    "kind": instance.slot.kind,
                    "device": instance.slot.device,
                    "state": instance.state.value,
                    "restarts": instance.restarts,
                    **_last_reason(instance.death_reason),
                    "last_pid": instance.last_pid,
                    "growth": instance.growth._asdict() if instance.growth.executions else None,
                    "retry_after_s": instance.retry_after_s if instance.is_given_up else 0.0,
                }
            )
    return processes


def _last_reason(reason: Reason | None) -> dict[str, Any]:
    """Return why a process ended, for people and for programs."""
    if reason is None:
        return {"last_reason": ""}
    return {"last_reason": shorten(reason.text), "why": reason.document()}
