"""Reloads under load, of what is broken, loads and unloads without end, and slow imports."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
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
from tests.support.server import Server
from tests.support.waiting import eventually

OPTIONS = ("--model-control-mode=explicit", "--load-model=*")
PER_SECOND = 100
#: Roles whose processes stay while models come and go.
LASTING = ("supervisor", "fork-server", "broker", "http", "grpc", "metrics")


class ReloadStats(NamedTuple):
    """The durations of reloads, and the requests meanwhile."""

    seconds: list[float]
    request_count: int
    failed_count: int
    #: Asked after a load had been answered, and answered by what was before it.
    stale_count: int


def reload_often(server: Server, times: int, pause_s: float = 0.0) -> ReloadStats:
    """Writes another stamp and loads, so often, under a steady load."""
    seconds, since = [], []
    with SteadyLoad(server.http_port, per_second=PER_SECOND) as asking:
        for stamp in range(1, times + 1):
            write_stamp(server, stamp)
            began_s = time.monotonic()
            assert (200, "") == control_model(server, "load")
            since.append(time.monotonic_ns())
            seconds.append(time.monotonic() - began_s)
            time.sleep(pause_s)
    late = 0
    for answer in asking.answers:
        least = sum(ns < answer.sent_ns for ns in since)
        late += bool(answer.stamps) and answer.stamps[0] < least
    return ReloadStats(seconds, len(asking.answers), len(asking.failed()), late)


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


def load_and_unload(server: Server, times: int) -> list[float]:
    """Seconds of each load, each followed by an unload that is waited for."""
    seconds = []
    for _ in range(times):
        began_s = time.monotonic()
        assert (200, "") == control_model(server, "load")
        seconds.append(time.monotonic() - began_s)
        assert (200, "") == control_model(server, "unload")
    eventually(lambda: not server.stub_pids(MODEL), 30, "every stub has ended")
    return seconds


# ------------------------------------------------------------- what is broken


class Breakage(NamedTuple):
    """A way to break a model, and what the reason must say."""

    name: str
    apply: Callable[[Path], None]
    reason_texts: tuple[str, ...]


def _code(text: str) -> Callable[[Path], None]:
    def write(model: Path) -> None:
        (model / "1" / "model.py").write_text(text)

    return write


def _initialize(text: str) -> Callable[[Path], None]:
    """Line 5 of the file does it."""
    return _code(
        f"import ctypes, os, signal, sys, time\n\nclass TritonPythonModel:\n"
        f"    def initialize(self, args):\n        {text}\n"
        "    def execute(self, requests): return []\n"
    )


def _config(text: str) -> Callable[[Path], None]:
    def write(model: Path) -> None:
        path = model / "config.pbtxt"
        path.write_text(f"{path.read_text()}\n{text}\n")

    return write


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
    Breakage("syntax error", _code("import os\ndef f(:\n"), ("SyntaxError", "line 2")),
    Breakage(
        "import error",
        _code("import os\nimport nothing_of_this_name\n"),
        ("No module named 'nothing_of_this_name'", "model.py(2)"),
    ),
    Breakage("configuration", _config("max_batch_size: many"), ("config.pbtxt", "many")),
    Breakage(
        "raises", _initialize("raise ValueError('no weights')"), ("no weights", "model.py(5)")
    ),
    Breakage(
        "no environment",
        _config('parameters { key: "EXECUTION_ENV_PATH" value { string_value: "/not/here" } }'),
        ("/not/here",),
    ),
    Breakage("no class", _code("class Model: pass\n"), ("TritonPythonModel",)),
    Breakage("sys.exit", _initialize("sys.exit(3)"), ("SystemExit",)),
    Breakage("kill -9", _initialize("os.kill(os.getpid(), signal.SIGKILL)"), ("SIGKILL",)),
    Breakage("segfault", _initialize("ctypes.string_at(0)"), ("SIGSEGV", "model.py(5)")),
    Breakage("wrong output", _code(_WRONG_OUTPUT), ("TYPE_NONE",)),
    Breakage("completion raises", _code(_COMPLETION), ("cannot complete it", "model.py(4)")),
    Breakage("no memory", _initialize("bytearray(1 << 60)"), ("MemoryError", "model.py(5)")),
    Breakage("no file", lambda model: (model / "1" / "model.py").unlink(), ("model.py",)),
)
_HANGS = _initialize("time.sleep(3600)")


def _hang(model: Path) -> None:
    _HANGS(model)
    _config('parameters { key: "max_load_seconds" value { string_value: "0.5" } }')(model)


BREAKAGES += (Breakage("hangs", _hang, ("max_load_seconds (0.5)", "model.py(5): initialize")),)


class FailedReload(NamedTuple):
    name: str
    seconds: float
    reason: str


def reload_broken(
    server: Server, breaks: Sequence[Breakage] = BREAKAGES
) -> tuple[list[FailedReload], int]:
    """Return what was said of each, and how many requests were asked; all were answered."""
    model = server.repository / MODEL
    sound = {path: path.read_text() for path in (model / "config.pbtxt", model_file(server))}
    pids = server.stub_pids(MODEL)
    failed = []
    with SteadyLoad(server.http_port, per_second=PER_SECOND) as asking:
        for broken in breaks:
            broken.apply(model)
            began_s = time.monotonic()
            status, reason = control_model(server, "load")
            failed.append(FailedReload(broken.name, time.monotonic() - began_s, reason))
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
    return failed, len(asking.answers)


# --------------------------------------------------------------- what is imported

_SLOW = """import time
with open({path!r}, "a") as file:
    file.write("imported ")
time.sleep({seconds})

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(0)
        config.add_input({{"name": "X", "data_type": "TYPE_FP32", "dims": [1]}})
        config.add_output({{"name": "Y", "data_type": "TYPE_FP32", "dims": [1]}})
        return config

    def execute(self, requests): return []
"""


def import_slowly(server: Server, seconds: float, instances: int) -> tuple[float, int]:
    """Loads a model with these imports; how long that took, and how often they were done."""
    marks = server.scratch / "imports"
    marks.unlink(missing_ok=True)
    folder = server.repository / "slow"
    (folder / "1").mkdir(parents=True, exist_ok=True)
    (folder / "1" / "model.py").write_text(_SLOW.format(path=str(marks), seconds=seconds))
    group = f"instance_group [ {{ count: {instances} kind: KIND_CPU }} ]"
    (folder / "config.pbtxt").write_text(f'backend: "python"\n{group}\n')
    began_s = time.monotonic()
    assert (200, "") == control_model(server, "load", "slow")
    return time.monotonic() - began_s, len(marks.read_text().split())


# -------------------------------------------------------------------- in full
