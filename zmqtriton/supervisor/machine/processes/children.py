"""The children in the service's loop: descriptors to watch, messages to pass on, deaths to report.

A death is reported after everything that the dead process has sent. The end of its lifeline alone
proves nothing, since a child of the model may hold the lifeline open.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import time
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from zmqtriton.host.cores import pin_to_cores
from zmqtriton.logs.guard import guarded
from zmqtriton.logs.log import LogOutlet
from zmqtriton.logs.log_ring import LogRing, StubName
from zmqtriton.supervisor.events import EventRouter
from zmqtriton.supervisor.machine import clock
from zmqtriton.supervisor.machine.directories.runtime import RuntimeDirectory
from zmqtriton.supervisor.machine.memory.region_files import RegionFiles
from zmqtriton.supervisor.machine.memory.segments import SEGMENT_MESSAGES, SegmentRegistry
from zmqtriton.supervisor.machine.processes import process as processes
from zmqtriton.supervisor.machine.processes.child import (
    Child,
    FrozenProcesses,
    LastPages,
    ReadinessLifelines,
    StreamSockets,
)
from zmqtriton.supervisor.machine.processes.fork_server import ForkServerLife, StubSpec
from zmqtriton.supervisor.machine.processes.guests import Guests
from zmqtriton.supervisor.machine.processes.output import Outputs, log_line
from zmqtriton.supervisor.machine.processes.process import ChildProcess
from zmqtriton.supervisor.machine.processes.quotas import QuotaEnforcement
from zmqtriton.supervisor.machine.processes.stacks import StackReader
from zmqtriton.supervisor.machine.processes.starts import Starts
from zmqtriton.supervisor.machine.processes.templates import SHARED, Templates
from zmqtriton_floor import wire
from zmqtriton_floor.lifeline import NO_LIMIT, Lifeline

_log = logging.getLogger(__name__)

#: Maximum number of packets of a child in a turn of the loop: a model may log without end.
_MOST_PACKETS = 64


def _unregister(selector: selectors.BaseSelector, descriptor: Any) -> None:
    with suppress(KeyError, ValueError):  # it had ended by itself before
        selector.unregister(descriptor)


@dataclass
class _Death:
    """The facts about the end of a child."""

    reason: wire.Reason
    crash: str = ""
    words: str = ""
    had_begun: bool = False


class Children:
    def __init__(
        self,
        selector: selectors.BaseSelector,
        listener: EventRouter,
        segment_bytes: int,
        runtime: RuntimeDirectory,
        staged: Container[str],
        *,
        outlet: LogOutlet,
        ring: LogRing,
        regions: RegionFiles | None = None,
    ) -> None:
        """Set up; `segment_bytes` limits the shared memory of all processes together.

        The runtime directory marks the processes of models as this server's, and has their files;
        the `staged` ones are loads'. `regions` are those of clients that stubs may open.
        """
        directory = str(runtime.path)
        self._selector = selector
        self._listener = listener
        self._runtime, self._staged = runtime, staged
        self._children: dict[int, Child] = {}
        #: The pids of those that this process reaps, with those that others add here.
        self.pids: set[int] = set()
        self.segments = SegmentRegistry(segment_bytes, self.send, regions=regions)
        self.starts = Starts(self, listener, directory)
        self.fork_server: ForkServerLife = ForkServerLife(self.starts)
        self.templates: Templates = Templates(self.starts)
        self.guests: Guests = Guests(selector, listener, self, directory)
        self._probes = ReadinessLifelines(selector, listener)
        self.stream_sockets = StreamSockets(directory, self)
        self.quotas = QuotaEnforcement(self._children, self.segments, self._memory_exceeded)
        self._last_pages = LastPages()
        self.frozen = FrozenProcesses(self, listener)
        self._outputs = Outputs(selector, outlet, ring)
        self.stacks = StackReader(selector, self._children)

    def find(self, serial: int) -> Child | None:
        return self._children.get(serial)

    def all(self) -> list[Child]:
        return list(self._children.values())

    def stub_pids(self) -> set[int]:
        return {c.pid for c in self._children.values() if c.output is not None}

    # --------------------------------------------------------------- beginnings

    def begin(
        self, child: Child, process: ChildProcess, reading: int, stub: StubName | None
    ) -> None:
        """Watch a process that was started, and report it."""
        child.process, child.pid = process, process.pid
        self.pids.add(process.pid)
        try:
            self._watch_process(child, process, reading, stub)
        except OSError as error:
            process.signal(signal.SIGKILL, group=True)
            process.reap()
            if child.output is None and child.read_rest is None:
                os.close(reading)
            self.remove(child, processes.ended(f"it cannot be watched: {error}"))
        else:
            self._listener.process_started(child.serial, process.pid, clock.now_s())
            if child.is_template:
                self.templates.started(child.serial)

    def _watch_process(
        self, child: Child, process: ChildProcess, reading: int, stub: StubName | None
    ) -> None:
        if child.cores:
            pin_to_cores(process.pid, child.cores)
        self.quotas.begin(child)
        self.watch(child)
        # Not guarded by its end: it is the end.
        self._selector.register(
            process.pidfd, selectors.EVENT_READ, lambda: self._handle_process_exit(child)
        )
        if stub is None:
            child.read_rest = self._outputs.follow_process(reading, process.pid)
        else:
            child.output = self._outputs.follow_stub(reading, stub, process.pid)

    def begin_thread(self, child: Child, reading: int, spec: StubSpec, thread: int) -> None:
        """Take over a stub that is a thread; its process's limits count for it."""
        child.pid, child.thread = self._children[child.host].pid, thread
        child.quota = spec.quota.of_segments()
        self.watch(child)
        child.output = self._outputs.follow_stub(reading, spec.stub, child.pid)
        self._listener.process_started(child.serial, child.pid, clock.now_s())

    def _memory_exceeded(self, serial: int, reason: wire.Reason) -> None:
        child = self._children.get(serial)
        if child is not None and child.is_template:
            self.templates.kill(serial, reason)
        else:
            self._listener.memory_exceeded(serial, reason)

    def add_caller(self, serial: int, line: Lifeline, pid: int) -> None:
        """Add a caller on the control socket."""
        caller = Child(serial, caller_pid=pid)
        caller.lifeline = line
        self.watch(caller)

    def watch(self, child: Child) -> None:
        self._children[child.serial] = child
        self._selector.register(
            child.lifeline,
            selectors.EVENT_READ,
            partial(self._handle_lifeline_event, child),
        )

    def kill(self, serial: int, reason: str) -> None:
        """Kill a process with which communication failed, or drop a caller."""
        child = self._children.get(serial)
        if child is not None and child.pid and not child.is_users:
            _log.error("process %d is killed: %s", child.pid, reason)
            self.signal(serial, signal.SIGKILL, group=child.process is not None)
        elif child is not None:
            self.remove(child, processes.ended(reason))

    # --------------------------------------------------------------- talking

    def send(self, serial: int, message: Any, descriptor: int | None = None) -> None:
        """Send a message and a copy of the descriptor.

        The message to a dead process is lost; the death is reported separately.
        """
        child = self._children.get(serial)
        is_probe = type(message) is wire.Call and message.verb == "is_ready"
        if child is not None and child.progress_page is not None and is_probe:
            self._probes.send(serial, message)
            return
        if child is not None and type(message) is wire.ReadinessLifeline:
            end = self._probes.open(serial)
            child.lifeline.send(message, end)
            os.close(end)
            return
        if type(message) is wire.AttachInstance:  # the broker reads there what the stub has begun
            stub = self._children.get(message.serial)
            descriptor = (stub and stub.progress_page) or self._last_pages.find(message.serial)
        self.send_several(serial, message, () if descriptor is None else (descriptor,))

    def send_several(self, serial: int, message: Any, descriptors: Iterable[int]) -> None:
        """Send a message and copies of all these descriptors."""
        child = self._children.get(serial)
        if child is not None:
            child.lifeline.send(message, *descriptors)
            self.update_write_interest(child)

    def update_write_interest(self, child: Child) -> None:
        """Watch for room to write as long as messages wait."""
        has_backlog = child.lifeline.is_backed_up and not child.lifeline.ended
        if has_backlog != child.is_watched_for_writing:
            child.is_watched_for_writing = has_backlog
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if has_backlog else 0)
            self._selector.modify(
                child.lifeline, events, partial(self._handle_lifeline_event, child)
            )

    def _handle_lifeline_event(self, child: Child) -> None:
        """Handle what a child has sent; it ends if that fails."""
        with guarded(
            f"what process {child.pid} has sent", lambda error: self.kill(child.serial, str(error))
        ):
            if child.serial in self._children:
                self._handle_input(child)

    def _handle_input(self, child: Child) -> None:
        if child.is_watched_for_writing:
            child.lifeline.flush()
            self.update_write_interest(child)
        self.receive(child, _MOST_PACKETS)
        if child.lifeline.ended:
            self._selector.unregister(child.lifeline)
            if child.process is None and not child.host:
                # Nothing else shows the end of a caller, or of a process that is not our child.
                self.remove(
                    child,
                    processes.ended(f"its {'thread' if child.guest else 'lifeline'} has ended"),
                )

    def receive(self, child: Child, most_packets: int = NO_LIMIT) -> None:
        before = child.lifeline.malformed
        for message, passed in child.lifeline.receive(most_packets):
            if isinstance(message, wire.WorkerForked) and passed and child.can_fork_workers:
                self._adopt_worker(message.pid, passed.pop(0))
            elif isinstance(message, wire.LogLine):
                log_line(message, child.pid, child.output)
            elif child.is_template:
                self._handle_template_message(child, message)
            elif child.can_fork:
                self._handle_fork_message(child, message)
            elif isinstance(message, SEGMENT_MESSAGES) and child.pid:
                self.segments.handle_message(child.serial, message, child.quota)
            else:
                self._listener.message_received(child.serial, message)
            for descriptor in passed:
                os.close(descriptor)
        if child.lifeline.malformed != before:
            self._listener.messages_malformed(child.lifeline.malformed - before)
            if not before:
                _log.warning(
                    "process %d sent a malformed message; further ones will only be counted",
                    child.pid,
                )

    def _handle_fork_message(self, child: Child, message: Any) -> None:
        """Handle a message of a process that forks, which a model may have made."""
        match message:
            case wire.CallResult() if child.is_spare and not message.id:
                self._listener.message_received(child.serial, message)
            case wire.CallResult():
                self.fork_server.answered(message.id, int(message.result or 0))
            case wire.Synced() if not child.is_spare:
                self.fork_server.ready()
            case wire.LoadFailed() if not child.is_spare:
                self._listener.message_received(child.serial, message)

    def _handle_template_message(self, child: Child, message: Any) -> None:
        match message:
            case wire.Synced():
                self.templates.ready(child.serial)
            case wire.CallResult():
                pid = int(message.result or 0)
                self.templates.answered(child.serial, message.id, pid, message.text)
            case wire.LoadFailed():
                self.templates.failed(child.serial, message)
            case wire.Kept():
                self.templates.kept(child.serial, message)
            case wire.ThreadEnded():
                thread = self._children.get(message.serial)
                if thread is not None and thread.host == child.serial:
                    self.end(thread, processes.ended("its thread has ended"))

    def _adopt_worker(self, pid: int, descriptor: int) -> None:
        line = Lifeline.inherited(descriptor)
        child = Child(self._listener.worker_forked(pid, clock.now_s()), pid)
        child.lifeline = line
        with suppress(OSError):  # dead already, which the end of its lifeline shows, too
            child.pidfd = os.pidfd_open(pid)
        self.watch(child)

    # -------------------------------------------------------------- watching

    def reap_orphans(self) -> None:
        """Reap orphans; called once a second."""
        # One of them may be a child whose death is not noticed yet, and its status is needed.
        if not (self.fork_server.is_under_way or self.templates.is_under_way):
            processes.reap_orphans(self.pids)
            self._kill_strays()

    def _kill_strays(self) -> None:
        """Kill processes in other groups that dead stubs have left to this process."""
        processes.kill_strays(
            str(self._runtime.path),
            self.pids,
            lambda one: (
                one in self._children
                or any(way.may_come(one) for way in (self.fork_server, self.templates))
            ),
        )

    def pin(self, serial: int, cores: tuple[int, ...]) -> None:
        """Move an instance to these cores; of a thread, not those that it has started."""
        child = self._children.get(serial)
        if child is not None and child.host:
            os.sched_setaffinity(child.thread, cores)
        elif child is not None:
            pin_to_cores(child.pid, cores)

    def signal(self, serial: int, number: int, group: bool = False, thread: str = "") -> None:
        child = self._children.get(serial)
        if child is not None and child.host:
            if number == signal.SIGABRT and processes.signal_thread(child.pid, child.thread):
                return  # by Python's report the one that hangs is the current thread
            child = self._children.get(child.host)
        if child is None:
            return
        if child.is_guest:
            if number == signal.SIGKILL:  # it is the user's process, which goes on without us
                child.lifeline.hang_up()
        elif child.guest:
            self.guests.signal(child, number)
        elif child.process is not None:
            child.process.signal(number, group, thread)
        elif child.pidfd is not None:
            with suppress(ProcessLookupError):  # its lifeline ends at this moment
                signal.pidfd_send_signal(child.pidfd, number)

    # ------------------------------------------------------------------- ends

    def give_up_thread(self, serial: int, reason: wire.Reason) -> None:
        """End a thread's part in the server; it ends by itself if it ever comes so far."""
        child = self._children.get(serial)
        if child is not None and child.host:
            self.send(child.host, wire.ThreadEnded(serial))
            self.end(child, reason)

    def _handle_process_exit(self, child: Child) -> None:
        if child.serial in self._children and child.process is not None:
            _unregister(self._selector, child.process.pidfd)
            self.end(child, child.process.reap())

    def end(self, child: Child, reason: wire.Reason, crash: str = "") -> None:
        """Pass on what a dead child has sent, and remove it.

        `crash` is the report if the process of a thread has crashed.
        """
        with guarded(f"what process {child.pid} has sent"):
            self.receive(child)
        self.remove(child, reason, crash)

    def remove(self, child: Child, reason: wire.Reason, crash: str = "") -> None:
        """Remove a dead child: all that its end means, by `_MEANINGS`."""
        del self._children[child.serial]
        reason = self.segments.explain_death(child.serial, self.quotas.end(child, reason))
        death = _Death(reason, crash)
        for is_of, handle in _MEANINGS:
            if is_of(child):
                handle(self, child, death)

    def _close_lifelines(self, child: Child, _: _Death) -> None:
        _unregister(self._selector, child.lifeline)
        child.lifeline.close()
        self._probes.close(child.serial)

    def _close_output(self, child: Child, death: _Death) -> None:
        assert child.output is not None
        child.output.close()
        death.words, death.crash = child.output.last_words, child.output.crash or death.crash

    def _keep_page(self, child: Child, death: _Death) -> None:
        assert child.progress_page is not None
        death.had_begun = self._last_pages.keep(child.serial, child.progress_page)

    def _close_pidfd(self, child: Child, _: _Death) -> None:
        assert child.pidfd is not None
        _unregister(self._selector, child.pidfd)
        os.close(child.pidfd)

    def _end_template(self, template: Child, death: _Death) -> None:
        """Handle the end of a template: its threads have ended with it."""
        threads = [one for one in self._children.values() if one.host == template.serial]
        self._listener.process_ended(template.serial, death.reason)
        reason = self.templates.ended(template.serial, death.reason, death.words)
        if len(threads) > 1:
            reason = reason._replace(text=f"{SHARED} has ended: {reason.text}")
        for thread in threads:
            self.end(thread, reason, death.crash)

    def _report(self, child: Child, death: _Death) -> None:
        self._listener.process_ended(
            child.serial, death.reason, death.words, death.crash, death.had_begun
        )

    def _kill_what_is_left(self, _: Child, __: _Death) -> None:
        with guarded("the search for what a stub has left"):
            self._kill_strays()

    def kill_all(self, within_s: float) -> None:
        """Kill all remaining children and wait until they have ended."""
        self.fork_server.close()
        self.templates.close()
        for child in list(self._children.values()):
            if not child.is_users:
                self.signal(child.serial, signal.SIGKILL, group=True)
        deadline_s = time.monotonic() + within_s
        for child in list(self._children.values()):
            if child.process is None:
                if child.serial in self._children:  # an instance leaves with its guest
                    self.remove(child, processes.ended("the server has ended"))
            else:
                left_s = max(0.0, deadline_s - time.monotonic())
                if not processes.await_ends([child.process.pidfd], left_s):
                    self._handle_process_exit(child)
        self._last_pages.close()
        self._outputs.close()
        self.stacks.close()
        processes.kill_orphans(max(0.0, deadline_s - time.monotonic()), self.pids)


#: The meanings of the end of a child in their order: a test of the child, and the step.
_MEANINGS: tuple[
    tuple[Callable[[Child], object], Callable[[Children, Child, _Death], object]], ...
] = (
    (lambda child: not child.host, lambda own, child, _: own.pids.discard(child.pid)),
    (lambda child: True, lambda own, child, _: own.segments.process_died(child.serial)),
    (lambda child: True, Children._close_lifelines),
    (lambda child: child.output is not None, Children._close_output),
    (lambda child: child.read_rest, lambda own, child, _: child.read_rest and child.read_rest()),
    (lambda child: child.progress_page is not None, Children._keep_page),
    (lambda child: child.pidfd is not None, Children._close_pidfd),
    (
        lambda child: True,
        lambda own, child, _: own._runtime.remove_process_files(child.serial, own._staged),
    ),
    (lambda child: child.output is not None, Children._kill_what_is_left),
    (lambda child: child.is_template, Children._end_template),
    (
        lambda child: child.can_fork and not child.is_template,
        lambda own, child, _: own.fork_server.ended(child.serial),
    ),
    (lambda child: child.pid and not child.is_template, Children._report),
    (lambda child: not child.pid, lambda own, child, _: own._listener.caller_ended(child.serial)),
    (
        lambda child: child.is_guest,
        lambda own, child, death: own.guests.end_instances(child.serial, death.reason),
    ),
)
