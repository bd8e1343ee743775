"""The starts of processes: as new programs, or as forks or threads of others.

Each child begins with a lifeline, and a pipe for its output; afterwards `Children` takes care of
it.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Protocol

from zmqtriton.environments.demand import Environment, variable_overrides
from zmqtriton.environments.users import StubUser
from zmqtriton.logs.log_ring import StubName
from zmqtriton.supervisor.actions import StartSpare, Template
from zmqtriton.supervisor.events import EventRouter
from zmqtriton.supervisor.machine import clock
from zmqtriton.supervisor.machine.processes import commands
from zmqtriton.supervisor.machine.processes import process as processes
from zmqtriton.supervisor.machine.processes.child import (
    Child,
    LivingChildren,
)
from zmqtriton.supervisor.machine.processes.fork_server import (
    ForkedStub,
    ForkServerLife,
    PendingStub,
    RenewedTemplate,
    StubSpec,
)
from zmqtriton.supervisor.machine.processes.output import unblock
from zmqtriton.supervisor.machine.processes.process import ChildProcess
from zmqtriton_floor import endpoints, stub_mark, wire
from zmqtriton_floor.lifeline import Lifeline, pair

_log = logging.getLogger(__name__)


def _connections(own: ExitStack, ends: ExitStack) -> tuple[Any, Any, int, int]:
    """Return the ends of a child's lifeline, and of the pipe for its output, ours first.

    `own` closes our end of the lifeline and of the pipe, `ends` closes the child's.
    """
    ours, theirs = pair()
    own.callback(ours.close)
    ends.callback(theirs.close)
    reading, writing = os.pipe2(os.O_CLOEXEC)
    own.callback(os.close, reading)
    ends.callback(os.close, writing)
    return ours, theirs, reading, writing


def _start(
    child: Child,
    command: Callable[[int], Sequence[str]],
    inherited: Sequence[int],
    stub: StubName | None,
    **how: Any,
) -> tuple[ChildProcess, int]:
    """Return the process and the reading end of its output. Raises OSError."""
    with ExitStack() as ends, ExitStack() as own:
        if child.progress_page is not None:
            own.callback(os.close, child.progress_page)
        ours, theirs, reading, writing = _connections(own, ends)
        if stub is None:
            how["environment"] = {**(how.get("environment") or {}), **unblock(writing)}
        else:
            how["is_stub"] = True
        end = theirs.fileno()
        try:
            process = processes.spawn(
                command(end), descriptors=(end, *inherited), output=writing, **how
            )
        except subprocess.SubprocessError as error:
            raise OSError(str(error)) from error
        own.pop_all()
    child.lifeline = Lifeline(ours)
    return process, reading


def _stub_child(spec: StubSpec) -> Child:
    if spec.is_template:
        return Child(spec.serial, can_fork=True, is_template=True, quota=spec.quota)
    return Child(spec.serial, progress_page=spec.page, cores=spec.cores, quota=spec.quota)


class StartedChildren(LivingChildren, Protocol):
    """The children, as a start needs them."""

    fork_server: ForkServerLife

    def begin(
        self, child: Child, process: ChildProcess, reading: int, stub: StubName | None
    ) -> None:
        """Watch a process that was started, and report it."""

    def begin_thread(self, child: Child, reading: int, spec: StubSpec, thread: int) -> None:
        """Take over a stub that is a thread."""

    def update_write_interest(self, child: Child) -> None:
        """Watch for room to write as long as messages wait."""

    def signal(self, serial: int, number: int, group: bool = False) -> None:
        """Send a signal."""

    def kill(self, serial: int, reason: str) -> None:
        """Kill a process, and log the reason."""


class Starts:
    def __init__(self, children: StartedChildren, listener: EventRouter, directory: str) -> None:
        """Set up; the runtime directory marks the processes of models as this server's."""
        self._children = children
        self._listener = listener
        self._directory = directory
        self.send, self.signal, self.kill = children.send, children.signal, children.kill
        #: Variables of models that differ from the server's; None is one that they do not get.
        self.model_variables: Mapping[str, str | None] = {}

    def spawn(
        self,
        serial: int,
        command: Callable[[int], Sequence[str]],
        *,
        inherited: Sequence[int] = (),
        stub: StubName | None = None,
        child: Child | None = None,
        **how: Any,
    ) -> None:
        """Start the command that `command` makes of the lifeline's number.

        The child owns a stub's page from now on, which is closed after its death. If the command
        cannot be started, this is reported as the child's end.
        """
        child = child or Child(serial)
        try:
            process, reading = _start(child, command, inherited, stub, **how)
        except OSError as error:
            self._listener.process_ended(serial, processes.not_started(error))
        else:
            self._children.begin(child, process, reading, stub)

    def spawn_fork_server(self, serial: int) -> None:
        self.spawn(
            serial,
            commands.fork_server_command,
            child=Child(serial, can_fork=True),
            is_stub=True,
            oom_score=processes.oom_score_of("fork-server"),
            environment={
                **self.model_variables,
                stub_mark.VARIABLE: stub_mark.mark(self._directory, serial),
            },
            keeps_privileges=True,
        )
        if self._children.find(serial) is not None:
            self._children.fork_server.started(serial)

    def spawn_spare(self, action: StartSpare, user: StubUser | None) -> None:
        self.spawn(
            action.serial,
            lambda line: commands.at_leisure(commands.spare_command(action.environment, line)),
            environment=self._variables(action.environment, action.serial),
            stub=StubName(action.model, "spare"),
            child=Child(action.serial, can_fork=True, is_spare=True),
            user=user,
        )

    def _variables(self, environment: Environment, serial: int) -> dict[str, str | None]:
        """Return the variables of a process of models that differ from the server's own."""
        overrides = variable_overrides(environment, os.environ)
        return {
            **self.model_variables,
            **overrides,
            stub_mark.VARIABLE: stub_mark.mark(self._directory, serial),
        }

    def spawn_stub(self, spec: StubSpec) -> None:
        """Start a stub, or a template, as a new program."""
        try:
            inherited = self._own_descriptors(spec)
        except OSError as error:
            os.close(spec.page)
            self._listener.process_ended(spec.serial, processes.not_started(error))
            return

        def command(line: int) -> list[str]:
            words = commands.stub_command(spec, (line, *inherited))
            _log.debug("Starting Python backend stub: %s", shlex.join(words))
            return commands.at_leisure(words)

        self.spawn(
            spec.serial,
            command,
            inherited=inherited,
            environment={
                **self._variables(spec.environment, spec.serial),
                **spec.variables,
            },
            stub=spec.stub,
            child=_stub_child(spec),
            user=spec.user,
        )
        for listener in inherited[1:]:
            os.close(listener)

    def _own_descriptors(self, spec: StubSpec) -> list[int]:
        """Return a stub's page and its new listening socket; a template has neither."""
        return (
            [] if spec.is_template else [spec.page, endpoints.listen(self._directory, spec.serial)]
        )

    def spawn_template(self, spec: StubSpec) -> None:
        """Start the template of a stub; the stub is a fork or a thread of it."""
        self._children.fork_server.start(spec.of_template())

    def report(self, serial: int, message: wire.Kept) -> None:
        """Pass on a template's report on kept objects."""
        self._listener.message_received(serial, message)

    def fail_stub(self, serial: int, failure: wire.LoadFailed | None, reason: wire.Reason) -> None:
        """Report the end of a stub that was never forked."""
        if failure is not None:
            self._listener.message_received(serial, failure)
        self._listener.process_ended(serial, reason)

    def request_fork(self, fork_server: int, spec: StubSpec) -> PendingStub:
        """Request a stub or a template.

        Raises OSError if there are too few descriptors, or if the spare process has ended.
        """
        origin = self._children.find(fork_server)
        if origin is None:
            raise ProcessLookupError
        template = spec.template
        is_renewal = spec.is_template and origin.is_template
        if template is not None and template.has_threads and is_renewal:
            return self._request_renewal(origin, template)
        # a template, or a spare process, runs as the model's user already
        user = None if origin.is_template or origin.is_spare else spec.user
        options, words = commands.stub_arguments(spec)
        request = {
            "instance": spec.stub.instance,
            "options": options,
            "words": words,
            "mark": stub_mark.mark(self._directory, spec.serial),
            "oom_score": processes.STUB_OOM_SCORE,
            "user": user and {**user._asdict(), "variables": user.variables},
            "cores": spec.cores,
            "template": 0 if template is None else template.serial,
            "variables": {**spec.variables},
        }
        _log.debug(
            "Starting Python backend stub: %s, a copy of process %d",
            spec.stub.instance,
            origin.pid,
        )
        with ExitStack() as ends, ExitStack() as own:
            ours, theirs, reading, writing = _connections(own, ends)
            inherited = self._own_descriptors(spec)
            for listener in inherited[1:]:
                ends.callback(os.close, listener)
            origin.lifeline.send(
                wire.Call(spec.serial, "fork", json.dumps(request)),
                theirs.fileno(),
                *inherited,
                writing,
            )
            own.pop_all()
        child = _stub_child(spec)
        child.lifeline = Lifeline(ours)
        self._children.update_write_interest(origin)
        if template is not None and template.has_threads and not spec.is_template:
            child.host = fork_server
            begin = partial(self._children.begin_thread, child, reading, spec)
        else:
            begin = partial(self._begin_fork, child, reading, spec)
        return ForkedStub(child, reading, begin)

    def _request_renewal(self, origin: Child, template: Template) -> RenewedTemplate:
        """Send the load of new code to the process with the threads of earlier code."""
        request = json.dumps({"load": template.load, "origin": template.origin})
        origin.lifeline.send(wire.Call(template.serial, "renew", request))
        self._children.update_write_interest(origin)
        return RenewedTemplate(
            lambda pid: self._listener.process_started(template.serial, origin.pid, clock.now_s())
        )

    def _begin_fork(self, child: Child, reading: int, spec: StubSpec, pid: int) -> None:
        self._children.begin(child, ChildProcess.from_orphan(pid), reading, spec.stub)
