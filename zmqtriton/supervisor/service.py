"""The supervisor's loop: one thread that watches everything and performs what the core decides.

Started by `main`. Owns the clock, the signals, the sockets, the runtime directory; decides nothing
but how. Nothing in here may block: a slow disk is the worst that it meets.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import selectors
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import IO, Any

from zmqtriton import systemd
from zmqtriton.environments.cache import default_root, lock_in_use
from zmqtriton.options import Options
from zmqtriton.supervisor import actions
from zmqtriton.supervisor.core import Core
from zmqtriton.supervisor.fleet.introductions import ServerInfo
from zmqtriton.supervisor.fleet.peers import FORK_SERVER
from zmqtriton.supervisor.machine import (
    certificates,
    listeners,
    log_ring,
    logging_setup,
    secrets,
    segments,
    tables,
)
from zmqtriton.supervisor.machine.available_memory import available_bytes
from zmqtriton.supervisor.machine.control_socket import ControlSocket
from zmqtriton.supervisor.machine.gpus import used_memory_share, visible_gpus
from zmqtriton.supervisor.machine.host_policies import cores_of_policy
from zmqtriton.supervisor.machine.listeners import PortError
from zmqtriton.supervisor.machine.memory_gauge import MemoryGauge
from zmqtriton.supervisor.machine.model_reading import STUB_DIRECTORY, ModelReader
from zmqtriton.supervisor.machine.policy_reading import read_policy
from zmqtriton.supervisor.machine.processes import commands
from zmqtriton.supervisor.machine.processes.children import Children
from zmqtriton.supervisor.machine.processes.fork_server import StubSpec
from zmqtriton.supervisor.machine.python_settings import PythonSettings
from zmqtriton.supervisor.machine.ready_events import call_ready
from zmqtriton.supervisor.machine.region_files import RegionFiles
from zmqtriton.supervisor.machine.runtime_directory import DirectoryError, RuntimeDirectory, claim
from zmqtriton.supervisor.machine.secrets import SecretError
from zmqtriton.supervisor.machine.storage_directory import claim_storage
from zmqtriton_floor import __version__, logs, prctl, progress, wire
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.logs import LEVEL_NUMBERS

_log = logging.getLogger(__name__)

_TOKEN_BYTES = 16
_POLL_INTERVAL_S = 1.0
#: For what was killed at the end; after that the kernel has it.
_END_WITHIN_S = 5.0


def run(options: Options, on_open: Callable[[int | None], None] | None = None) -> int:
    """The exit status. `on_open` is called when clients may come, with the port of HTTP."""
    prctl.set_name("zmqtriton")
    prctl.adopt_orphans()
    secrets.hide_from_command_line(options)
    try:
        options = secrets.resolve_key_files(options)
        certificates.check(options)
        stream = logging_setup.set_up(options)
        held = listeners.bind_all(options)
    except (PortError, SecretError, certificates.CertificateError, OSError) as error:
        tables.print_to_stderr(f"error: {error}")
        return 1
    try:
        storage = claim_storage(options)
        directory = claim(options.runtime_directory)
    except DirectoryError as error:
        listeners.close_all(held)
        tables.print_to_stderr(f"error: {error}")
        return 1
    service = Service(options, held, directory, stream, storage)
    service.on_open = on_open
    try:
        return service.run()
    finally:
        service.close()


class Service:
    def __init__(
        self,
        options: Options,
        held: dict[str, listeners.BoundSocket],
        directory: RuntimeDirectory,
        stream: IO[str],
        storage: RuntimeDirectory | None,
    ) -> None:
        self.on_open: Callable[[int | None], None] | None = None
        self._options = options
        self._listeners = held
        self._runtime_directory = directory
        self._storage_directory = storage
        self._log_stream = stream
        self._gpus = visible_gpus(options.min_supported_compute_capability)
        self._model_reader = ModelReader(options, self._gpus)
        self._region_files = RegionFiles()
        settings, private = secrets.split_private_settings(self._settings())
        server = ServerInfo(
            *(str(directory.path), json.dumps(settings), lambda: os.urandom(_TOKEN_BYTES)),
            private,
            used_memory_share,
        )
        self._notifier = systemd.notifier_from_environment(os.environ, os.getpid())
        rules = dataclasses.replace(
            read_policy(options),
            watchdog_interval_s=self._notifier.heartbeat_s,
            storage_directory=settings["storage_directory"],
        )
        self._core = Core(rules, server, pid=os.getpid(), now_s=time.monotonic())
        self._selector = selectors.DefaultSelector()
        self._children = Children(
            self._selector, self._core.events, int(available_bytes() * segments.BUDGET_SHARE)
        )
        self._children.on_process_end = lambda serial: directory.remove_process_files(
            serial, self._core.staged_files.is_claimed
        )
        self._core.status.segment_bytes = lambda: self._children.segments.bytes_by_owner
        if options.trust_client_shm:
            self._children.segments.open_region = self._region_files.open_read_only
        self._log_ring = log_ring.attach()
        self._core.log_lines = self._log_ring.read_last
        self._exit_status: int | None = None
        #: For whoever started it, behind all that is logged until it ends.
        self._complaints: list[str] = []
        self._gauge = MemoryGauge(self._selector, self._core.on_demand_loader.on_memory_measured)
        self._next_poll_s = 0.0
        self._signal_reader, self._signal_writer = socket.socketpair()
        self._control_socket: ControlSocket | None = None
        #: Keeps what models run from being cleaned away.
        self._environment_cache_lock: int | None = None

    def _settings(self) -> dict[str, Any]:
        """What processes are told: all options, with the ports that they have become."""
        settings = dataclasses.asdict(self._options)
        settings["runtime_directory"] = str(self._runtime_directory.path)
        settings["storage_directory"] = (
            str(self._storage_directory.path) if self._storage_directory else ""
        )
        settings["server_version"] = __version__
        settings["server_extensions"] = tables.EXTENSIONS
        python = PythonSettings.from_backend_config(self._options.backend_settings("python"))
        settings["segment_bytes"] = python.segment_bytes
        settings["segment_step_bytes"] = python.segment_step_bytes
        sizes = [int(found.value) for found in self._options.cache_config if found.key == "size"]
        settings["cache_bytes"] = sizes[-1] if sizes else 0
        # The rest is for tensors on their way: who has no room for an answer cannot answer.
        settings["cache_shared_bytes"] = int(available_bytes() * segments.BUDGET_SHARE / 4)
        settings["metrics_address"] = self._options.metrics_address or self._options.http_address
        for role, name in (
            (listeners.HTTP, "http_port"),
            (listeners.GRPC, "grpc_port"),
            (listeners.METRICS, "metrics_port"),
        ):
            if role in self._listeners:
                settings[name] = self._listeners[role].port
        return settings

    # ---------------------------------------------------------------- the loop

    def run(self) -> int:
        """Until the core says Exit."""
        self._control_socket = control = ControlSocket(
            self._runtime_directory.control_path, self._children.stub_pids
        )
        self._selector.register(control, selectors.EVENT_READ, lambda: self._accept_caller(control))
        self._catch_signals()
        tables.log_python_settings(self._options)
        for text in self._model_reader.find_warnings():
            _log.warning("%s", text)
        self._core.start(time.time())
        self._perform()
        while self._exit_status is None:
            self._run_once()
        for text in self._complaints:
            tables.print_to_stderr(text)
        return self._exit_status

    def _run_once(self) -> None:
        ready = self._selector.select(self._timeout_s())
        now_s = time.monotonic()
        self._core.tick(now_s)
        call_ready(self._selector, ready)
        if now_s >= self._next_poll_s:
            self._next_poll_s = now_s + _POLL_INTERVAL_S
            self._children.detect_frozen()
            self._children.reap_orphans()
            self._children.segments.tick(now_s)
            self._children.fork_server.tick(now_s)
        self._perform()

    def _timeout_s(self) -> float:
        due_s = self._core.plan.next_deadline_s()
        soonest_s = self._next_poll_s if due_s is None else min(due_s, self._next_poll_s)
        return max(0.0, soonest_s - time.monotonic())

    def close(self) -> None:
        """Whatever is left ends, and nothing remains on disk."""
        signal.set_wakeup_fd(-1)
        self._children.kill_all(_END_WITHIN_S)
        self._children.segments.close()
        if self._control_socket is not None:
            self._control_socket.close()
        logging.getLogger().removeHandler(self._log_ring)
        self._runtime_directory.remove()
        if self._storage_directory is not None:
            self._storage_directory.remove()
        self._gauge.close()
        self._region_files.close_all()
        listeners.close_all(self._listeners)
        self._selector.close()
        for end in (self._signal_reader, self._signal_writer):
            end.close()
        if self._environment_cache_lock is not None:
            os.close(self._environment_cache_lock)

    # ----------------------------------------------------------------- signals

    def _catch_signals(self) -> None:
        for end in (self._signal_reader, self._signal_writer):
            end.setblocking(False)
        signal.set_wakeup_fd(self._signal_writer.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # Not SIG_IGN, which children would inherit.
            signal.signal(number, lambda number, frame: None)
        self._selector.register(self._signal_reader, selectors.EVENT_READ, self._read_signals)

    def _read_signals(self) -> None:
        for number in self._signal_reader.recv(64):
            if number in (signal.SIGTERM, signal.SIGINT):
                self._core.stop_requested()

    def _accept_caller(self, control: ControlSocket) -> None:
        line = control.accept()
        if line is not None:
            self._children.add_caller(self._core.plan.new_serial(), line)

    # ----------------------------------------------------------------- actions

    def _perform(self) -> None:
        while self._exit_status is None:
            todo = self._core.take_actions()
            if not todo:
                return
            for action in todo:
                _ACTION_HANDLERS[type(action)](self, action)

    def _spawn(self, action: actions.Spawn) -> None:
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
            descriptors=() if given is None else (given,),
            output=self._log_stream.fileno() if self._options.log_file else None,
            environment=commands.ROLE_ENVIRONMENT,
            may_branch=action.role == listeners.HTTP,
            dies_with_parent=action.role != "broker",
        )

    def _spawn_stub(self, action: actions.SpawnStub) -> None:
        stub = log_ring.StubName(action.model, action.instance)
        page = segments.anonymous_memory(progress.SIZE)
        cores = cores_of_policy(self._options.host_policy, action.host_policy)
        self._children.fork_server.start(
            StubSpec(action.serial, action.environment, stub, page, cores)
        )

    def _prepare_environment(self, action: actions.PrepareEnvironment) -> None:
        cache = self._options.environment_directory or default_root()
        if self._environment_cache_lock is None:
            self._environment_cache_lock = lock_in_use(cache)
        self._children.spawn(
            action.serial,
            lambda line: commands.environment_command(line, action.model, cache, action.demand),
            environment=commands.ROLE_ENVIRONMENT,
            stub=log_ring.StubName(action.model, "environment"),
        )

    def _send(self, action: actions.Send) -> None:
        message = action.message
        is_region = type(message) is wire.AddRegion
        descriptor = self._region_files.descriptor(message.number) if is_region else None
        self._children.send(action.serial, message, descriptor)

    def _open_region(self, action: actions.OpenRegion) -> None:
        self._core.regions.region_opened(action.number, self._region_files.open(action))

    def _close_region(self, action: actions.CloseRegion) -> None:
        self._region_files.close(action.number)
        self._children.segments.region_closed(action.number)

    def _signal(self, action: actions.Signal) -> None:
        self._children.signal(action.serial, action.number, action.group)

    def _read_model(self, action: actions.ReadModel) -> None:
        found = self._model_reader.read_model(action.model, action.override, action.local_copy)
        self._core.object_stores.on_model_read(action.ticket, found)

    def _measure_memory(self, action: actions.MeasureMemory) -> None:
        self._gauge.measure(action.model_by_pid)

    def _remove_files(self, action: actions.RemoveDirectory) -> None:
        shutil.rmtree(action.path, ignore_errors=True)

    def _list_repository(self, action: actions.ListRepository) -> None:
        try:
            self._core.object_stores.on_repository_listed(
                action.ticket, self._model_reader.list_names(action.remote_models)
            )
        except ZmqTritonError as error:
            self._core.object_stores.on_repository_listed(action.ticket, error)

    def _change_repositories(self, action: actions.ChangeRepositories) -> None:
        change = (
            self._model_reader.register if action.is_registration else self._model_reader.unregister
        )
        error = None
        try:
            change(action.path)
        except ZmqTritonError as refusal:
            error = refusal
        self._core.repositories.repositories_changed(action.ticket, self._model_reader.paths, error)

    def _prepare_to_listen(self, _: actions.PrepareToListen) -> None:
        listeners.allow_address_reuse(self._listeners)
        tables.log_grpc_settings(self._options, self._log_stream)
        if self.on_open is not None:
            http = self._listeners.get(listeners.HTTP)
            self.on_open(None if http is None else http.port)

    def _stop_listening(self, _: actions.StopListening) -> None:
        # The kernel would go on taking connections for as long as one of us has the socket.
        listeners.close_all({r: h for r, h in self._listeners.items() if r != listeners.METRICS})

    def _write_log(self, action: actions.Log) -> None:
        level = LEVEL_NUMBERS[action.level]
        if _log.isEnabledFor(level):
            place = (action.file, action.line)
            _log.handle(_log.makeRecord(_log.name, level, *place, "%s", (action.text,), None))

    def _change_log(self, action: actions.ConfigureLogging) -> None:
        logs.change(action.options)

    def _show_tables(self, action: actions.ShowTables) -> None:
        python = str(STUB_DIRECTORY)
        for table in tables.startup_tables(
            self._options, action.models, python, self._gpus, self._log_stream
        ):
            _log.info("", extra={"raw": table})

    def _notify(self, action: actions.NotifyServiceManager) -> None:
        self._notifier.send(action.text)

    def _complain(self, action: actions.PrintError) -> None:
        self._complaints.append(action.text)

    def _exit(self, action: actions.Exit) -> None:
        self._exit_status = action.status


_ACTION_HANDLERS: dict[type[actions.Action], Callable[[Service, Any], None]] = {
    actions.Spawn: Service._spawn,
    actions.SpawnStub: Service._spawn_stub,
    actions.PrepareEnvironment: Service._prepare_environment,
    actions.Send: Service._send,
    actions.Signal: Service._signal,
    actions.ReadModel: Service._read_model,
    actions.MeasureMemory: Service._measure_memory,
    actions.RemoveDirectory: Service._remove_files,
    actions.ListRepository: Service._list_repository,
    actions.ChangeRepositories: Service._change_repositories,
    actions.OpenRegion: Service._open_region,
    actions.CloseRegion: Service._close_region,
    actions.PrepareToListen: Service._prepare_to_listen,
    actions.StopListening: Service._stop_listening,
    actions.Log: Service._write_log,
    actions.NotifyServiceManager: Service._notify,
    actions.ConfigureLogging: Service._change_log,
    actions.ShowTables: Service._show_tables,
    actions.PrintError: Service._complain,
    actions.Exit: Service._exit,
}


if sys.platform != "linux":
    raise ImportError("the supervisor needs Linux")
