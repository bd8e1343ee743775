"""The stages of a request, for a client that asks for them, in the form of `Server-Timing`.

Kept in the checked request; the gateway adds the times of the broker. Other requests cost nothing.
"""

from __future__ import annotations

import time

from zmqtriton_floor.wire import Progress, StageTimes

#: The header that asks, and the one that answers.
WISH = "x-stage-times"
ANSWER = "server-timing"


class Stages:
    """The times of one request; `total` begins with it."""

    def __init__(self, begun_ns: int) -> None:
        self._begun_ns = begun_ns
        self._times: StageTimes | None = None
        #: Part of the work that the model reports as done, in thousandths; None without a report.
        self.done: int | None = None

    def take(self, message: StageTimes | Progress) -> None:
        """Add the times that the broker sends before each reply, or the progress of the model."""
        if isinstance(message, Progress):
            self.done = message.done
        else:
            self._times = message

    def durations(self) -> dict[str, int]:
        """Return the nanoseconds of each stage; empty without an execution."""
        if self._times is None:
            return {}
        _, queue_ns, input_ns, infer_ns, output_ns = self._times
        durations = {"queue": queue_ns, "compute_input": input_ns, "compute": infer_ns}
        durations["compute_output"] = output_ns
        if not (input_ns or output_ns):
            del durations["compute_input"], durations["compute_output"]
        return durations

    def write(self) -> str:
        """Return the value of the header, up to now."""
        durations = {**self.durations(), "total": time.monotonic_ns() - self._begun_ns}
        return ", ".join(f"{name};dur={ns / 1e6:.3f}" for name, ns in durations.items())


def is_wish(value: str | bytes | None) -> bool:
    """True for a value of the header that asks for stages."""
    return isinstance(value, str) and value.strip().lower() not in ("", "0", "false", "no")
