"""`--durations-files=N`: the files of tests that cost most, with the CPU of all that they start.

On a machine whose processors are all busy it is CPU that decides how long the tests take, and CPU
stays comparable beside other work. A server's processes count when it has ended, thus in the file
that ends it; one that was killed has not reaped its children, and theirs are missing. Servers that
files share end with the last test of a process, and have a line of their own.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Generator
from typing import Any

import pytest

from tests.session import tiers

#: A file of the first tier that costs more is named: it should cost less, or a part of it is long.
DEAR_S = 6.0
_SHARED = "what files share, at the end"


class FileTimes:
    """Adds up what tests report, and prints the dearest files; each testing process has one."""

    def __init__(self, number: int) -> None:
        self._number = number
        #: By file: the number of tests, seconds, seconds of CPU.
        self._files: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
        self._last = _now()
        self._is_ending = False

    def pytest_collection_finish(self) -> None:
        self._last = _now()

    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> None:
        self._is_ending = nextitem is None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Let each report have what was used since the last one."""
        report = yield
        last, self._last = self._last, _now()
        used = [now - before for now, before in zip(self._last, last, strict=True)]
        name = _SHARED if self._is_ending else item.nodeid.partition("::")[0]
        report.user_properties += [("used", used), ("used by", name)]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties: dict[str, Any] = dict(report.user_properties)
        name = properties.get("used by", report.nodeid.partition("::")[0])
        is_call, used = int(report.when == "call"), properties.get("used", (0.0, 0.0))
        self._files[name] = [
            a + b for a, b in zip(self._files[name], (is_call, *used), strict=True)
        ]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        rows = sorted(self._files.items(), key=lambda row: -row[1][2])
        columns = zip([0, 0.0, 0.0], *self._files.values(), strict=True)
        total = [("all files", [sum(column) for column in columns])]
        terminalreporter.section("files by CPU")
        for name, (tests, seconds, cpu) in [*rows[: self._number or None], *total]:
            terminalreporter.line(f"{cpu:8.2f} s CPU {seconds:8.2f} s {tests:6.0f} tests  {name}")
        if terminalreporter.config.getoption("--tier") == tiers.FIRST:
            dear = [name for name, (*_, cpu) in rows if cpu > DEAR_S and name != _SHARED]
            terminalreporter.line(f"files of the first tier above {DEAR_S:.0f} s: {' '.join(dear)}")


def _now() -> tuple[float, float]:
    """Return seconds, and seconds of CPU of this process and of all that it has reaped."""
    return time.monotonic(), sum(os.times()[:4])
