"""Says every few seconds what a start waits for, so that a long one can be told from a hang.

Does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zmqtriton.supervisor.plan import Plan, Timer

_FIRST_S, _EVERY_S = 2.0, 5.0
_MAX_NAMED = 3


class StartupProgress:
    def __init__(self, plan: Plan, find_phases: Callable[[], Sequence[tuple[str, str]]]) -> None:
        """`find_phases` returns the awaited loads, a name and a phase each; nothing at the end."""
        self._plan = plan
        self._find_phases = find_phases
        self._began_s = 0.0
        self._timer: Timer | None = None

    def begin(self) -> None:
        """Begin; a second call changes nothing."""
        if self._timer is None:
            self._began_s = self._plan.now_s
            self._timer = self._plan.call_later(_FIRST_S, self._report)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _report(self) -> None:
        phases = self._find_phases()
        if not phases:
            return
        shown = ", ".join(f"{name} ({phase})" for name, phase in phases[:_MAX_NAMED])
        more = len(phases) - _MAX_NAMED
        shown += f" and {more} more" if more > 0 else ""
        took_s = self._plan.now_s - self._began_s
        self._plan.log("I", f"still starting after {took_s:.0f} s, waiting for {shown}")
        self._timer = self._plan.call_later(_EVERY_S, self._report)
