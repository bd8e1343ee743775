"""Starts the processes that actions name."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import IO

from zmqtriton.environments.cache import default_root, lock_in_use
from zmqtriton.options import Options
from zmqtriton.supervisor import actions
from zmqtriton.supervisor.fleet.roles import FORK_SERVER
from zmqtriton.supervisor.machine import listeners, log_ring, model_environment, segments
from zmqtriton.supervisor.machine.host_policies import cores_of_policy
from zmqtriton.supervisor.machine.processes import commands
from zmqtriton.supervisor.machine.processes.children import Children
from zmqtriton.supervisor.machine.processes.fork_server import StubSpec
from zmqtriton.supervisor.machine.processes.process import oom_score_of
from zmqtriton.supervisor.machine.runtime_directory import RuntimeDirectory
from zmqtriton_floor import progress

_log = logging.getLogger(__name__)


class Spawner:
    """Starts broker, frontends, stubs and helpers, each with what it inherits."""

    def __init__(
        self,
        options: Options,
        children: Children,
        sockets: Mapping[str, listeners.BoundSocket],
        directory: RuntimeDirectory,
        log_stream: IO[str],
    ) -> None:
        self._options = options
        self._children = children
        self._listeners = sockets
        self._runtime_directory = directory
        self._log_stream = log_stream
        #: Keeps the environments that models run in from being removed.
        self._environment_cache_lock: int | None = None
        withheld = model_environment.withheld(os.environ, options.model_env)
        if withheld:
            names = ", ".join(withheld)
            _log.info("models do not get these variables, pass them by --model-env: %s", names)
        children.withheld_variables = dict.fromkeys(withheld)

    def close(self) -> None:
        if self._environment_cache_lock is not None:
            os.close(self._environment_cache_lock)

    def spawn(self, action: actions.Spawn) -> None:
        if action.role == FORK_SERVER:
            self._children.spawn_fork_server(action.serial)
            return
        if action.role == "broker":
            self._runtime_directory.remove_broker_sockets()
        held = self._listeners.get(action.role)
        given = None if held is None or action.role == listeners.GRPC else held.socket.fileno()
        self._children.spawn(
            action.serial,
            lambda line: commands.role_command(action.role, line, given),
            inherited=() if given is None else (given,),
            output=self._log_stream.fileno() if self._options.log_file else None,
            environment=commands.ROLE_ENVIRONMENT,
            may_branch=action.role == listeners.HTTP,
            oom_score=oom_score_of(action.role),
            dies_with_parent=action.role != "broker",
        )

    def spawn_stub(self, action: actions.SpawnStub) -> None:
        stub = log_ring.StubName(action.model, action.instance)
        page = segments.anonymous_memory(progress.SIZE)
        cores = cores_of_policy(self._options.host_policy, action.host_policy)
        self._children.fork_server.start(
            StubSpec(action.serial, action.environment, stub, page, cores)
        )

    def prepare_environment(self, action: actions.PrepareEnvironment) -> None:
        cache = self._options.environment_directory or default_root()
        if self._environment_cache_lock is None:
            self._environment_cache_lock = lock_in_use(cache)
        self._children.spawn(
            action.serial,
            lambda line: commands.environment_command(line, action.model, cache, action.demand),
            environment=commands.ROLE_ENVIRONMENT,
            stub=log_ring.StubName(action.model, "environment"),
        )
