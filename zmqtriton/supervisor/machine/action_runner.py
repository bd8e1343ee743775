"""Performs the core's decisions, with a method for each kind of action."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple

from zmqtriton import systemd
from zmqtriton.logs.guard import guarded
from zmqtriton.logs.log import ServerLog
from zmqtriton.options import Options
from zmqtriton.reading.blueprint import ReadFailure
from zmqtriton.start import listeners, tables
from zmqtriton.supervisor import actions
from zmqtriton.supervisor.core import SupervisorCore
from zmqtriton.supervisor.machine.background import Worker
from zmqtriton.supervisor.machine.memory.region_files import RegionFiles
from zmqtriton.supervisor.machine.processes.children import Children
from zmqtriton.supervisor.machine.processes.spawner import Spawner
from zmqtriton.supervisor.machine.repositories.model_files import ModelFiles
from zmqtriton.supervisor.models.model_report import serving_config
from zmqtriton.supervisor.story import Promise
from zmqtriton_floor import logs, wire
from zmqtriton_floor.errors import InternalError, ZmqTritonError
from zmqtriton_floor.logs import LEVEL_NUMBERS
from zmqtriton_floor.reasons import Kind, Reason

#: The supervisor's logger, whichever module writes to it.
_log = logging.getLogger("zmqtriton.supervisor.service")
_ADVICE = "--state-directory names another place"


#: Maximum letters of a document that is indented in the log; a larger one would take long.
_MAX_INDENTED_LETTERS = 65536


class OpenedServer(NamedTuple):
    #: None if it has no HTTP.
    http_port: int | None
    #: Returns the configuration of a serving version of a model, -1 for the highest; or nothing.
    serving_config: Callable[[str, int], dict[str, Any]]


def indented(document: str) -> str:
    """Return a JSON document with indents for people; a very large one without."""
    is_short = len(document) <= _MAX_INDENTED_LETTERS
    return json.dumps(json.loads(document), indent=4) if is_short else document


class ActionRunner:
    """Performs actions until one of them is Exit."""

    def __init__(
        self,
        options: Options,
        core: SupervisorCore,
        children: Children,
        *,
        sockets: dict[str, listeners.BoundSocket],
        spawner: Spawner,
        model_files: ModelFiles,
        region_files: RegionFiles,
        background: Worker,
        notifier: systemd.Notifier,
        gpus: Sequence[int],
        log: ServerLog,
        on_open: Callable[[OpenedServer], None] | None,
    ) -> None:
        """Set up; `on_open` is called when clients may connect."""
        self._options = options
        self._core = core
        self._children = children
        self._listeners = sockets
        self._spawner = spawner
        self._repositories = model_files.repositories
        self._lookups = model_files.lookups
        self._region_files = region_files
        self._background = background
        self._notifier = notifier
        self._gpus = gpus
        self._log = log
        self._on_open = on_open
        self._shared_ports = listeners.shared_ports(options, sockets)
        #: None while the server runs.
        self.exit_status: int | None = None
        #: Printed to stderr at the end, after all log records.
        self.error_texts: list[str] = []

    def run_all(self) -> None:
        """Perform the core's decisions, including those that it makes until all are performed."""
        while self.exit_status is None:
            todo: list[actions.Action] | None = None
            with guarded("a decision"):  # the stories that have not failed go on
                todo = self._core.take_actions()
            if todo == []:
                return
            for action in todo or ():
                self._run(action)

    def _run(self, action: actions.Action) -> None:
        """Perform an action; a failure ends the task of this action, and no other."""
        with guarded(type(action).__name__, lambda error: self._fail(action, error)):
            _HANDLERS[type(action)](self, action)

    def _fail(self, action: Any, error: Exception) -> None:
        """End the task of an action that could not be performed."""
        if isinstance(action, _STARTS):
            self._core.events.process_ended(
                action.serial, Reason.of(Kind.NOT_STARTED, f"it cannot be started: {error}")
            )
        elif isinstance(action, actions.Send | actions.Signal):
            self._children.kill(action.serial, f"it cannot be reached: {error}")
        elif make_answer := _ANSWERS_OF_FAILURES.get(type(action)):
            self._core.plan.answer(action.ticket, make_answer(self, InternalError(str(error))))

    def _send(self, action: actions.Send) -> None:
        message = action.message
        is_region = type(message) is wire.AddRegion
        descriptor = self._region_files.descriptor(message.number) if is_region else None
        self._children.send(action.serial, message, descriptor)

    def _open_region(self, action: actions.OpenRegion) -> None:
        opened: ZmqTritonError | bool = True
        if action.handle:
            self._children.segments.add_region_on_gpu(action.number, action.size, action.handle)
        else:
            opened = self._region_files.open(action)
        self._core.plan.answer(action.ticket, opened)

    def _close_region(self, action: actions.CloseRegion) -> None:
        self._region_files.close(action.number)
        self._core.plan.answer(action.ticket, self._children.segments.region_closed(action.number))

    def _answer(self, action: Any, answer: Promise[Any]) -> None:
        """Answer an action when it is finished."""
        answer.at_end(lambda: self._core.plan.answer(action.ticket, answer.error or answer.value))

    def _answer_later(self, action: Any, steps: Coroutine[Promise[Any], None, Any]) -> None:
        """Answer an action when its story has ended."""
        self._answer(action, self._core.plan.tell(steps))

    def _remove_files(self, action: actions.RemoveDirectory) -> None:
        if not self._core.is_stopping:  # else it goes with the runtime directory
            self._repositories.remove_directory(action.path)

    async def _keep_decisions(self, action: actions.KeepDecisions) -> None:
        if problem := await self._repositories.keep_decisions(action):
            _log.warning("a decision about a version cannot be kept: %s; %s", problem, _ADVICE)

    def _prepare_to_listen(self, _: actions.PrepareToListen) -> None:
        listeners.allow_address_reuse(self._listeners)
        self._shared_ports.before_listening()
        tables.log_grpc_settings(self._options, self._log.outlet)

    def _tell_open(self, _: actions.TellOpen) -> None:
        self._spawner.mending.show()
        if self._on_open is not None:
            http = self._listeners.get(listeners.HTTP)
            port = None if http is None else http.port
            self._on_open(OpenedServer(port, partial(serving_config, self._core.models)))

    def _stop_listening(self, _: actions.StopListening) -> None:
        # The kernel accepts connections for as long as any process of ours holds the socket.
        kept = listeners.METRICS, *listeners.served_too(listeners.METRICS)
        listeners.close_all({r: h for r, h in self._listeners.items() if r not in kept})

    def _give_sockets(self, action: actions.GiveSockets) -> None:
        shared = listeners.for_next_server(self._listeners)
        roles = json.dumps([(bound.role, bound.is_passed) for bound in shared])
        answer = wire.CallResult(action.call_id, 0, "", roles)
        self._children.send_several(
            action.caller, answer, [bound.socket.fileno() for bound in shared]
        )

    def _write_log(self, action: actions.Log) -> None:
        level = LEVEL_NUMBERS[action.level]
        if _log.isEnabledFor(level):
            place, text = (action.file, action.line), action.text
            if action.document:
                text += indented(action.document)
            record = _log.makeRecord(_log.name, level, *place, "%s", (text,), None)
            if action.raw:
                record.raw = action.raw
            record.about = logs.subject(action.model, action.version, action.instance)
            record.is_of_client = action.is_of_client
            _log.handle(record)

    def _show_tables(self, action: actions.ShowTables) -> None:
        if self._on_open is None:  # else whoever is called tells it in words of its own
            for table in tables.startup_tables(
                self._options, action.models, action.backends, self._gpus, self._log.outlet
            ):
                _log.info("", extra={"raw": table})

    def _exit(self, action: actions.Exit) -> None:
        self.exit_status = action.status


_STARTS = (actions.Spawn, actions.SpawnStub, actions.PrepareEnvironment, actions.StartSpare)
#: The answers to actions that could not be performed.
_ANSWERS_OF_FAILURES: dict[type[actions.Action], Callable[[ActionRunner, InternalError], Any]] = {
    actions.ReadModel: lambda runner, failure: ReadFailure(failure.reason),
    actions.ListRepository: lambda runner, failure: failure,
    actions.LookAtPorts: lambda runner, failure: True,
    actions.LookAtFiles: lambda runner, failure: actions.FileReport({}, 0.0),
    actions.ChangeRepositories: lambda runner, failure: failure,
    actions.ReadStacks: lambda runner, failure: {},
    actions.OpenRegion: lambda runner, failure: failure,
    actions.CloseRegion: lambda runner, failure: frozenset(),
}
_HANDLERS: dict[type[actions.Action], Callable[[ActionRunner, Any], object]] = {
    actions.Spawn: lambda runner, action: runner._spawner.spawn(action),
    actions.SpawnStub: lambda runner, action: runner._spawner.spawn_stub(action),
    actions.Pin: lambda runner, action: runner._children.pin(*action),
    actions.EndTemplate: lambda runner, action: runner._children.templates.end(*action),
    actions.PrepareEnvironment: lambda runner, action: runner._spawner.prepare_environment(action),
    actions.StartSpare: lambda runner, action: runner._spawner.start_spare(action),
    actions.AdmitGuest: lambda runner, action: runner._children.guests.admit(action.serial),
    actions.Send: ActionRunner._send,
    actions.KeepSegments: lambda runner, action: runner._children.segments.keep(*action),
    actions.Signal: lambda runner, action: runner._children.signal(*action),
    actions.GiveUpThread: lambda runner, action: runner._children.give_up_thread(*action),
    actions.ReadModel: lambda runner, action: runner._answer(action, runner._lookups.read(action)),
    actions.CancelReading: lambda runner, action: runner._lookups.cancel(action.ticket),
    actions.KeepDecisions: lambda runner, action: runner._core.plan.tell(
        runner._keep_decisions(action)
    ),
    actions.InBackground: lambda runner, action: runner._answer(
        action, runner._background.submit(action.call)
    ),
    actions.ReadStacks: lambda runner, action: runner._answer(
        action, runner._children.stacks.read(action.serials)
    ),
    actions.RemoveDirectory: ActionRunner._remove_files,
    actions.ListRepository: lambda runner, action: runner._answer_later(
        action, runner._repositories.list(action)
    ),
    actions.LookAtFiles: lambda runner, action: runner._answer_later(
        action, runner._repositories.look(action.models)
    ),
    actions.ChangeRepositories: lambda runner, action: runner._answer_later(
        action, runner._repositories.change(action)
    ),
    actions.OpenRegion: ActionRunner._open_region,
    actions.CloseRegion: ActionRunner._close_region,
    actions.PrepareToListen: ActionRunner._prepare_to_listen,
    actions.TellOpen: ActionRunner._tell_open,
    actions.StopListening: ActionRunner._stop_listening,
    actions.GiveSockets: ActionRunner._give_sockets,
    actions.GiveOutput: lambda runner, action: runner._children.send_several(
        action.caller, wire.CallResult(action.call_id, 0, "", action.document), (1, 2)
    ),
    actions.LookAtPorts: lambda runner, action: runner._core.plan.answer(
        action.ticket, runner._shared_ports.look()
    ),
    actions.SendElsewhere: lambda runner, _: runner._shared_ports.send_elsewhere(),
    actions.TakeClientsBack: lambda runner, _: runner._shared_ports.take_back(),
    actions.Log: ActionRunner._write_log,
    actions.NotifyServiceManager: lambda runner, action: runner._notifier.send(action.text),
    actions.ConfigureLogging: lambda _, action: logs.change(action.options),
    actions.ShowTables: ActionRunner._show_tables,
    actions.PrintError: lambda runner, action: runner.error_texts.append(action.text),
    actions.Exit: ActionRunner._exit,
}
