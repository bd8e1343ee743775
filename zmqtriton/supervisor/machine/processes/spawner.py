"""Starts the processes that actions name."""

from __future__ import annotations

import os

from zmqtriton.environments.users import (
    default_root,
    downloads_directory,
    give_directory,
    lock_in_use,
)
from zmqtriton.host.cores import cores_of_policy
from zmqtriton.host.sealed_memory import anonymous_memory
from zmqtriton.logs.log_ring import StubName
from zmqtriton.options import Options
from zmqtriton.roles import BROKER, FORK_SERVER, OUTLIVING_ROLES
from zmqtriton.start import listeners
from zmqtriton.supervisor import actions
from zmqtriton.supervisor.machine.directories.claims import Claims, ControlOpener, DirectoryMending
from zmqtriton.supervisor.machine.processes import commands
from zmqtriton.supervisor.machine.processes.child import Child
from zmqtriton.supervisor.machine.processes.children import Children
from zmqtriton.supervisor.machine.processes.commands import model_variables
from zmqtriton.supervisor.machine.processes.fork_server import StubSpec
from zmqtriton.supervisor.machine.processes.process import oom_score_of
from zmqtriton_floor import execution_progress

#: Bytes of the memory where each broker writes its record of begun requests for the next one.
_BEGUN_BYTES = 1 << 18


class Spawner:
    """Starts broker, frontends, stubs and helpers, with the descriptors that each inherits."""

    def __init__(
        self,
        options: Options,
        children: Children,
        sockets: dict[str, listeners.BoundSocket],
        claims: Claims,
        control: ControlOpener,
    ) -> None:
        self._options = options
        self._users = claims.users
        self._children = children
        self._listeners = sockets
        self._runtime_directory = claims.runtime
        #: Keep the environments that models run in from being removed, by their directory.
        self._cache_locks: dict[str, int | None] = {}
        self._begun = anonymous_memory(_BEGUN_BYTES)
        #: The last process of each role.
        self._serials: dict[str, int] = {}
        self.mending = DirectoryMending(options, claims, sockets, children, self._serials, control)
        children.starts.model_variables = model_variables(options)

    def close(self) -> None:
        os.close(self._begun)
        for lock in self._cache_locks.values():
            if lock is not None:
                os.close(lock)

    def spawn(self, action: actions.Spawn) -> None:
        self._serials[action.role] = action.serial
        if action.role == FORK_SERVER:
            self._children.starts.spawn_fork_server(action.serial)
            return
        begun = None
        if action.role == BROKER:
            self._runtime_directory.remove_broker_sockets()
            begun = self._begun
        held = self._listeners.get(action.role)
        descriptors = {}
        is_native = self._options.grpc_transport == "native"
        if held is not None and (is_native or action.role != listeners.GRPC):
            descriptors[""] = held.socket.fileno()
        further = [r for r in listeners.served_too(action.role) if r in self._listeners]
        descriptors |= {role: self._listeners[role].socket.fileno() for role in further}
        self._children.starts.spawn(
            action.serial,
            lambda line: commands.role_command(action.role, line, descriptors, begun),
            inherited=(*descriptors.values(), *(() if begun is None else (begun,))),
            environment=commands.ROLE_ENVIRONMENT,
            child=Child(action.serial, can_fork_workers=action.role == listeners.HTTP),
            oom_score=oom_score_of(action.role),
            dies_with_parent=action.role not in OUTLIVING_ROLES,
        )

    def spawn_stub(self, action: actions.SpawnStub) -> None:
        page = anonymous_memory(execution_progress.SIZE, "zmqtriton-progress")
        host = action.environment.host
        if host is not None:
            self._children.guests.start_instance(host, action, page)
            return
        cores, variables = action.assignment
        cores = cores or cores_of_policy(self._options.host_policy, action.host_policy)
        spec = StubSpec(
            action.serial,
            action.environment,
            StubName(action.model, action.instance, action.version),
            page,
            cores,
            self._users.get(action.environment.user),
            action.quota,
            action.template,
            action.spare,
            {name: value for name, value in variables.items() if name not in os.environ},
        )
        if action.template is not None:
            self._children.templates.start(spec)
        else:
            self._children.fork_server.start(spec)

    def start_spare(self, action: actions.StartSpare) -> None:
        self._children.starts.spawn_spare(action, self._users.get(action.environment.user))

    def prepare_environment(self, action: actions.PrepareEnvironment) -> None:
        user = self._users.get(action.demand.user)
        cache = self._options.environment_directory or default_root(is_shared=user is not None)
        variables: dict[str, str | None] = dict(commands.ROLE_ENVIRONMENT)
        if user is not None:
            cache = give_directory(cache, user)
            variables["XDG_CACHE_HOME"] = downloads_directory(cache)
        if self._cache_locks.get(cache) is None:
            self._cache_locks[cache] = lock_in_use(cache)
        self._children.starts.spawn(
            action.serial,
            lambda line: commands.environment_command(line, action.model, cache, action.demand),
            environment=variables,
            stub=StubName(action.model, "environment"),
            user=user,
        )
