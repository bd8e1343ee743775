"""The model `stamped` under a steady load: it is rewritten, reloaded, broken, scaled and tried.

    with SteadyLoad(server.http_port, per_second=100) as asking:
        write_stamp(server, 1)
        assert (200, "") == control_model(server, "load")
    assert not asking.failed()

Each answer says which state of the model has answered.
"""

from __future__ import annotations

import http.client
import itertools
import json
import random
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.cpu import kib
from tests.faults.load import Answer, Clients
from tests.support.scripted import string_parameter
from tests.support.server import Server
from tests.support.waiting import eventually

MODEL = "stamped"
_INPUT = {"name": "ID", "datatype": "INT32", "shape": [1, 1], "data": [1]}
BODY = json.dumps({"inputs": [_INPUT]}).encode()


class SteadyLoad(Clients):
    """So many requests a second from several connections, until the block ends."""

    def __init__(self, port: int, *, per_second: int, clients: int = 8, model: str = MODEL) -> None:
        super().__init__(port, model, clients)
        self._every_s = 1 / per_second
        self._turns = itertools.count()
        self._began_s = time.monotonic()

    def failed(self) -> list[Answer]:
        """Return those that are not wholly of one state."""
        return [a for a in list(self.answers) if a.status != 200 or len(set(a.stamps)) != 1]

    def _ask(self, connection: http.client.HTTPConnection) -> None:
        due_s = self._began_s + next(self._turns) * self._every_s
        if not self._is_over.wait(max(0.0, due_s - time.monotonic())):
            self._post(connection, BODY)


def model_file(server: Server) -> Path:
    return server.repository / MODEL / "1" / "model.py"


def stamped(code: str, stamp: int) -> str:
    return re.sub(r"(?m)^STAMP = .*$", f"STAMP = {stamp}", code)


def write_stamp(server: Server, stamp: int) -> None:
    path = model_file(server)
    path.write_text(stamped(path.read_text(), stamp))


def control_model(server: Server, what: str, model: str = MODEL) -> tuple[int, str]:
    """Asks to load or unload; the status and the text of an error, or ""."""
    path = f"/v2/repository/models/{model}/{what}"
    status, answer = server.request_json(path, {}, within_s=120.0)
    return status, "" if status == 200 else answer["error"]


def index_entry(server: Server, model: str = MODEL) -> dict[str, str]:
    """The first entry of a model."""
    _, entries = server.request_json("/v2/repository/index", {})
    return next(entry for entry in entries if entry["name"] == model)


# --------------------------------------------------------------------- reloads

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
        late += any(stamp < least for stamp in answer.stamps[:1])
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
            columns = zip(*map(_sample, pids), strict=True)
            samples[role] = Sample(*map(sum, columns))
    return samples


def _sample(pid: int) -> Sample:
    folder = Path(f"/proc/{pid}")
    mappings = (folder / "maps").read_text().splitlines()
    return Sample(len([*(folder / "fd").iterdir()]), len(mappings), kib(pid, "Anonymous"))


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
        ("max_load_seconds (2)", "model.py(5): initialize"),
        _initialize("time.sleep(3600)"),
        string_parameter("max_load_seconds", "2"),
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


# ------------------------------------------------------------ scales and rolls


def steer(server: Server, what: str, change: dict[str, Any], model: str = MODEL) -> Any:
    """Ask for a change over HTTP, and wait for it."""
    status, answer = server.request_json(f"/v2/models/{model}/{what}", change)
    assert status == 200, answer
    return answer


_BROKEN_CODE = (
    "raise ImportError('broken at import')\n",
    "class TritonPythonModel:\n"
    "    def initialize(self, args):\n"
    "        raise ValueError('broken at initialize')\n"
    "    def execute(self, requests): return []\n",
)


def roll_often(
    server: Server, times: int, *, broken_times: int, pause_s: float = 0.0
) -> SteadyLoad:
    """Load other code, so often, under the load that is returned; some is broken and refused."""
    steer(server, "scale", {"count": 3})
    code = model_file(server)
    broken_turns = random.Random(1).sample(range(times), broken_times)
    with SteadyLoad(server.http_port, per_second=2 * PER_SECOND) as asking:
        for turn in range(times):
            sound = code.read_text()
            is_broken = turn in broken_turns
            if is_broken:
                code.write_text(_BROKEN_CODE[turn % len(_BROKEN_CODE)])
            else:
                write_stamp(server, turn + 1)
            status, reason = control_model(server, "load")
            assert (status != 200, "broken at" in reason) == (is_broken, is_broken), reason
            if is_broken:
                code.write_text(sound)
            time.sleep(pause_s)
    return asking


# -------------------------------------------------------------------- canaries

#: For the begin of execute.
BROKEN = "        raise pb_utils.TritonModelException('broken on purpose')\n"


def canary(server: Server, what: str = "", document: Any = None, model: str = MODEL) -> Any:
    """Call the canary of a model over HTTP; no document asks only."""
    status, answer = server.request_json(f"/v2/models/{model}/canary{what}", document)
    assert status == 200, answer
    return answer


def add_version(
    server: Server, *, begins_with: str = "", model: str = MODEL, source: int = 0, stamp: int = 0
) -> int:
    """Copy the newest version, or another, to the next number, in one step; return it.

    The number is its stamp, if no other is given. Its execute begins with these lines.
    """
    directory = server.repository / model
    number = 1 + max(int(path.name) for path in directory.iterdir() if path.name.isdecimal())
    source_directory, staged = directory / str(source or number - 1), server.directory / "staged"
    shutil.copytree(source_directory, staged, ignore=shutil.ignore_patterns("__pycache__"))
    text = stamped((staged / "model.py").read_text(), stamp or number)
    before = r"(?s)(InferenceResponse\]:\n).*?(        responses = \[\]\n)"
    text = re.sub(before, lambda match: match[1] + begins_with + match[2], text)
    (staged / "model.py").write_text(text)
    staged.rename(directory / str(number))
    return number


def versions_of(load: SteadyLoad, after: int = 0) -> set[int]:
    """Return the versions that have answered, as their stamps say."""
    return {stamps[0] for answer in load.answers[after:] if (stamps := answer.stamps)}


def try_and_end(server: Server, load: SteadyLoad, end: str, **settings: Any) -> int:
    """Try a new version, and promote or abort it; return it."""
    version = add_version(server)
    canary(server, document={"version": version, "weight": 50, **settings})
    eventually(lambda: version in versions_of(load), 30, "an answer of the canary")
    ended = canary(server, f"/{end}", {})
    assert version == ended["canary"]
    count = len(load.answers)
    stays = version if end == "promote" else ended["stable"]
    eventually(lambda: len(load.answers) > count + 40, 30, "more answers")
    assert {stays} == versions_of(load, count + 20), "all go to one"
    eventually(lambda: canary(server)["phase"] in ("PROMOTED", "ABORTED"), 60, "the other's end")
    return version
