"""A plugin of pytest: records the lines that tests reach and their times, or runs chosen tests.

ZT_MUTANTS_RECORD=FOLDER    record there
ZT_MUTANTS_TESTS=FILE       run the tests of this list alone, in its order
ZT_MUTANTS_FAILED=FILE      write there which tests failed, the first one first
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest


class Recorder:
    def __init__(self, folder: Path) -> None:
        import coverage  # a trial does without these

        from tools.mutants.rooms import ROOT, carried_modules, modules

        self._folder = folder
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()
        self._worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        self._coverage = coverage.Coverage(
            data_file=str(folder / f"coverage.{self._worker}"),
            config_file=False,
            include=[str(ROOT / path) for path in {*modules(ROOT), *carried_modules(ROOT)}],
            messages=False,
        )
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._coverage.switch_context(item.nodeid)
        result = yield
        self._coverage.switch_context("")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0) + report.duration
        if not report.passed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        self._coverage.save()
        passed = {k: round(v, 4) for k, v in self._seconds.items() if k not in self._failed}
        (self._folder / f"seconds.{self._worker}.json").write_text(json.dumps(passed), "utf-8")


class Selection:
    def __init__(self, tests: list[str], failed: Path) -> None:
        self._order = {name: place for place, name in enumerate(tests)}
        self._failed = failed

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        places = {item: self._place(item) for item in items}
        items[:] = sorted((i for i in items if places[i] is not None), key=lambda i: places[i] or 0)

    def _place(self, item: pytest.Item) -> int | None:
        """Return the place of a test in the list, which names single cases or whole functions."""
        return self._order.get(item.nodeid, self._order.get(item.nodeid.partition("[")[0]))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            with self._failed.open("a", encoding="utf-8") as file:
                file.write(f"{report.nodeid}\n")


def pytest_configure(config: pytest.Config) -> None:
    folder = os.environ.get("ZT_MUTANTS_RECORD")
    # not in the process that hands out tests to others
    if folder and not config.getoption("numprocesses", 0):
        config.pluginmanager.register(Recorder(Path(folder)))
    if tests := os.environ.get("ZT_MUTANTS_TESTS"):
        names = Path(tests).read_text("utf-8").splitlines()
        failed = Path(os.environ["ZT_MUTANTS_FAILED"])
        config.pluginmanager.register(Selection(names, failed))
