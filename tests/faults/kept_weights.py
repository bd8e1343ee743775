"""Changed code over gigabytes that were preloaded, under load: when it serves, and at what cost.

    python -m tests.faults.kept_weights [--megabytes 2048] [--only NAME]

A client calls without a pause while the code is edited and loaded again. The table has, for each
edit: the milliseconds from the begin of the load call until an answer of the new code, and until
the call has returned; the CPU seconds of the server's processes in that time; failed requests; the
largest memory of all of the model's processes during the load, as a share of that before (PSS);
and what the server says was kept. Measures and prints; asserts nothing.
"""

from __future__ import annotations

import json
import re
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tests.standard.ctl.system.commands import ctl
from tests.support.scripted import string_parameter
from tests.support.server import Server, tensor
from tests.support.tools import parse_options
from tests.support.waiting import eventually

_CONFIG = """
backend: "python"
input { name: "IN" data_type: TYPE_INT32 dims: 1 }
output { name: "TEXT" data_type: TYPE_STRING dims: 1 }
instance_group { count: 1 kind: KIND_CPU }
""" + string_parameter("INSTANCES", "forks")
_CODE = """
import numpy as np
import triton_python_backend_utils as pb_utils

BYTES = {bytes}

class TritonPythonModel:
    @staticmethod
    def preload(args):
        TritonPythonModel.weights = np.ones(BYTES, np.uint8)

    def execute(self, requests):
        out = np.array(["code-0 %d" % self.weights[5]], object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("TEXT", out)]) for _ in requests]
"""
_FUNCTION = """
import numpy as np
from zmqtriton import model

@model(keeps=True)
class Said:
    def __init__(self):
        self.weights = np.ones({bytes}, np.uint8)

    def __call__(self, IN: int) -> str:
        return "code-0 %d" % self.weights[5]
"""
_STREAMS = """
import os
import numpy as np
from zmqtriton import End, model

@model(keeps=True, streams=8)
class Said:
    def __init__(self):
        self.weights = np.ones({bytes}, np.uint8)

    def admit(self, IN: int):
        return IN

    def step(self, states: list) -> list[str]:
        is_open = os.path.exists("{gate}")
        text = "code-0 %d" % self.weights[5]
        return [End(text) if one == 1 or is_open else None for one in states]
"""


class Row(NamedTuple):
    case: str
    first_ms: float
    load_ms: float
    cpu_s: float
    requests: int
    failed: int
    memory: float
    says: str


class Trial:
    """A server with a model of these megabytes, and a client that calls it all the time."""

    def __init__(self, server: Server, model: str, ask: Callable[[], str]) -> None:
        self.server, self.model, self._ask = server, model, ask
        self.file = server.repository / model / "1" / "model.py"
        self._number = 0
        self.requests = self.failed = 0
        self.answer = ""
        self._is_over = threading.Event()
        self._client = threading.Thread(target=self._call)

    def __enter__(self) -> Trial:
        self._client.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._client.join()

    def _call(self) -> None:
        while not self._is_over.is_set():
            answer = self._ask()
            self.requests, self.failed = self.requests + 1, self.failed + (not answer)
            self.answer = answer or self.answer

    def edit(self, before: str = "", after: str = "") -> str:
        """Change the text that the code answers, and another part; return the new text."""
        text = self.file.read_text()
        self._number += 1
        word = f"code-{self._number}"
        text = re.sub(r"code-\d+", word, text)
        assert before in text
        self.file.write_text(text.replace(before, after) if before else text)
        return word

    def row(self, case: str, before: str = "", after: str = "", *, is_good: bool = True) -> Row:
        """Edit and load; return what that took. An edit that is not good changes no answer."""
        was, old = self.file.read_text(), self.answer
        requests, failed = self.requests, self.failed
        cpu_s, peak = _cpu_s(self.server), _Peak(self.server)
        word = self.edit(before, after)
        with peak:
            began_s = time.monotonic()
            ended: list[float] = []
            load = threading.Thread(target=lambda: ended.append(self._load(began_s)))
            load.start()
            first_s = 0.0
            while load.is_alive():
                if not first_s and self.answer.startswith(word + " "):
                    first_s = time.monotonic() - began_s
                time.sleep(0.001)
            if is_good and not first_s:
                eventually(lambda: self.answer.startswith(word + " "), 60)
                first_s = time.monotonic() - began_s
        if not is_good:
            assert self.answer == old, self.answer
            self.file.write_text(was)
        kept = next(iter(_status(self.server)["kept"]), None)
        return Row(
            case,
            1000 * first_s,
            1000 * ended[0],
            _cpu_s(self.server) - cpu_s,
            self.requests - requests,
            self.failed - failed,
            peak.share,
            ("kept " if kept["is_kept"] else "anew: ") + kept["text"] if kept else "",
        )

    def _load(self, began_s: float) -> float:
        self.server.control_model("load", self.model)
        return time.monotonic() - began_s


class _Peak:
    """The largest memory of the processes of models while a block runs."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._is_over = threading.Event()
        self._before = self._largest = eventually(lambda: _pss(server), 60)
        self._looking = threading.Thread(target=self._look)

    def __enter__(self) -> None:
        self._looking.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._looking.join()
        self._largest = max(self._largest, _pss(self._server))

    def _look(self) -> None:
        while not self._is_over.wait(0.02):
            self._largest = max(self._largest, _pss(self._server))

    @property
    def share(self) -> float:
        return self._largest / self._before


def _pss(server: Server) -> int:
    """Return the sum of all processes; 0 if one came or went meanwhile, and shares changed."""
    own, total = psutil.Process(server.pid), 0
    pids = [process.pid for process in own.children()]
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:  # it has ended
            return 0
        total += int(re.findall(r"^Pss: +(\d+)", text, re.MULTILINE)[0]) * 1024
    return total if pids == [process.pid for process in own.children()] else 0


def _cpu_s(server: Server) -> float:
    """Return the CPU time of the supervisor, its children, and those that have ended."""
    own = psutil.Process(server.pid)
    total = sum(own.cpu_times()[:4])
    for process in own.children():
        try:
            total += sum(process.cpu_times()[:2])
        except psutil.NoSuchProcess:
            continue
    return total


def _status(server: Server) -> Any:
    return json.loads(ctl(server, "status", "--json").stdout)


@contextmanager
def _serving(code: str, config: str) -> Iterator[Trial]:
    with tempfile.TemporaryDirectory() as folder:
        options = ["--model-control-mode=explicit", f"--runtime-directory={folder}/run"]
        with Server(Path(folder) / "server", options=options) as server:
            if config:
                server.write_model("said", config, code)
            else:
                (server.repository / "said" / "1").mkdir(parents=True)
                (server.repository / "said" / "1" / "model.py").write_text(code)
            assert server.control_model("load", "said") == ""

            def ask() -> str:
                if config:
                    status, answer = server.infer_json("said", tensor("IN", "INT32", [1]))
                    return str(answer["outputs"][0]["data"][0]) if status == 200 else ""
                return _say(server, 1)

            with Trial(server, "said", ask) as trial:
                eventually(lambda: trial.answer, 60)
                yield trial


def _kill_template(server: Server) -> None:
    pid = next(row["pid"] for row in _status(server)["processes"] if row["role"] == "template")
    process = psutil.Process(pid)
    process.kill()
    eventually(lambda: not process.is_running(), 60)


def of_forks(size: int) -> Iterator[Row]:
    with _serving(_CODE.format(bytes=size), _CONFIG) as trial:
        for number in range(1, 6):
            yield trial.row(f"execute, edit {number}")
        yield trial.row(
            "an error in the edit", "import numpy", "import numpy, no_such", is_good=False
        )
        yield trial.row("no Python in the edit", "import numpy", "import (numpy", is_good=False)
        yield trial.row("execute, after these")
        yield trial.row("a changed preload", "np.uint8)", "np.uint8) * 1")
        _kill_template(trial.server)
        yield trial.row("the template was killed")
        yield trial.row("execute, after this")


def of_functions(size: int) -> Iterator[Row]:
    with _serving(_FUNCTION.format(bytes=size), "") as trial:
        for number in range(1, 4):
            yield trial.row(f"a class, edit {number}")
        yield trial.row("a class, a changed __init__", "np.uint8)", "np.uint8) * 1")


def of_streams(size: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        gate = Path(folder) / "gate"
        with _serving(_STREAMS.format(bytes=size, gate=gate), "") as trial:
            for number in range(1, 4):
                yield _with_open_stream(trial, gate, number)


def _with_open_stream(trial: Trial, gate: Path, number: int) -> Row:
    """Reload while a stream is open, which must end on the code that it began with."""
    answers, word = list[str](), f"code-{number - 1} "
    stream = threading.Thread(target=lambda: answers.append(_say(trial.server, 2)))
    stream.start()
    before = trial.requests
    eventually(lambda: trial.requests > before + 20, 60)
    row = trial.row(f"streams, edit {number}")
    assert stream.is_alive()
    gate.touch()
    stream.join()
    gate.unlink()
    ending = "on the old code" if answers[0].startswith(word) else f"as {answers[0]}"
    return row._replace(says=f"{row.says}; the open stream ended {ending}")


def _say(server: Server, value: int) -> str:
    """Return the answer of a function, also as the only event of a stream; "" for a failure."""
    body = json.dumps({"IN": value}).encode()
    request = urllib.request.Request(f"{server.url}/said", body)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            text = answer.read().decode().removeprefix("data: ").strip()
    except OSError:
        return ""
    return str(json.loads(text)["output"])


KINDS = {"forks": of_forks, "functions": of_functions, "streams": of_streams}


def main() -> None:
    options = parse_options(
        __doc__, megabytes=(2048, "of weights"), only=("", f"one of {', '.join(KINDS)}")
    )
    print(f"{'':30}{'new ms':>8}{'load ms':>8}{'CPU s':>7}{'calls':>7}{'failed':>7}{'PSS':>6}")
    for name, rows in KINDS.items():
        for row in rows(options.megabytes << 20) if options.only in ("", name) else ():
            figures = f"{row.first_ms:8.0f}{row.load_ms:8.0f}{row.cpu_s:7.2f}{row.requests:7}"
            print(f"{row.case:30}{figures}{row.failed:7}{row.memory:6.2f}  {row.says}", flush=True)


if __name__ == "__main__":
    main()
