"""Servers on a Ray cluster, as their replicas have registered them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from zmqtriton_floor.errors import InvalidArgument

#: Replicas in these states are servers that are there, or should be.
_MEANT = ("STARTING", "UPDATING", "RECOVERING", "RUNNING")
#: The deployment that has no servers.
_INGRESS = "ingress"


class Registered(NamedTuple):
    announcements: list[Mapping[str, Any]]
    #: How many there should be, as Serve knows.
    expected: int


def find_registered(address: str) -> Registered:
    """Return what the servers have announced last.

    The cluster is the one at the address, by default $RAY_ADDRESS or this machine's. Raises
    InvalidArgument.
    """
    try:
        import ray
        from ray import serve

        from zmqtriton_addons.fleet.serve import register
    except ImportError:
        raise InvalidArgument("Ray is not installed here: pip install 'ray[serve]'") from None
    try:
        ray.init(address=address or "auto", logging_level="error", log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InvalidArgument(f"there is no Ray cluster: {error}") from None
    try:
        announcements: list[Mapping[str, Any]] = list(register.read())
        return Registered(announcements, _count(serve.status()))
    finally:
        ray.shutdown()


def _count(status: Any) -> int:
    """Return the replicas of all applications of ours."""
    return sum(
        count
        for application in status.applications.values()
        for name, deployment in application.deployments.items()
        for state, count in deployment.replica_states.items()
        if name != _INGRESS and state in _MEANT
    )
