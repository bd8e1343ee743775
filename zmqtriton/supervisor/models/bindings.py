"""The models that guests have bound: whose they are, and their end with the guest. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterable

from zmqtriton.supervisor.models.model import Model
from zmqtriton.supervisor.server_processes.peers import Peer
from zmqtriton.supervisor.server_processes.roles import GUEST
from zmqtriton_floor.reasons import Kind, Reason


def is_guest(peer: Peer | None) -> bool:
    """True for a process of a user's that takes part."""
    return peer is not None and peer.role == GUEST


def guests_of(model: Model) -> set[int]:
    """Return the processes of users that run versions of a model."""
    generations = [version.generation for version in model.versions.values()]
    hosts = [generation.environment.host for generation in generations if generation is not None]
    return {host.guest for host in hosts if host is not None}


def end_bindings(models: Iterable[Model], guest: int, reason: Reason) -> None:
    """Unload what a guest has bound that has left; the index says so."""
    text = f"the process that has bound it has left: {reason.text}"
    for model in models:
        if guest in guests_of(model):
            model.evict(Reason.of(Kind.GUEST_LEFT, text, reason))
