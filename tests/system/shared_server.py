"""A server without models that the tests of all files have one after the other.

Each test adds and loads its own models, and may kill their processes; afterwards the server has
none again. A test of options, of a start or an end, or of the death of another process than a
stub has a server of its own.
"""

from __future__ import annotations

import shutil
from pathlib import Path

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
        #: Where the log of this test begins.
        self._begin = 0
        self._others: dict[str, list[int]] = {}

    def log_text(self) -> str:
        """Return what was logged during this test."""
        return super().log_text()[self._begin :]

    def load(self, *models: str) -> None:
        """Load models of tests/models, and others that the test has added."""
        for model in models:
            if not (self.repository / model).exists():
                self.add_model(model)
        for model in models:
            error = self.control_model("load", model)
            assert not error, error

    def begin(self) -> None:
        """Begin a test."""
        self._begin += len(self.log_text())
        self._others = self._processes_but_stubs()

    def clear(self) -> None:
        """Unload and remove the models of the test; fail it if more than stubs has changed."""
        status = self.returncode
        assert status is None, f"the server has ended with {status}: {self.log_text()[-3000:]}"
        _, index = self.request_json("/v2/repository/index", {})
        for entry in index:
            self.control_model("unload", entry["name"])
        eventually(lambda: "stub" not in self.pids(), 60, "no stub is left")
        for directory in (self.repository, self.scratch):
            for path in directory.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        before, after = self._others, self._processes_but_stubs()
        assert before == after, f"{before} became {after}: {self.log_text()[-3000:]}"

    def _processes_but_stubs(self) -> dict[str, list[int]]:
        return {role: pids for role, pids in self.pids().items() if role != "stub"}
