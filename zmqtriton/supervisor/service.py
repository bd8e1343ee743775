"""The supervisor's loop: one thread that watches everything and performs the core's decisions.

Owns the clock, the signals, the sockets and the runtime directory. No code here may block: readers
look at the files of models.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import selectors
import sys
import time
from collections.abc import Callable, Sequence

from zmqtriton import systemd
from zmqtriton.host import capacity
from zmqtriton.host.gpus import Gpu, used_memory_share
from zmqtriton.logs.guard import guarded
from zmqtriton.logs.log import ServerLog, take_over_output
from zmqtriton.logs.log_ring import LogRing
from zmqtriton.options import Options, describe_options
from zmqtriton.start import checks, listeners, predecessors, secrets, tables
from zmqtriton.start.listeners import PortError
from zmqtriton.start.secrets import SecretError
from zmqtriton.supervisor.core import SupervisorCore
from zmqtriton.supervisor.features.table import all_features
from zmqtriton.supervisor.machine import clock, own_process
from zmqtriton.supervisor.machine.action_runner import ActionRunner, OpenedServer
from zmqtriton.supervisor.machine.background import Worker
from zmqtriton.supervisor.machine.control_socket import ControlSocket
from zmqtriton.supervisor.machine.directories.claims import (
    Claims,
    claim_all,
    claim_storage,
)
from zmqtriton.supervisor.machine.directories.runtime import DirectoryError
from zmqtriton.supervisor.machine.memory.region_files import RegionFiles
from zmqtriton.supervisor.machine.process_settings import (
    bound_ports,
    process_settings,
    read_policy,
)
from zmqtriton.supervisor.machine.processes.children import Children
from zmqtriton.supervisor.machine.processes.spawner import Spawner
from zmqtriton.supervisor.machine.repositories.model_files import ModelFiles
from zmqtriton.supervisor.settings import ServerInfo
from zmqtriton_floor.process.loop_turns import LoopTurns

_TOKEN_BYTES = 16
_POLL_INTERVAL_S = 1.0
#: Seconds that killed processes have to end; after that they are left to the kernel.
_END_WITHIN_S = 5.0


def run(options: Options, on_open: Callable[[OpenedServer], None] | None = None) -> int:
    """Run the server and return the exit status; `on_open` is called when all services are open."""
    try:
        # before anything needs what the machine may lack, such as a thread
        own_process.set_up(options)
        to_stderr = take_over_output()
        secrets.hide_from_command_line(options)
        options = secrets.resolve_key_files(options)
        checks.check_certificates(options)
        log = ServerLog(options, to_stderr)
        secrets.check_tokens(options)
        options, adopted = listeners.adopt(options, systemd.passed_sockets(os.environ, os.getpid()))
        predecessor, offered = predecessors.take_over(options) if options.take_over else (None, {})
        is_second = predecessor is not None
        options = dataclasses.replace(
            options, take_over=is_second, one_by_one=options.one_by_one and is_second
        )
        options, adopted = listeners.adopt_offered(options, adopted, offered)
        held = listeners.bind_all(options, adopted, offered)
    except (PortError, SecretError, checks.CertificateError, OSError) as error:
        tables.print_to_stderr(f"error: {error}")
        return 1
    try:
        claims = claim_all(options, None if predecessor is None else predecessor.directory)
    except DirectoryError as error:
        listeners.close_all(held)
        tables.print_to_stderr(f"error: {error}")
        return 1
    for name, bound in claims.local_services.items():
        held[name] = listeners.BoundSocket(name, bound)
    try:
        service = SupervisorService(options, held, claims, log, on_open)
    except BaseException:
        claims.remove()
        raise
    try:
        if predecessor is not None:
            service.follow(predecessor)
        return service.run()
    finally:
        service.close()


class SupervisorService:
    def __init__(
        self,
        options: Options,
        held: dict[str, listeners.BoundSocket],
        claims: Claims,
        log: ServerLog,
        on_open: Callable[[OpenedServer], None] | None,
    ) -> None:
        self._options = options
        self._listeners = held
        self._claims = claims
        gpus = Gpu.visible(options.min_supported_compute_capability)
        self._region_files = RegionFiles(
            trusts_all=options.trust_client_shm, is_read_only=bool(options.stub_user)
        )
        self._log_ring = LogRing()
        logging.getLogger().addHandler(self._log_ring)
        self._turns = LoopTurns()
        server = self._server_info(gpus, log)
        notifier = systemd.notifier_from_environment(os.environ, os.getpid())
        rules = dataclasses.replace(
            read_policy(options),
            watchdog_interval_s=notifier.heartbeat_s,
        )
        self._core = SupervisorCore(rules, server, all_features(), os.getpid(), time.monotonic())
        self._selector = selectors.DefaultSelector()
        self._children = Children(
            self._selector,
            self._core.events,
            capacity.segment_budget_bytes(),
            claims.runtime,
            self._core.staged_files.claimed,
            outlet=log.outlet,
            ring=self._log_ring,
            regions=self._region_files,
        )
        self._children.quotas.prepare_groups()
        self._background = Worker(self._selector, "background")
        self._model_files = ModelFiles(
            options, gpus, self._selector, self._core.plan, self._children.pids
        )
        self._next_poll_s = 0.0
        self._control_socket: ControlSocket | None = None
        self._spawner = Spawner(options, self._children, held, claims, self)
        self.runner = ActionRunner(
            options,
            self._core,
            self._children,
            sockets=held,
            spawner=self._spawner,
            model_files=self._model_files,
            region_files=self._region_files,
            background=self._background,
            notifier=notifier,
            gpus=gpus,
            log=log,
            on_open=on_open,
        )
        self._signals = own_process.Signals(self._core, log, has_log_file=bool(options.log_file))

    def _claim_storage(self, url: str) -> str:
        """Return the directory for copies of models in stores; made at the first call."""
        if self._claims.storage is None:
            self._claims = self._claims._replace(
                storage=claim_storage([url], self._claims.users.group)
            )
        return str(self._claims.storage.path) if self._claims.storage else ""

    def _server_info(self, gpus: Sequence[int], log: ServerLog) -> ServerInfo:
        runtime, storage = self._claims.runtime, self._claims.storage
        return ServerInfo(
            str(runtime.path),
            process_settings(self._options, runtime, storage, self._listeners),
            lambda: os.urandom(_TOKEN_BYTES),
            used_gpu_share=used_memory_share,
            gpus=gpus,
            max_instances=capacity.max_instances(capacity.descriptor_limit()),
            options=describe_options(self._options, bound_ports(self._listeners)),
            max_finalizing=capacity.max_computing(),
            processor_use=capacity.processor_use,
            log_lines=self._log_ring.read_last,
            log_loss=log.outlet.loss,
            process_lines=self._log_ring.process_lines,
            # the children come after the core
            segment_bytes=lambda: self._children.segments.bytes_by_owner,
            quota_use=lambda model: self._children.quotas.use_of(model),
            quotas_kept_by=lambda: self._children.quotas.means,
            readers=lambda: self._model_files.readers.describe(),
            silent_places=lambda: self._model_files.repositories.silent_places,
            loop_turns=self._turns.document,
            start=own_process.start(self._options),
            claim_storage=self._claim_storage,
            clock_step_s=clock.step_s,
        )

    def follow(self, predecessor: predecessors.Predecessor) -> None:
        """Take over from another server, once this one serves."""
        serial = self._core.plan.new_serial()
        self._core.events.succession.follow(serial)
        self._children.add_caller(serial, predecessor.line, predecessor.identity.pid)

    # ---------------------------------------------------------------- the loop

    def run(self) -> int:
        """Run until the core says Exit."""
        self.open_control()
        if not self._options.take_over:
            self._claims.runtime.show()
        self._signals.catch()
        self._selector.register(self._signals, selectors.EVENT_READ, self._signals.handle)
        if self._options.owner_descriptor >= 0:
            self._selector.register(
                self._options.owner_descriptor, selectors.EVENT_READ, self._end_with_owner
            )
        tables.log_start(self._options)
        own_process.warn(self._options)
        # the models of a program that has started this server come from the program
        if self._options.owner_descriptor < 0 or self._options.model_control_mode != "explicit":
            self._model_files.repositories.log_hints()
        self._core.start(clock.now_s())
        self.runner.run_all()
        self._turns.watch()
        while self.runner.exit_status is None:
            self._run_once()
        for text in self.runner.error_texts:
            tables.print_to_stderr(text)
        return self.runner.exit_status

    def open_control(self) -> None:
        """Open the socket for zmqtriton-ctl, in place of an earlier one if there is one."""
        path = self._claims.runtime.control_path
        path.unlink(missing_ok=True)
        control = ControlSocket(path, self._children)
        if self._control_socket is not None:
            self._selector.unregister(self._control_socket)
            self._control_socket.close()
        self._control_socket = control
        self._selector.register(control, selectors.EVENT_READ, lambda: self._accept_caller(control))

    def _run_once(self) -> None:
        timeout_s = self._timeout_s()
        self._turns.end()
        ready = self._selector.select(timeout_s)
        self._turns.begin()
        now_s = time.monotonic()
        self._core.tick(now_s, guarded)
        call_ready(self._selector, ready)
        if now_s >= self._next_poll_s:
            self._next_poll_s = now_s + _POLL_INTERVAL_S
            children = self._children
            for look in (children.frozen.poll, children.quotas.poll, children.reap_orphans):
                with guarded("a look at the processes"):
                    look()
            with guarded("a look at the runtime directory"):
                self._spawner.mending.poll()
            for part in (children.fork_server, children.templates):
                with guarded("a timer"):
                    part.tick(now_s)
        self.runner.run_all()

    def _timeout_s(self) -> float:
        due_s = self._core.plan.next_deadline_s()
        soonest_s = self._next_poll_s if due_s is None else min(due_s, self._next_poll_s)
        return max(0.0, soonest_s - time.monotonic())

    def close(self) -> None:
        """End all remaining processes, and remove everything from disk."""
        self._model_files.close()
        self._children.kill_all(_END_WITHIN_S)
        self._children.segments.close()
        self._children.quotas.close()
        # before the way to this server ends: one that waits for its ports looks for that
        listeners.close_all(self._listeners)
        if self._control_socket is not None:
            self._control_socket.close()
        logging.getLogger().removeHandler(self._log_ring)
        self._claims.remove()
        self._background.close()
        self._region_files.close_all()
        self._selector.close()
        self._signals.close()
        self._spawner.close()

    # ----------------------------------------------------------------- callers

    def _end_with_owner(self) -> None:
        """Stop: the owner of this server has closed its end, or is dead."""
        self._selector.unregister(self._options.owner_descriptor)
        self._core.stop_requested()

    def _accept_caller(self, control: ControlSocket) -> None:
        accepted = control.accept()
        if accepted is not None:
            self._children.add_caller(self._core.plan.new_serial(), *accepted)


def call_ready(
    selector: selectors.BaseSelector, ready: list[tuple[selectors.SelectorKey, int]]
) -> None:
    """Call the handlers of descriptors that are ready at the same moment.

    Except for descriptors that an earlier handler has unregistered: a dead process may have written
    as well, and its descriptor's number may be another's by now.
    """
    for key, _ in ready:
        if selector.get_map().get(key.fd) is key:
            with guarded("an event's handler"):
                key.data()


if sys.platform != "linux":
    raise ImportError("the supervisor needs Linux")
