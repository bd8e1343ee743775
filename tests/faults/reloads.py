"""Reloads under load and of what is broken, loads and unloads without end, and imports."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.faults.stamps import (
    MODEL,
    SteadyLoad,
    control_model,
    index_entry,
    model_file,
    write_stamp,
)
from tests.support.scripted import string_parameter
from tests.support.server import Server
from tests.support.waiting import eventually

PER_SECOND = 100
#: Roles whose processes stay while models come and go.
LASTING = ("supervisor", "fork-server", "broker", "http", "grpc", "metrics")


def reload_often(server: Server, times: int, pause_s: float = 0.0) -> tuple[SteadyLoad, int]:
    """Write another stamp and load, so often, under a steady load.

    Return the load, and how many were asked after a load had been answered, and answered by what
    was before it.
    """
    since = []
    with SteadyLoad(server.http_port, per_second=PER_SECOND) as asking:
        for stamp in range(1, times + 1):
            write_stamp(server, stamp)
            assert (200, "") == control_model(server, "load")
            since.append(time.monotonic_ns())
            time.sleep(pause_s)
    late = 0
    for answer in asking.answers:
        least = sum(ns < answer.sent_ns for ns in since)
        late += bool(answer.stamps) and answer.stamps[0] < least
    return asking, late


# ------------------------------------------------------------- loads and unloads


class Sample(NamedTuple):
    """The resources of one role's processes."""

    descriptors: int
    mappings: int
    #: Not their part of what they share: others that end make that larger.
    own_kib: int


def sample_resources(server: Server) -> dict[str, Sample]:
    samples = {}
    for role, pids in server.pids().items():
        if role in LASTING:
            parts = [_sample(pid) for pid in pids]
            samples[role] = Sample(*(sum(column) for column in zip(*parts, strict=True)))
    return samples


def _sample(pid: int) -> Sample:
    folder = Path(f"/proc/{pid}")
    rollup = (folder / "smaps_rollup").read_text()
    own = next(line for line in rollup.splitlines() if line.startswith("Anonymous:"))
    descriptors = len(list((folder / "fd").iterdir()))
    return Sample(descriptors, len((folder / "maps").read_text().splitlines()), int(own.split()[1]))


def load_and_unload(server: Server, times: int) -> None:
    """Load the model so often, and unload it each time."""
    for _ in range(times):
        assert (200, "") == control_model(server, "load")
        assert (200, "") == control_model(server, "unload")
    eventually(lambda: not server.stub_pids(MODEL), 30, "every stub has ended")


# ------------------------------------------------------------- what is broken


class Breakage(NamedTuple):
    """A way to break a model, and what the reason must say."""

    name: str
    reason_texts: tuple[str, ...]
    #: In place of the model's own; "" leaves it.
    code: str = ""
    #: More of the configuration.
    config: str = ""
    has_file: bool = True

    def apply(self, model: Path) -> None:
        config, code = model / "config.pbtxt", model / "1" / "model.py"
        config.write_text(f"{config.read_text()}\n{self.config}\n")
        code.write_text(self.code or code.read_text())
        if not self.has_file:
            code.unlink()


def _initialize(text: str) -> str:
    """Line 5 of the file does it."""
    return (
        f"import ctypes, os, signal, sys, time\n\nclass TritonPythonModel:\n"
        f"    def initialize(self, args):\n        {text}\n"
        "    def execute(self, requests): return []\n"
    )


_COMPLETION = """class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        raise RuntimeError("cannot complete it")

    def execute(self, requests): return []
"""
_WRONG_OUTPUT = """class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_output({"name": "X", "data_type": "TYPE_NONE", "dims": [1]})
        return config

    def execute(self, requests): return []
"""

BREAKAGES: tuple[Breakage, ...] = (
    Breakage("syntax error", ("SyntaxError", "line 2"), "import os\ndef f(:\n"),
    Breakage(
        "import error",
        ("No module named 'nothing_of_this_name'", "model.py(2)"),
        "import os\nimport nothing_of_this_name\n",
    ),
    Breakage("configuration", ("config.pbtxt", "many"), config="max_batch_size: many"),
    Breakage(
        "raises", ("no weights", "model.py(5)"), _initialize("raise ValueError('no weights')")
    ),
    Breakage(
        "no environment",
        ("/not/here",),
        config=string_parameter("EXECUTION_ENV_PATH", "/not/here"),
    ),
    Breakage("no class", ("TritonPythonModel",), "class Model: pass\n"),
    Breakage("sys.exit", ("SystemExit",), _initialize("sys.exit(3)")),
    Breakage("kill -9", ("SIGKILL",), _initialize("os.kill(os.getpid(), signal.SIGKILL)")),
    Breakage("segfault", ("SIGSEGV", "model.py(5)"), _initialize("ctypes.string_at(0)")),
    Breakage("wrong output", ("TYPE_NONE",), _WRONG_OUTPUT),
    Breakage("completion raises", ("cannot complete it", "model.py(4)"), _COMPLETION),
    Breakage("no memory", ("MemoryError", "model.py(5)"), _initialize("bytearray(1 << 60)")),
    Breakage("no file", ("model.py",), has_file=False),
    Breakage(
        "hangs",
        ("max_load_seconds (0.5)", "model.py(5): initialize"),
        _initialize("time.sleep(3600)"),
        string_parameter("max_load_seconds", "0.5"),
    ),
)


def reload_broken(server: Server, breaks: Sequence[Breakage] = BREAKAGES) -> int:
    """Check what is said of each; return how many requests were asked, all of them answered."""
    model = server.repository / MODEL
    sound = {path: path.read_text() for path in (model / "config.pbtxt", model_file(server))}
    pids = server.stub_pids(MODEL)
    with SteadyLoad(server.http_port, per_second=PER_SECOND) as asking:
        for broken in breaks:
            broken.apply(model)
            status, reason = control_model(server, "load")
            entry = index_entry(server)
            for path, text in sound.items():
                path.write_text(text)
            assert status != 200, broken.name
            missing = [words for words in broken.reason_texts if words not in reason]
            assert not missing, f"{broken.name}: {missing} in {reason}"
            assert "READY" == entry["state"]
            assert all(words in entry["reason"] for words in broken.reason_texts), entry
    assert not asking.failed(), asking.failed()[:3]
    # What the last one had started may still be on its way out.
    eventually(lambda: pids == server.stub_pids(MODEL), 30, f"the same stubs, {pids}")
    return len(asking.answers)


# --------------------------------------------------------------- what is imported

_COUNTED = """with open({path!r}, "a") as file:
    file.write("imported ")

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(0)
        config.add_input({{"name": "X", "data_type": "TYPE_FP32", "dims": [1]}})
        config.add_output({{"name": "Y", "data_type": "TYPE_FP32", "dims": [1]}})
        return config

    def execute(self, requests): return []
"""


def count_imports(server: Server, instances: int) -> int:
    """Load a model of so many instances, `counted`; return how often it was imported."""
    marks = server.scratch / "imports"
    marks.unlink(missing_ok=True)
    folder = server.repository / "counted"
    (folder / "1").mkdir(parents=True, exist_ok=True)
    (folder / "1" / "model.py").write_text(_COUNTED.format(path=str(marks)))
    group = f"instance_group [ {{ count: {instances} kind: KIND_CPU }} ]"
    (folder / "config.pbtxt").write_text(f'backend: "python"\n{group}\n')
    assert (200, "") == control_model(server, "load", "counted")
    return len(marks.read_text().split())
