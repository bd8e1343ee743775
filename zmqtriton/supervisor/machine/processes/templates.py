"""The templates of models whose instances are forks or threads, as the supervisor uses them.

A template is started for its first stub. A dead template is started again: at once if it has served
a while or a stub waits for it, else for the next stub. If it cannot load its model, the stubs that
wait for it fail with its reason, and the rules for their restarts apply.

The template of changed code is a fork of the earlier template, if the fork can keep the objects of
preload(); else it is started like the first one. If the instances are threads, it is the process
of the earlier code itself, if the new code has adopt(). Decides only; a `TemplateSpawner` acts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from zmqtriton.supervisor.actions import Template
from zmqtriton.supervisor.machine.processes.fork_server import PendingStub, StubSpec
from zmqtriton_floor import wire
from zmqtriton_floor.reasons import Kind, Reason

#: A fork takes milliseconds, of a process with much memory some more.
_FORK_WITHIN_S = 10.0
#: Time to import changed code in the process of the earlier code.
_RENEW_WITHIN_S = 30.0
#: Seconds of service after which a dead template is made again before a stub needs it.
_PROVEN_AFTER_S = 10.0
#: The process of an instance that is a thread, in words.
SHARED = "the process of its instances"
#: Report of changed code that runs in the process of the earlier code.
_ADOPTED = "what adopt() has taken from the earlier instances"
#: Maximum number of templates that may die while they fork a stub, before the stub counts as dead.
_MAX_TRIES = 2


class TemplateSpawner(Protocol):
    """Starts templates and stubs, and sends them signals and messages."""

    def spawn_template(self, spec: StubSpec) -> None:
        """Start the template of a stub; the end of the stub is reported if this fails."""

    def request_fork(self, fork_server: int, spec: StubSpec) -> PendingStub:
        """Request a stub from the template. Raises OSError if it cannot be reached."""

    def fail_stub(self, serial: int, failure: wire.LoadFailed | None, reason: Reason) -> None:
        """Report the end of a stub that has never started, with the output of its template."""

    def signal(self, serial: int, number: int, group: bool = False) -> None:
        """Send a signal to the process with this serial number."""

    def send(self, serial: int, message: wire.LoadModel | wire.Finalize) -> None:
        """Send a message to the process with this serial number."""

    def report(self, serial: int, message: wire.Kept) -> None:
        """Pass on a template's report on the objects that it has kept of the earlier one."""


@dataclass
class _Request:
    """A stub or a template to be forked; `pending` once it was requested from its origin."""

    spec: StubSpec
    tries: int = 0
    pending: PendingStub | None = None
    until_s: float = 0.0

    def drop(self) -> None:
        """Release its descriptors, because the process does not come."""
        if self.pending is not None:
            self.pending.drop()
        if not self.spec.is_template:  # which has no page
            os.close(self.spec.page)


@dataclass
class _Template:
    #: The first stub, which gives the template all other parameters.
    first: StubSpec
    own: Template
    #: Serial of its process, which it may share with the earlier code.
    process: int
    #: The stubs to fork by serial, in the order of their requests.
    requests: dict[int, _Request] = field(default_factory=dict)
    is_alive: bool = False
    ready_at_s: float | None = None
    #: Time by which the template must be ready; None without a limit, and once it is ready.
    until_s: float | None = None
    #: Report of the template that its load has failed, and the reason of the server to kill it.
    failure: wire.LoadFailed | None = None
    verdict: Reason | None = None
    #: Why it can keep nothing of its origin, as it has reported.
    why_not_kept: str = ""


class Templates:
    def __init__(
        self, spawner: TemplateSpawner, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._spawner = spawner
        self._now_s = now_s
        self._templates: dict[int, _Template] = {}

    @property
    def is_under_way(self) -> bool:
        """True if a process may have become a child of this one and is not yet known."""
        return any(request.pending for request in self._requests())

    def may_come(self, serial: int) -> bool:
        """Return whether a stub may have been forked and is not yet known."""
        return any(r.pending and r.spec.serial == serial for r in self._requests())

    def _requests(self) -> Iterator[_Request]:
        return (r for template in self._templates.values() for r in template.requests.values())

    def start(self, spec: StubSpec) -> None:
        """Let a stub be forked."""
        assert spec.template is not None
        number = spec.template.serial
        template = self._templates.get(number)
        if template is None:
            template = self._templates[number] = _Template(spec, spec.template, number)
        template.requests[spec.serial] = _Request(spec)
        self._fork_or_start(number, template)

    def _fork_or_start(self, number: int, template: _Template) -> None:
        """Ask a ready template for the stubs that wait, or start it."""
        if template.ready_at_s is not None:
            for request in list(template.requests.values()):
                if request.pending is None:
                    self._ask(template, request)
        elif not template.is_alive:
            template.is_alive = True
            template.failure = template.verdict = None
            within_s = template.own.load_within_s
            template.until_s = self._now_s() + within_s if within_s else None
            if template.own.origin:
                self._fork_from_origin(number, template)
            else:
                self._spawner.spawn_template(template.first)

    def _fork_from_origin(self, number: int, template: _Template) -> None:
        origin = self._templates.get(template.own.origin)
        if origin is None or origin.ready_at_s is None:
            self._load_anew(number, "the template that has it had died")
        else:
            request = origin.requests[number] = _Request(template.first.of_template())
            self._ask(origin, request)

    def _load_anew(self, number: int, why: str) -> None:
        """Start the template as a new process, and report why."""
        template = self._templates.get(number)
        if template is not None:
            template.own = template.own._replace(origin=0)
            self._spawner.report(number, wire.Kept(0, why))
            self._spawner.spawn_template(template.first)

    def _ask(self, template: _Template, request: _Request) -> None:
        request.tries += 1
        request.until_s = self._now_s() + (
            _RENEW_WITHIN_S if template.own.has_threads else _FORK_WITHIN_S
        )
        try:
            request.pending = self._spawner.request_fork(template.process, request.spec)
        except OSError as error:
            reason = Reason.of(Kind.NOT_STARTED, f"it cannot be started: {error}")
            self._fail(template, request, reason)

    def _fail(self, template: _Template, request: _Request, reason: Reason) -> None:
        serial = request.spec.serial
        template.requests.pop(serial, None)
        request.drop()
        if request.spec.is_template:
            self._load_anew(serial, reason.text)
        else:
            self._spawner.fail_stub(serial, template.failure, reason)

    # ------------------------------------------------------------ what happens

    def started(self, number: int) -> None:
        """Send a started template its load, or kill it if it must end."""
        template = self._templates.get(number)
        if template is None or template.verdict is not None:
            self._spawner.signal(number, 9, group=True)
        else:
            self._spawner.send(number, template.own.load)

    def ready(self, number: int) -> None:
        template = self._templates.get(number)
        if template is not None:
            template.ready_at_s, template.until_s = self._now_s(), None
            template.own = template.own._replace(origin=0)
            self._fork_or_start(number, template)

    def failed(self, number: int, failure: wire.LoadFailed) -> None:
        """Record a template's report that it cannot load its model; it exits by itself."""
        template = self._templates.get(number)
        if template is not None:
            template.failure = failure

    def kept(self, number: int, report: wire.Kept) -> None:
        """Handle the report of a template's fork, which exits by itself if it keeps nothing."""
        template = self._templates.get(number)
        if template is not None and report.is_kept:
            self._spawner.report(number, report)
        elif template is not None:
            template.why_not_kept = report.text

    def answered(self, number: int, serial: int, pid: int, error: str) -> None:
        """Adopt a new stub that has reported its pid; pid 0 means that the fork failed."""
        template = next((t for t in self._sharing(number).values() if serial in t.requests), None)
        request = template and template.requests[serial]
        if not template or not request or not request.pending:
            return  # too late: its lifeline is closed, so it exits
        is_renewed = request.spec.is_template and template.own.has_threads
        try:
            if not pid:
                raise ProcessLookupError(error)
            request.pending.adopt(pid)
        except OSError as problem:
            text = f"{problem}" if is_renewed else f"it cannot be started: {problem}"
            self._fail(template, request, Reason.of(Kind.NOT_STARTED, text))
        else:
            del template.requests[serial]
            if is_renewed:
                self._templates[serial].process = number
                self._spawner.report(serial, wire.Kept(1, _ADOPTED))
                self.ready(serial)

    def _sharing(self, process: int) -> dict[int, _Template]:
        """Return the templates whose code is in this process; more than one only with threads."""
        return {n: each for n, each in self._templates.items() if each.process == process}

    def ended(self, process: int, reason: Reason, words: str = "") -> Reason:
        """Handle the death of a template's process, and return its reason; its forks live on."""
        for number, template in self._sharing(process).items():
            if number != process:
                self._spawner.fail_stub(number, None, reason)
                template.process = number
            reason = self._ended(number, template, reason, words)
        return reason

    def _ended(self, number: int, template: _Template, reason: Reason, words: str) -> Reason:
        ready_at_s, template.ready_at_s = template.ready_at_s, None
        if (
            ready_at_s is None
            and template.own.origin
            and not (template.failure or template.verdict)
        ):
            text = f"the fork of the template that has it: {reason.text}"
            self._load_anew(number, template.why_not_kept or text)
            return reason
        template.is_alive, template.until_s = False, None
        reason = why = template.verdict or reason
        if template.failure is None:
            name = SHARED if template.own.has_threads else "the template that it is forked from"
            text = f"{name}: {why.text}"
            why = why._replace(text=f"{text}: {words}" if words else text)
        else:
            why = template.failure.reason
        for request in list(template.requests.values()):
            if ready_at_s is None or request.tries >= _MAX_TRIES or request.spec.is_template:
                self._fail(template, request, why)
            elif request.pending is not None:
                request.pending.drop()
                request.pending = None
        has_served = ready_at_s is not None and self._now_s() - ready_at_s >= _PROVEN_AFTER_S
        if template.requests or has_served:
            self._fork_or_start(number, template)
        return reason

    def end(self, number: int, at_once: bool = False) -> None:
        """End a template, which will have no further instances.

        A template with threads ends with its last thread, unless `at_once` is set.
        """
        template = self._templates.pop(number, None)
        if template is None:
            return
        origin = self._templates.get(template.own.origin)
        own = origin.requests.pop(number, None) if origin else None
        if own is not None:
            own.drop()
        why = Reason.of(Kind.OTHER, "its template was ended")
        if template.process != number:
            self._spawner.fail_stub(number, None, why)
        if not self._sharing(template.process):
            self._end_process(template, at_once=at_once)
        for request in list(template.requests.values()):
            self._fail(template, request, why)

    def _end_process(self, template: _Template, *, at_once: bool) -> None:
        if template.own.has_threads and template.ready_at_s is not None and not at_once:
            self._spawner.send(template.process, wire.Finalize())
        elif template.is_alive:
            self._spawner.signal(template.process, 9, group=True)

    def kill(self, process: int, reason: Reason) -> None:
        """Kill a template's process for this reason."""
        sharing = self._sharing(process)
        for template in sharing.values():
            template.verdict = reason
        if sharing:
            self._spawner.signal(process, 9, group=True)

    def tick(self, now_s: float) -> None:
        """Kill templates that are late; called once a second."""
        for number, template in list(self._templates.items()):
            if template.until_s is not None and template.until_s <= now_s:
                template.until_s = None
                limit_s = template.own.load_within_s
                text = f"loading took longer than max_load_seconds ({limit_s:g})"
                self.kill(number, Reason.of(Kind.LOAD_TIMEOUT, text, limit_s=limit_s))
                continue
            late = [r for r in template.requests.values() if r.pending and r.until_s <= now_s]
            if template.own.has_threads:
                text = (
                    "the process of the earlier code has not imported it within "
                    f"{_RENEW_WITHIN_S:g} s"
                )
                for request in (r for r in late if r.spec.is_template):
                    self._fail(template, request, Reason.of(Kind.OTHER, text))
            elif late:
                text = f"it did not fork within {_FORK_WITHIN_S:g} s"
                self.kill(number, Reason.of(Kind.OTHER, text))

    def close(self) -> None:
        """Stop forking."""
        for request in self._requests():
            request.drop()
        self._templates.clear()
