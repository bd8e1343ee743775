"""The ends of forked stubs, which do not take Python apart: nothing of their models is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.server import Server

pytestmark = pytest.mark.system

_CODE = """
import atexit

atexit.register(lambda: open({scratch!r} + "/exit", "w").write("exit function"))
_of_module = open({scratch!r} + "/module", "w")
_of_module.write("of the module")


class TritonPythonModel:
    def initialize(self, args):
        self.file = open({scratch!r} + "/instance", "w")

    def execute(self, requests):
        return []

    def finalize(self):
        self.file.write("finalized")

    def __del__(self):
        _of_module.write(", destroyed")
"""


@pytest.mark.long(
    "stub/test_ending.py::test_what_was_written_to_an_open_file_is_in_it",
    "stub/test_ending.py::test_exit_functions_and_destructors_run_and_the_importer_s_first",
)
def test_what_a_model_has_written_is_there_after_the_stop(tmp_path: Path) -> None:
    server = Server(tmp_path / "s", models=["identity_fp32"], frontends=())
    model = server.repository / "identity_fp32" / "1" / "model.py"
    model.write_text(_CODE.format(scratch=str(server.scratch)))

    with server:
        assert server.stop() == 0

    written = {path.name: path.read_text() for path in server.scratch.iterdir()}
    expected = {
        "exit": "exit function",
        "instance": "finalized",
        "module": "of the module, destroyed",
    }
    assert expected == written
