"""A server without models that the tests of all files have one after the other.

Each test, or each file with the mark `server`, adds and loads its own models, and may kill their
processes; afterwards the server has what it had before. With `kills=True` a file may kill the
frontends, too, but not the broker: the next one refuses sequences that it does not know in other
words. A test of options, of a start or an end has a server of its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.standard.ctl.system.commands import ctl
from tests.support import poison
from tests.support.server import Server
from tests.support.waiting import eventually


class SharedServer(Server):
    """The server; running until all tests have ended."""

    def __init__(self, directory: Path) -> None:
        self.runtime_directory = directory / "run"
        options = [
            "--model-control-mode=explicit",
            f"--runtime-directory={self.runtime_directory}",
        ]
        super().__init__(directory / "s", options=options)
        #: Where the log of this test, or of its file, begins.
        self._begin = 0
        self._is_lent = False

    def log_text(self) -> str:
        """Return what was logged during this test, or during those of its file."""
        return super().log_text()[self._begin :]

    def load(self, *models: str) -> None:
        """Load models of tests/models, and others that the test has added."""
        for model in models:
            if not (self.repository / model).exists():
                self.add_model(model)
        for model in models:
            error = self.control_model("load", model)
            assert not error, error

    @contextmanager
    def lent(self, *, kills: bool = False) -> Iterator[SharedServer]:
        """Lend the server to a test, or to the tests of a file, which may lend it to each.

        Afterwards unload and remove the models that came; fail if more than stubs has changed. If a
        test `kills` other processes, there must be as many as before.
        """

        def processes_now() -> dict[str, Any]:
            pids = {role: pids for role, pids in self.pids().items() if role != "stub"}
            return {role: len(pids[role]) for role in pids} if kills else dict(pids)

        status = self.returncode
        assert status is None, f"it ended with {status} while no test had it: {self.log_text()}"
        is_first, self._is_lent = not self._is_lent, True
        if is_first:  # a stub that was just starting may have written after the last test
            self._remove(self._files())
        begin, files, processes = self._begin, self._files(), processes_now()
        self._begin += len(self.log_text())
        try:
            yield self
        finally:
            self._clear(files)
            self._is_lent = not is_first
        assert not (findings := poison.findings_in(self.log_text())), findings
        # a stub that is just ending has no command line, and no role by it
        with suppress(AssertionError):
            eventually(lambda: processes == processes_now(), 60)
        now = processes_now()
        assert processes == now, f"{processes} became {now}: {self.log_text()[-3000:]}"
        ready = ctl(self, "wait")
        assert ready.exit_code == 0, f"{ready.stderr}{self.log_text()[-3000:]}"
        self._begin = begin

    def _clear(self, files: set[Path]) -> None:
        status = self.returncode
        assert status is None, f"the server has ended with {status}: {self.log_text()[-3000:]}"
        _, index = self.request_json("/v2/repository/index", {})
        names = [entry["name"] for entry in index if self.repository / entry["name"] not in files]
        for name in names:
            self.control_model("unload", name)
        if files:
            eventually(lambda: not any(map(self.stub_pids, names)), 60, "no stub of them is left")
        else:
            eventually(lambda: "stub" not in self.pids(), 60, "no stub is left")
        self._remove(self._files() - files)

    @staticmethod
    def _remove(paths: set[Path]) -> None:
        for path in paths:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _files(self) -> set[Path]:
        """Return the models, and what they have written."""
        return {*self.repository.iterdir(), *self.scratch.iterdir()}
