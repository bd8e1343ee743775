"""The latest report about a step that may take minutes, as the supervisor keeps it."""

from __future__ import annotations

from typing import NamedTuple

_MIB = 1 << 20


class StepProgress(NamedTuple):
    """The latest report about a step: what it does, and how far it is."""

    title: str
    done: int = 0
    #: Amount of work in the step, in the unit of `done`; 0 if it is not known.
    total: int = 0

    @property
    def share(self) -> float | None:
        """The part that is done, between 0 and 1; None if the total is not known."""
        return min(1.0, self.done / self.total) if self.total else None

    def __str__(self) -> str:
        if not self.total:
            return self.title
        size = f" of {self.total // _MIB} MiB" if self.total >= _MIB else ""
        return f"{self.title}: {100 * self.done // self.total} %{size}"
