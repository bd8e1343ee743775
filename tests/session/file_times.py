"""`--durations-files=N`: the files of tests that cost most, with the CPU of all that they start.

On a machine whose processors are all busy it is CPU that decides how long the tests take, and CPU
stays comparable beside other work. A server's processes count when it has ended, thus in the file
that ends it; one that was killed has not reaped its children, and theirs are missing.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Generator
from typing import Any

import pytest


class FileTimes:
    """Adds up what tests report, and prints the dearest files; each testing process has one."""

    def __init__(self, number: int) -> None:
        self._number = number
        #: By file: the number of tests, seconds, seconds of CPU.
        self._files: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
        self._last = _now()

    def pytest_collection_finish(self) -> None:
        self._last = _now()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Let each report have what was used since the last one."""
        report = yield
        last, self._last = self._last, _now()
        used = [now - before for now, before in zip(self._last, last, strict=True)]
        report.user_properties.append(("used", used))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name, is_call = report.nodeid.partition("::")[0], int(report.when == "call")
        used: Any = dict(report.user_properties).get("used", (0.0, 0.0))
        self._files[name] = [
            a + b for a, b in zip(self._files[name], (is_call, *used), strict=True)
        ]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        rows = sorted(self._files.items(), key=lambda row: -row[1][2])
        total = [("all files", [sum(column) for column in zip(*self._files.values(), strict=True)])]
        terminalreporter.section("files by CPU")
        for name, (tests, seconds, cpu) in [*rows[: self._number or None], *total]:
            terminalreporter.line(f"{cpu:8.2f} s CPU {seconds:8.2f} s {tests:6.0f} tests  {name}")


def _now() -> tuple[float, float]:
    """Return seconds, and seconds of CPU of this process and of all that it has reaped."""
    return time.monotonic(), sum(os.times()[:4])
