"""The processes of a server by their roles, and those that its options turn on."""

from __future__ import annotations

import os

from zmqtriton import addons
from zmqtriton.options import Options
from zmqtriton.sdk.addon import Process

STUB, TRACER = "stub", "tracer"
BROKER = "broker"
ARBITER = "http-arbiter"
HTTP = "http"
GRPC = "grpc"
METRICS = "metrics"
#: A process of the user's program that takes part as a frontend, for its own requests.
GUEST = "guest"
#: Forks stubs. It talks to the supervisor only and is not introduced to the broker.
FORK_SERVER = "fork-server"

#: Begins the roles of processes that other packages declare.
ADD_ON = "add-on:"
#: Processes of our own add-ons that serve clients on this machine.
LOCAL_SERVICES = frozenset(addons.services())
#: Processes of them that listen at a socket in the runtime directory.
LOCAL_SOCKETS = frozenset(n for n, s in addons.services().items() if s.has_socket)
#: Processes of add-ons that announce this server and its models.
TELLING = frozenset(n for n, (_, each) in addons.processes().items() if each.tells_others)


class _RolesWithAddOns:
    """Roles of the core, together with the roles of all processes that other packages declare."""

    def __init__(self, *roles: str) -> None:
        self._roles = frozenset(roles)

    def __contains__(self, role: object) -> bool:
        return role in self._roles or str(role).startswith(ADD_ON)


_KEEP_CATALOGUES = (HTTP, GRPC, *LOCAL_SERVICES, METRICS, GUEST, *TELLING)
#: Roles that keep a catalogue of models.
CATALOGUE_ROLES = _RolesWithAddOns(*_KEEP_CATALOGUES)
#: Roles that talk to the broker. It knows the groups of others too, to kill them one day.
BROKERED_ROLES = _RolesWithAddOns(*_KEEP_CATALOGUES, "stub")
#: Roles that serve requests: a change is complete when all of them know it. Guests are left out,
#: since a debugger may halt one.
SERVING_ROLES = LOCAL_SERVICES | {HTTP, GRPC}
#: Roles that report open ports; the arbiter's forks report for the arbiter. The server is
#: open when each role has.
OPENING_ROLES = SERVING_ROLES | {ARBITER, METRICS}
#: Roles that tell balancers whether the server is ready.
READINESS_ROLES = SERVING_ROLES | TELLING | {METRICS}
#: Roles whose processes end before the models; the metrics process serves until the end, and what
#: it has refused is written after that.
CLIENT_FACING_ROLES = {ARBITER, *SERVING_ROLES} - {
    name for name, service in addons.services().items() if service.ends_last
}
#: Roles whose processes outlive a dead supervisor to clean up, and end by themselves.
OUTLIVING_ROLES = TELLING | {BROKER}


def services_of(options: Options) -> dict[str, Process]:
    """Return the services that these options turn on, by name."""
    services = addons.services()
    return {name: service for name, service in services.items() if options.value(service.on)}


def frontend_roles(options: Options) -> list[str]:
    """Return the roles of the processes that these options turn on, one for each process."""
    cores = len(os.sched_getaffinity(0))
    served_too = {port.of for port in addons.ports_in_use(options.value)}
    roles = [ARBITER] if options.allow_http or "http" in served_too else []
    if options.allow_grpc:
        roles += [GRPC] * (options.grpc_processes or max(1, cores // 2))
    roles += services_of(options)
    if options.allow_metrics or "metrics" in served_too:
        roles.append(METRICS)
    if options.trace.can_trace:
        roles.append(TRACER)
    # those that serve no requests
    return roles + [
        name if process.tells_others else f"{ADD_ON}{name}"
        for name, (_, process) in addons.processes().items()
        if not process.is_serving
        and not process.is_on_demand
        and (not process.on or options.value(process.on.replace("-", "_")))
    ]
