"""The report of a day: what was done, what requests came to, and which promises fell."""

from __future__ import annotations

import shutil
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.faults.days.judging import Cause, Failure, excuse_handed, find_cause
from tests.faults.days.steps import Step
from tests.faults.days.world import World
from tests.faults.mixed_clients import Client
from tests.support.journal import read_journal

_WHOLE_WITHIN_S, _WHOLE_WITHIN_WHILE_STEERED_S = 10.0, 60.0
#: What was done so long before a broken promise is shown with it.
_BEFORE_S = 5.0
_SHOWN = 12


class Recovery(NamedTuple):
    fault: str
    #: Until every kind of client was answered again.
    whole_ms: float
    is_steered: bool
    #: How busy the machine was then.
    patience: float

    @property
    def is_late(self) -> bool:
        max_s = _WHOLE_WITHIN_WHILE_STEERED_S if self.is_steered else _WHOLE_WITHIN_S
        return self.whole_ms > max_s * 1000 * self.patience


class Report:
    def __init__(
        self,
        world: World,
        clients: Sequence[Client],
        steps: Sequence[Step],
        recoveries: Sequence[Recovery],
    ) -> None:
        self._world = world
        self._clients = clients
        self._steps = steps
        self._recoveries = recoveries
        self._begun_in: dict[str, set[int]] = {}
        self.executions: Counter[str] = Counter()
        for record in read_journal(world.server.journal):
            if record.event in ("start", "ask"):
                self._begun_in.setdefault(record.id, set()).add(record.pid)
            self.executions[record.id] += record.event == "start"
        allowed = {own_id: n for client in clients for own_id, n in client.executions_of.items()}
        self.twice = [
            own_id
            for own_id, n in self.executions.items()
            if n > allowed.get(own_id, 1) and own_id != "probe"
        ]
        failures = [
            (self._cause(failure), failure) for client in clients for failure in client.failures
        ]
        self.failures = excuse_handed(failures, world.nemesis.harms)
        self.wrong = [text for client in clients for text in client.wrong]
        self.hung = [text for client in clients for text in client.hung]
        self.late = [r for r in recoveries if r.is_late]

    def _cause(self, failure: Failure) -> Cause:
        begun_in = frozenset(self._begun_in.get(failure.own_id, ()))
        return find_cause(failure, begun_in, self._world.nemesis.harms)

    @property
    def not_allowed(self) -> list[tuple[Cause, Failure]]:
        return [(cause, failure) for cause, failure in self.failures if cause.is_broken_promise]

    @property
    def broken(self) -> int:
        requests = len(self.twice) + len(self.wrong) + len(self.hung) + len(self.not_allowed)
        return requests + len(self.late) + len(self._world.broken)

    def print(self) -> None:
        self._print_steps()
        self._print_requests()
        self._print_broken()

    def _print_steps(self) -> None:
        operations = Counter(name for step in self._steps for name in step.operations)
        faults = Counter(fault.name for step in self._steps for fault in step.faults)
        print(f"{len(self._steps)} steps")
        print(f"{sum(operations.values())} operations: {dict(operations.most_common())}")
        print(f"{sum(faults.values())} faults: {dict(faults.most_common())}")
        print(f"calls: {dict(self._world.calls.most_common())}")
        for text, count in self._world.refusals.most_common(_SHOWN):
            print(f"  {count:4} refused or lost: {text}")
        print(f"{'whole again after':34} {'n':>4} {'min':>8} {'median':>8} {'max':>8} ms")
        single = [r for r in self._recoveries if not r.is_steered]
        for name in sorted({recovery.fault for recovery in single}):
            self._print_times(name, [r.whole_ms for r in single if r.fault == name])
        self._print_times(
            "faults while steered", [r.whole_ms for r in self._recoveries if r.is_steered]
        )

    @staticmethod
    def _print_times(name: str, times: list[float]) -> None:
        if times:
            median = statistics.median(times)
            print(f"{name:34} {len(times):4} {min(times):8.0f} {median:8.0f} {max(times):8.0f}")

    def _print_requests(self) -> None:
        outcomes: dict[str, Counter[str]] = {}
        for client in self._clients:
            outcomes.setdefault(type(client).__name__, Counter()).update(client.outcomes)
        for kind, counts in outcomes.items():
            print(f"{kind:16} {sum(counts.values()):8} requests: {dict(counts.most_common())}")
        print(f"{sum(sum(counts.values()) for counts in outcomes.values())} requests")
        for cause, count in Counter(cause for cause, _ in self.failures).most_common():
            print(f"  {count:6} failed: {cause.value}")

    def _print_broken(self) -> None:
        for text in (*self._world.broken, *self.wrong, *self.hung)[:_SHOWN]:
            print(f"BROKEN: {text}")
        kinds: dict[tuple[Cause, str, str], list[Failure]] = {}
        for cause, failure in self.not_allowed:
            kinds.setdefault((cause, failure.model, failure.text), []).append(failure)
        for (cause, *_), failures in list(kinds.items())[:_SHOWN]:
            print(f"FAILED, {cause.value}, {len(failures)} times: {_describe(failures[0])}")
            print(self._before(failures[0].sent_ns, failures[0].ended_ns))
        print(
            f"executed twice: {self.twice or 'none'}; wrong: {len(self.wrong)}; "
            f"hung: {len(self.hung)}; failed that may not: {len(self.not_allowed)}; "
            f"not whole in time: {self.late or 'none'}; "
            f"state and operations: {len(self._world.broken) or 'as asked'}",
            flush=True,
        )

    def _before(self, begun_ns: int, ended_ns: int) -> str:
        first_ns = begun_ns - int(_BEFORE_S * 1e9)
        return "\n".join(
            f"    {ns / 1e9:.3f} {text}"
            for ns, text in self._world.events
            if first_ns <= ns <= ended_ns + int(1e9)
        )

    def keep(self, directory: Path) -> None:
        """Copy what explains the broken promises."""
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        events = "\n".join(f"{ns / 1e9:.3f} {text}" for ns, text in self._world.events)
        (directory / "events.txt").write_text(events)
        failures = "\n".join(f"{cause.value}: {_describe(f)}" for cause, f in self.failures)
        texts = "\n".join((*self._world.broken, *self.wrong, *self.hung, *self.twice))
        (directory / "broken.txt").write_text(f"{texts}\n{failures}")
        shutil.copy(self._world.server.log, directory / "server.log")
        shutil.copy(self._world.server.journal, directory / "journal")
        print(f"the events, the server's log and the journal are in {directory}")


def _describe(failure: Failure) -> str:
    sent_s, took_s = failure.sent_ns / 1e9, (failure.ended_ns - failure.sent_ns) / 1e9
    return f"{failure.client} {failure.own_id} at {sent_s:.3f} for {took_s:.3f} s: {failure.text}"
