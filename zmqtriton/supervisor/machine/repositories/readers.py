"""The readers: processes for tasks that may take long, or never end. Their number is limited.

A task has a subject, such as a model, in a group, such as a repository. Tasks of one subject are
done one after the other; a group whose tasks do not end occupies only a few readers, and other
groups' tasks get readers of their own. A reader that waits for a disk may resist even a kill: then
it is left behind, without any resource that others need.
"""

from __future__ import annotations

import logging
import selectors
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from zmqtriton.reading.plain import dumps, loads
from zmqtriton.supervisor.machine import clock
from zmqtriton.supervisor.machine.processes.process import ChildProcess, await_ends
from zmqtriton.supervisor.plan import Plan, PlanTimer
from zmqtriton.supervisor.story import Promise
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError, from_number
from zmqtriton_floor.lifeline import Lifeline

_log = logging.getLogger(__name__)

#: Maximum number of readers that have tasks of one group.
PER_GROUP = 8
#: Seconds of all readers' current tasks after which another reader starts; most tasks take less.
_LATE_S = 0.05
#: Seconds without a task after which a reader ends.
_IDLE_S = 30.0
#: Seconds between two attempts to start a reader if the machine allows no more processes.
_RETRY_S = 1.0


class Topic(NamedTuple):
    """The subject of a task."""

    group: str
    subject: str


class Task:
    """A task from its submission to its answer."""

    def __init__(self, topic: Topic, name: str, arguments: tuple[Any, ...]) -> None:
        self.topic = topic
        self.name = name
        self.text = dumps(arguments)
        self.answer = Promise[Any]()
        #: True if it was lost with its reader once.
        self.is_retried = False


class TaskRunner(Protocol):
    """Runs tasks in another process."""

    def submit(self, topic: Topic, name: str, arguments: tuple[Any, ...]) -> Task:
        """Let a task be done."""

    def cancel(self, task: Task) -> None:
        """Expect no answer any more, and end the work if possible."""


@dataclass(eq=False)
class _Reader:
    process: ChildProcess
    line: Lifeline
    #: Time of its start, on the wall clock.
    started_s: float
    task: Task | None = None
    #: Topic of its task, or of its last task if it is ending.
    topic: Topic | None = None
    since_s: float = 0.0
    #: True once its lifeline is closed: the process ends as soon as the kernel lets it.
    is_ended: bool = False
    is_backed_up: bool = False

    def state(self, now_s: float) -> str:
        """Return its present work, in words."""
        if self.topic is None:
            return "ending" if self.is_ended else "idle"
        verb = "cannot be killed while it reads" if self.is_ended else "reads"
        group, subject = self.topic
        return f"{verb} {subject} of {group}, for {now_s - self.since_s:.0f} s"


class Readers:
    """The readers; selector and clock are the service loop's."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        start: Callable[[], tuple[ChildProcess, Lifeline]],
        plan: Plan,
        pids: set[int],
    ) -> None:
        """Set up; `pids` has the children with a ChildProcess, and gets the readers' pids."""
        self._selector = selector
        self._start = start
        self._plan = plan
        self._pids = pids
        self._readers: list[_Reader] = []
        self._waiting: list[Task] = []
        #: Timers for tasks without a reader, and for readers without a task.
        self._late_timer: PlanTimer | None = None
        self._idle_timer: PlanTimer | None = None
        self._is_closed = False

    def submit(self, topic: Topic, name: str, arguments: tuple[Any, ...]) -> Task:
        task = Task(topic, name, arguments)
        self._waiting.append(task)
        self._assign()
        return task

    def cancel(self, task: Task) -> None:
        if task in self._waiting:
            self._waiting.remove(task)
        else:
            for reader in self._readers:
                if reader.task is task:
                    reader.task = None
                    self._end(reader)
                    self._assign()

    def close(self, within_s: float) -> None:
        """End all readers, except those that the kernel does not kill in this time."""
        self._is_closed = True
        self._waiting.clear()
        for reader in self._readers:
            reader.task = None
            self._end(reader)
        living = await_ends([reader.process.pidfd for reader in self._readers], within_s)
        for reader in self._readers:
            self._selector.unregister(reader.process.pidfd)
            if reader.process.pidfd not in living:
                self._pids.discard(reader.process.pid)
                reader.process.reap()
        self._readers.clear()

    def describe(self) -> list[dict[str, Any]]:
        """Describe the processes, for the status."""
        now_s = time.monotonic()
        return [
            {
                "role": "reader",
                "pid": reader.process.pid,
                "started_s": reader.started_s,
                "state": reader.state(now_s),
            }
            for reader in self._readers
        ]

    # ------------------------------------------------------------------- tasks

    def _assign(self) -> None:
        """Give tasks to readers in their order, as far as there are readers for them."""
        for task in list(self._waiting):
            if self._is_closed:
                return
            topics = [reader.topic for reader in self._readers if reader.topic is not None]
            of_group = [topic for topic in topics if topic.group == task.topic.group]
            if task.topic in topics or len(of_group) >= PER_GROUP:
                continue
            reader = self._find_reader()
            if reader is None:
                return
            self._waiting.remove(task)
            self._give(reader, task)

    def _find_reader(self) -> _Reader | None:
        """Return a reader without a task, or a new one if all others are slow; else try later."""
        at_work = [reader for reader in self._readers if not reader.is_ended]
        for reader in at_work:
            if reader.task is None:
                return reader
        pause_s = _LATE_S
        if all(time.monotonic() - reader.since_s >= _LATE_S for reader in at_work):
            try:
                return self._begin()
            except OSError as error:
                _log.error("no process can be started that reads files: %s", error)
                pause_s = _RETRY_S
        if self._late_timer is None:
            self._late_timer = self._plan.call_later(pause_s, self._assign_late)
        return None

    def _assign_late(self) -> None:
        self._late_timer = None
        self._assign()

    def _begin(self) -> _Reader:
        process, line = self._start()
        reader = _Reader(process, line, clock.now_s())
        self._pids.add(process.pid)
        self._readers.append(reader)
        self._selector.register(line, selectors.EVENT_READ, partial(self._handle, reader))
        self._selector.register(
            process.pidfd, selectors.EVENT_READ, partial(self._handle_exit, reader)
        )
        return reader

    def _give(self, reader: _Reader, task: Task) -> None:
        reader.task, reader.topic, reader.since_s = task, task.topic, time.monotonic()
        reader.line.send(wire.Call(0, task.name, task.text))
        self._watch_writing(reader)

    def _end_idle(self) -> None:
        """End the readers that have been idle for a while."""
        self._idle_timer = None
        at_work = [reader for reader in self._readers if not reader.is_ended]
        for reader in at_work:
            if reader.task is None and time.monotonic() - reader.since_s >= _IDLE_S:
                self._end(reader)
        if any(not reader.is_ended for reader in at_work):
            self._watch_idle()

    def _watch_idle(self) -> None:
        if self._idle_timer is None:
            self._idle_timer = self._plan.call_later(_IDLE_S, self._end_idle)

    def _watch_writing(self, reader: _Reader) -> None:
        if reader.line.is_backed_up != reader.is_backed_up and not reader.line.ended:
            reader.is_backed_up = reader.line.is_backed_up
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE * reader.is_backed_up)
            self._selector.modify(reader.line, events, partial(self._handle, reader))

    # ------------------------------------------------------------ what happens

    def _handle(self, reader: _Reader) -> None:
        reader.line.flush()
        self._watch_writing(reader)
        for message, _ in reader.line.receive():
            self._finish(reader, message)
        if reader.line.ended or reader.line.malformed:
            self._lose(reader)

    def _finish(self, reader: _Reader, result: wire.CallResult) -> None:
        task, reader.task = reader.task, None
        reader.topic, reader.since_s = None, time.monotonic()
        self._assign()
        self._watch_idle()
        if task is not None:
            if result.code and result.result:
                _log.error("%s has failed\n%s", task.name, result.result)
            if result.code:
                task.answer.fail(from_number(result.code, result.text, result.reason))
            else:
                task.answer(loads(result.result))

    def _lose(self, reader: _Reader) -> None:
        """Give the task of a lost reader to another one; only once for each task."""
        task, reader.task = reader.task, None
        self._end(reader)
        if task is not None and not task.is_retried:
            task.is_retried = True
            self._waiting.insert(0, task)
            task = None
        self._assign()
        if task is not None:
            task.answer.fail(
                InternalError("the process that read the files has died: load the model again")
            )

    def _end(self, reader: _Reader) -> None:
        if not reader.is_ended:
            reader.is_ended = True
            self._selector.unregister(reader.line)
            reader.line.close()
            reader.process.signal(signal.SIGKILL, group=False)

    def _handle_exit(self, reader: _Reader) -> None:
        self._lose(reader)
        self._selector.unregister(reader.process.pidfd)
        self._readers.remove(reader)
        self._pids.discard(reader.process.pid)
        reader.process.reap()
        self._assign()
