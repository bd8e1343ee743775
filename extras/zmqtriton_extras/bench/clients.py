"""The client processes of `zmqtriton-ctl bench`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO, Any, TypeVar

from zmqtriton.sdk.wire import InternalError
from zmqtriton_extras.bench.results import Measurement

State = TypeVar("State")

#: To a process, in place of a plan: end the one that runs.
STOP = "stop"
_END_WITHIN_S = 5.0
#: Warm-up before each measurement, as a share of its duration and at most so many seconds. It keeps
#: new connections and a server's first requests out of the measurement.
_WARM_UP_SHARE, _MAX_WARM_UP_S = 0.2, 1.0


class Clients:
    """Processes of clients; they end with this one, however it ends."""

    def __init__(self, count: int) -> None:
        command = [sys.executable, "-m", "zmqtriton_extras.bench.worker", str(os.getpid())]
        # Ctrl-C is for the command, which stops them and reports what they have.
        self._processes = [
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
            for _ in range(count)
        ]

        self._running: list[subprocess.Popen[bytes]] = []
        #: True after the first Ctrl-C.
        self.is_interrupted = False

    def measure(
        self,
        plan: Mapping[str, Any],
        concurrency: int,
        *,
        seconds: float,
        rate: float = 0.0,
        read: Callable[[], State],
    ) -> tuple[Measurement, State, State]:
        """Run a plan after a warm-up; return also the results of `read` before and after it.

        If Ctrl-C comes during the warm-up, the warm-up is the measurement.
        """
        before = read()
        warm_up_s = min(_MAX_WARM_UP_S, seconds * _WARM_UP_SHARE)
        measured = Measurement.merge(self._run({**plan, "seconds": warm_up_s}, concurrency, rate))
        if not self.is_interrupted:
            after_warm_up = read()
            longer = Measurement.merge(self._run({**plan, "seconds": seconds}, concurrency, rate))
            if longer.latencies or not self.is_interrupted:
                measured, before = longer, after_warm_up
        return measured, before, read()

    def _run(self, plan: Mapping[str, Any], concurrency: int, rate: float) -> list[dict[str, Any]]:
        """Run a plan on all processes until its end or Ctrl-C; return their reports.

        Raises InternalError if one of them dies.
        """
        shares = _split(concurrency, len(self._processes))
        used = [(p, share) for p, share in zip(self._processes, shares, strict=True) if share]
        self._running = []  # Ctrl-C amid a plan's line must not write another into it
        for process, share in used:
            part = {**plan, "concurrency": share, "rate": rate * share / concurrency}
            _send(process, json.dumps(part))
        self._running = [process for process, _ in used]
        if self.is_interrupted:
            self._stop()  # it came before the list was there
        return [_receive(process) for process in self._running]

    def _interrupt(self, number: int, frame: object) -> None:
        """Stop the clients; a second Ctrl-C ends the command."""
        if self.is_interrupted:
            raise KeyboardInterrupt
        self.is_interrupted = True
        self._stop()

    def _stop(self) -> None:
        for process in self._running:
            _send(process, STOP)

    def __enter__(self) -> Clients:
        self._handler_before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *error: object) -> None:
        signal.signal(signal.SIGINT, self._handler_before)
        for process in self._processes:
            with suppress(BrokenPipeError):  # one that is dead has left what it was sent
                _stream(process.stdin).close()
        for process in self._processes:
            try:
                process.wait(_END_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            _stream(process.stdout).close()


def _split(count: int, parts: int) -> list[int]:
    return [count // parts + (number < count % parts) for number in range(parts)]


def _stream(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # each is a pipe
    return stream


def _send(process: subprocess.Popen[bytes], line: str) -> None:
    try:
        _stream(process.stdin).write(f"{line}\n".encode())
        _stream(process.stdin).flush()
    except BrokenPipeError:
        raise InternalError("a client process has died; was the machine out of memory?") from None


def _receive(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    line = _stream(process.stdout).readline()
    if not line:
        raise InternalError("a client process has died; was the machine out of memory?")
    report: dict[str, Any] = json.loads(line)
    return report
