"""`make walk`: models that are broken in one way each, one after the other, beside a good one.

Who names the model and the cause: `zmqtriton-ctl explain` without a name, the first screen of the
page, the alerts? What does each printed command do? The good one is asked all the time. Measures
and prints; asserts nothing.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tests.addons.tools.system import broken_models
from tests.deploy import alerts
from tests.support.browser import Browser
from tests.support.server import Server
from tests.system.operations.commands import place

_BODY = {"inputs": [{"name": "IN", "shape": [1], "datatype": "FP32", "data": [1]}]}
_CLIENTS, _PATIENCE_S = 4, 1.0
_COMMAND_S = 20.0
_WELL = "well"
#: The text of a person's first screen, without scrolling.
_SCREEN = """(() => {
  const lines = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    if (box.width && box.top < innerHeight && node.parentElement.checkVisibility())
      lines.push(node.textContent.trim());
  }
  return lines.join(" ");
})()"""


class Fault(NamedTuple):
    """A model, and words of which each must be in what is told of it: by explain, by the page."""

    model: str
    explained: str
    on_page: str
    #: One of these fires.
    alerts: tuple[str, ...]
    #: Words in its text; "" if the name says it all.
    in_alert: str = ""


_NOT_READY = ("ZmqtritonModelNotReady",)
_SLOW, _STALE = ("ZmqtritonRequestsWait",), ("ZmqtritonLoadFailed",)
_FAULTS = (
    Fault(
        "import_missing", "cannot import 'nothing_here'", "nothing_here", _NOT_READY, "exception"
    ),
    Fault("syntax_wrong", "SyntaxError", "SyntaxError", _NOT_READY, "exception"),
    Fault("config_wrong", "line 5", "max_batchsize", _NOT_READY, "config_unreadable"),
    Fault("file_missing", "model.py is missing", "model.py", _NOT_READY, "file_missing"),
    Fault("raises", "no weights at", "no weights at", _NOT_READY, "exception"),
    Fault("crashes", "SIGSEGV", "SIGSEGV", _NOT_READY, "crashed"),
    Fault("exits", "with status 3", "3", _NOT_READY, "exited"),
    Fault("loads_slowly", "max_load_seconds", "max_load_seconds", _NOT_READY, "load_timeout"),
    Fault("loads_long", "still loading", "LOADING", _NOT_READY),
    Fault("environment_missing", "/no/such", "/no/such", _NOT_READY, "environment_missing"),
    Fault("gpu_missing", "GPU", "GPU", _NOT_READY, "gpu_missing"),
    Fault("chain", "the disk is gone", "member", _NOT_READY, "member"),
    Fault("dies", "status 4", "status 4", ("ZmqtritonInstancesDie", *_NOT_READY), "exited"),
    Fault("hungry", "max_memory_bytes", "memory", ("ZmqtritonQuotaExceeded",), "max_memory_bytes"),
    Fault(
        "throttled", "its quota holds it back", "", ("ZmqtritonRequestsWait", "ZmqtritonModelHangs")
    ),
    Fault("crowded", "the queue is too short", "", ("ZmqtritonRequestsFail",), "REJECTED"),
    Fault("hanging", "it hangs or is slow", "", ("ZmqtritonModelHangs",)),
    Fault("fails", "no such column", "no such column", ("ZmqtritonRequestsFail",), "BACKEND"),
    Fault("asks_itself", "deadlock", "", ("ZmqtritonModelHangs",)),
    Fault(
        "reload_fails",
        "the last load failed",
        "last load failed",
        ("ZmqtritonLoadFailed",),
        "exception",
    ),
    Fault("slow", "only", "", _SLOW),
    Fault("killed", "somebody has killed it", "SIGKILL", ("ZmqtritonInstancesDie",), "killed"),
)
_OPTIONS = (
    *("--model-control-mode=explicit", f"--load-model={_WELL}", "--exit-on-error=false"),
    *("--strict-readiness=false", "--exit-timeout-secs=1", "--model-load-thread-count=4"),
)


class Outcome(NamedTuple):
    explained: str
    on_page: str
    alerted: str
    commands: list[str]


class Honest:
    """A client of the model that is well."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.answered = self.failed = 0

    def _ask(self) -> None:
        while not self._has_ended.wait(0.02):
            if _ask(self._server, _WELL, 30.0) == 200:
                self.answered += 1
            else:
                self.failed += 1

    def __enter__(self) -> Honest:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._has_ended.set()
        self._thread.join()


def _ask(server: Server, model: str, within_s: float) -> int:
    try:
        path = f"/v2/models/{model}/infer"
        return server.request_json(path, _BODY, within_s=within_s)[0]
    except OSError:
        return 0


def _write(repository: Path) -> None:
    names = {fault.model for fault in _FAULTS} & broken_models.MODELS.keys()
    broken_models.write(repository, [*names, "member"])
    for name in (_WELL, "reload_fails", "killed"):
        _copy(repository, name, "")
    _copy(repository, "slow", "        time.sleep(0.3)\n")


def _copy(repository: Path, name: str, first: str) -> None:
    """Write the model that works under another name, with something before its answers."""
    broken_models.write(repository, ["works"])
    (repository / "works").rename(repository / name)
    code = repository / name / "1" / "model.py"
    execute = "def execute(self, requests):\n"
    code.write_text(code.read_text().replace(execute, execute + first))


@contextmanager
def _asked(server: Server, model: str) -> Iterator[None]:
    """Have a few clients ask a model and leave when they have waited for a while."""
    has_ended = threading.Event()

    def ask() -> None:
        while not has_ended.wait(0.1):
            _ask(server, model, _PATIENCE_S)

    with ThreadPoolExecutor(_CLIENTS) as clients:
        for _ in range(_CLIENTS):
            clients.submit(ask)
        try:
            yield
        finally:
            has_ended.set()


def _begin(server: Server, fault: Fault) -> None:
    """Bring the fault about."""
    names = ("member", "chain") if fault.model == "chain" else (fault.model,)
    for name in names:
        # it may load for ever
        threading.Thread(target=server.control_model, args=("load", name), daemon=True).start()
        time.sleep(2.0)
    if fault.model == "reload_fails":
        code = server.repository / fault.model / "1" / "model.py"
        code.write_text("import nothing_here\n" + code.read_text())
        server.control_model("load", fault.model)


def _walk(server: Server, fault: Fault, seconds: float, browser: Browser) -> Outcome:
    _begin(server, fault)
    with _asked(server, fault.model):
        before, begun_s = alerts.page(server), time.monotonic()
        while time.monotonic() < begun_s + seconds:
            time.sleep(1.0)
            if fault.model == "killed":
                for pid in server.stub_pids("killed"):
                    psutil.Process(pid).kill()
        after, taken_s = alerts.page(server), time.monotonic() - begun_s
        text, commands = _explained(server, fault)
        shown = browser.evaluate(_SCREEN)
    fired = [
        one
        for one in alerts.firing(before, after, taken_s, server.directory)
        if one.labels.get("model") == fault.model
    ]
    outcome = Outcome(
        text,
        "yes" if fault.model in shown and fault.on_page in shown else "NO",
        _judge_alerts(fault, fired),
        [f"{command}: {_type(server, command)}" for command in commands],
    )
    for name in (fault.model, "member"):
        threading.Thread(target=server.control_model, args=("unload", name), daemon=True).start()
    time.sleep(1.0)
    return outcome


def _explained(server: Server, fault: Fault) -> tuple[str, list[str]]:
    done = _ctl(server, ["explain"])
    first, *rest = done.stdout.splitlines() or [""]
    commands = [line.partition(": ")[2] for line in rest if line.startswith(("  next:", "  then:"))]
    is_named = first.startswith((f"{fault.model}:", "member:" if fault.model == "chain" else "\0"))
    told = "yes" if is_named and fault.explained in done.stdout else f"NO: {first}"
    return told, commands[:3]


def _judge_alerts(fault: Fault, fired: list[alerts.Alert]) -> str:
    names = sorted({one.name for one in fired})
    for one in fired:
        if one.name in fault.alerts and fault.in_alert in f"{one.labels} {one.text}":
            return f"yes: {one.name}"
    return f"NO: {', '.join(names) or 'none'}"


def _ctl(server: Server, words: list[str]) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "zmqtriton-ctl"
    return subprocess.run(
        [str(program), place(server), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=_COMMAND_S,
    )


def _type(server: Server, command: str) -> str:
    """Type a command that was printed; return what came of it."""
    program, *words = shlex.split(command)
    if program != "zmqtriton-ctl":
        return "not typed"
    try:
        done = _ctl(server, [word for word in words if word != "--follow"])
    except subprocess.TimeoutExpired:
        return f"takes longer than {_COMMAND_S:g} s"
    said = (done.stderr or done.stdout).strip().splitlines()
    return f"{done.returncode} {said[-1][:100] if said else ''}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5.0, help="that each fault is watched")
    parser.add_argument("--only", default="", help="faults whose names hold this")
    arguments = parser.parse_args()
    faults = [fault for fault in _FAULTS if arguments.only in fault.model]
    with tempfile.TemporaryDirectory() as name:
        options = [*_OPTIONS, f"--runtime-directory={name}/run"]
        server = Server(Path(name) / "server", options=options)
        _write(server.repository)
        browser_directory = Path(name) / "browser"
        browser_directory.mkdir()
        with server, Browser(browser_directory) as browser, Honest(server) as honest:
            browser.call(
                "Emulation.setDeviceMetricsOverride",
                **{"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False},
            )
            browser.open(f"{server.url}/")
            counts = dict.fromkeys(("explain", "page", "alerts"), 0)
            for fault in faults:
                _print(fault, _walk(server, fault, arguments.seconds, browser), counts)
            print(f"{counts} of {len(faults)}")
        print(f"beside them {honest.answered} answered, {honest.failed} failed")


def _print(fault: Fault, outcome: Outcome, counts: dict[str, Any]) -> None:
    told = outcome.explained, outcome.on_page, outcome.alerted
    for place_, text in zip(counts, told, strict=True):
        counts[place_] += text.startswith("yes")
    print(f"{fault.model:20} explain {told[0]}, page {told[1]}, alerts {told[2]}", flush=True)
    for line in outcome.commands:
        print(f"{'':20}   {line}", flush=True)


if __name__ == "__main__":
    main()
