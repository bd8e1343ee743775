"""`make faults OF=walk`: models that are broken in one way each, beside a good one.

Who names the model and the cause: `zmqtriton-ctl explain` without a name, the first screen of the
page, the alerts? Does each printed command do what it says, and does the model serve when its fault
is corrected? The good one is asked all the time. Measures and prints; asserts nothing.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.faults.load import Clients
from tests.standard.ctl.system.commands import place
from tests.standard.deploy import alerts
from tests.standard.tools.system import broken_models
from tests.support.browser import Browser
from tests.support.loops.long_turns import long_turns
from tests.support.server import Server
from tests.support.tools import parse_options
from tests.support.waiting import eventually

_BODY = {"inputs": [{"name": "IN", "shape": [1], "datatype": "FP32", "data": [1]}]}
_CLIENTS, _PATIENCE_S = 4, 1.0
_COMMAND_S = 20.0
_FIGURES_S = 15.0
_WELL = "well"
#: The rows of a model, if a person sees all of them without scrolling or a click.
_SCREEN = """((name) => {
  const rows = [...document.querySelectorAll('#rows tr:not(.reason)')];
  const row = rows.find((each) => each.querySelector('a').textContent === name);
  const seen = [row, row?.nextElementSibling].filter((each) =>
    each?.checkVisibility() && each.getBoundingClientRect().bottom <= innerHeight);
  return seen.map((each) => each.innerText).join(" ");
})"""
_COLUMNS = ("explain", "page", "alerts", "commands")


class Fault(NamedTuple):
    """A model, and words of its cause that must be in what is told: by explain, by the page."""

    model: str
    explained: str
    on_page: str
    #: One of these fires.
    alerts: tuple[str, ...]
    #: Words in its text; "" if the name says it all.
    in_alert: str = ""


_NOT_READY = ("ZmqtritonModelNotReady",)
_FAULTS = (
    Fault(
        "import_missing", "cannot import 'nothing_here'", "nothing_here", _NOT_READY, "exception"
    ),
    Fault("syntax_wrong", "SyntaxError", "SyntaxError", _NOT_READY, "exception"),
    Fault("config_wrong", "line 5", "max_batchsize", _NOT_READY, "config_unreadable"),
    Fault("file_missing", "model.py is missing", "model.py", _NOT_READY, "file_missing"),
    Fault("raises", "no weights at", "no weights at", _NOT_READY, "exception"),
    Fault("crashes", "SIGSEGV", "SIGSEGV", _NOT_READY, "crashed"),
    Fault("exits", "with status 3", "status 3", _NOT_READY, "exited"),
    Fault("loads_slowly", "max_load_seconds", "max_load_seconds", _NOT_READY, "load_timeout"),
    Fault("loads_long", "still loading (model.py, line 8", "LOADING", _NOT_READY, "loading"),
    Fault("environment_missing", "/no/such", "/no/such", _NOT_READY, "environment_missing"),
    Fault("gpu_missing", "GPU", "GPU", _NOT_READY, "gpu_missing"),
    Fault("chain", "the disk is gone", "member", _NOT_READY, "member"),
    Fault("dies", "status 4", "status 4", ("ZmqtritonInstancesDie", *_NOT_READY), "exited"),
    Fault(
        "hungry",
        "max_memory_bytes",
        "max_memory_bytes",
        ("ZmqtritonQuotaExceeded",),
        "max_memory_bytes",
    ),
    Fault(
        "throttled",
        "max_executions_per_second is 0.05",
        "max_executions_per_second is 0.05",
        ("ZmqtritonQuotaHoldsBack", "ZmqtritonModelHangs"),
        "max_executions_per_second is 0.05",
    ),
    Fault(
        "crowded",
        "because too many were unanswered",
        "max_requests",
        ("ZmqtritonRequestsFail",),
        "REJECTED",
    ),
    Fault("hanging", "(model.py, line 8", "an execution takes", ("ZmqtritonModelHangs",)),
    Fault("fails", "no such column", "no such column", ("ZmqtritonRequestsFail",), "BACKEND"),
    Fault("asks_itself", "deadlock", "deadlock", ("ZmqtritonModelRefusesRequests",), "deadlock"),
    Fault("reload_fails", "nothing_here", "nothing_here", ("ZmqtritonLoadFailed",), "exception"),
    Fault("slow", "in the model", "requests wait", ("ZmqtritonRequestsWait",)),
    Fault("killed", "somebody has killed it", "SIGKILL", ("ZmqtritonInstancesDie",), "killed"),
)
_OPTIONS = (
    "--model-control-mode=explicit",
    f"--load-model={_WELL}",
    "--exit-on-error=false",
    "--strict-readiness=false",
    "--exit-timeout-secs=1",
    "--model-load-thread-count=4",
)


class Outcome(NamedTuple):
    """Each column as "yes" or "NO" with more, and the effect of each command."""

    columns: tuple[str, ...]
    commands: list[str]


class Asking(Clients):
    """Clients of a model that leave when they have waited for so long, and come again."""

    def __init__(self, server: Server, model: str, clients: int, pause_s: float, within_s: float):
        super().__init__(server.http_port, model, clients, within_s)
        self._pause_s = pause_s

    def _ask(self, connection: HTTPConnection) -> None:
        self._post(connection, json.dumps(_BODY))
        self._is_over.wait(self._pause_s)


def _ask(server: Server, model: str, within_s: float) -> int:
    try:
        return server.request_json(f"/v2/models/{model}/infer", _BODY, within_s=within_s)[0]
    except OSError:
        return 0


# ------------------------------------------------------------------ the faults


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


def _state(server: Server, model: str) -> str:
    _, entries = server.request_json("/v2/repository/index", {})
    return next((e.get("state", "") for e in entries if e["name"] == model), "")


def _begin(server: Server, fault: Fault) -> None:
    """Bring the fault about."""
    for name in ("member", "chain") if fault.model == "chain" else (fault.model,):
        # it may load for ever
        threading.Thread(target=server.control_model, args=("load", name), daemon=True).start()
        settled = {"LOADING"} if name == "loads_long" else {"READY", "UNAVAILABLE"}
        eventually(lambda n=name, s=settled: _state(server, n) in s, 30)  # type: ignore[misc]
    if fault.model == "reload_fails":
        code = server.repository / fault.model / "1" / "model.py"
        code.write_text("import nothing_here\n" + code.read_text())
        server.control_model("load", fault.model)


def _correct(server: Server, name: str) -> None:
    """Have the model work as soon as it is loaded."""
    shutil.rmtree(server.repository / name)
    _copy(server.repository, name, "")


def _end(server: Server, fault: Fault) -> str:
    """Correct the fault and restart the model as advised; return how it serves then."""
    model = fault.model
    for name in ("member", "chain") if model == "chain" else (model,):
        _correct(server, name)
    done = _ctl(server, ["restart", model])
    status = _ask(server, model, 30.0)
    for name in (model, "member"):
        server.control_model("unload", name)
    eventually(lambda: _state(server, model) == "UNAVAILABLE", 30)
    return "" if (done.returncode, status) == (0, 200) else f"{_said(done)}; then {status}"


# ------------------------------------------------------------------ the walk


def _walk(server: Server, fault: Fault, seconds: float, browser: Browser) -> Outcome:
    _begin(server, fault)
    with Asking(server, fault.model, _CLIENTS, 0.1, _PATIENCE_S):
        before, begun_s = alerts.page(server), time.monotonic()
        while time.monotonic() < begun_s + seconds:
            time.sleep(1.0)
            if fault.model == "killed":
                for pid in server.stub_pids("killed"):
                    psutil.Process(pid).kill()
        after, taken_s = alerts.page(server), time.monotonic() - begun_s
        shown = _shown(browser, fault)
        explained, advised = _explained(server, fault)
        typed = [(command, _type(server, fault, command)) for command in advised]
    fired = [
        one
        for one in alerts.firing(before, after, taken_s, server.directory)
        if one.labels.get("model") == fault.model
    ]
    if wrong := _end(server, fault):
        typed.append(("corrected and restarted", f"NO: {wrong}"))
    failed = [command for command, what in typed if what.startswith("NO")]
    columns = (
        explained,
        "yes" if fault.model in shown and fault.on_page in shown else f"NO: {shown!r}",
        _judge_alerts(fault, fired),
        f"NO: {failed}" if failed or not advised else "yes",
    )
    return Outcome(columns, [f"{command}: {what}" for command, what in typed])


def _shown(browser: Browser, fault: Fault) -> str:
    """Return what the page shows of the model; figures of five seconds come after that time."""
    until_s, shown = time.monotonic() + _FIGURES_S, ""
    while fault.on_page not in shown and time.monotonic() < until_s:
        time.sleep(0.5)
        shown = browser.evaluate(f"{_SCREEN}({json.dumps(fault.model)})")
    return shown


def _explained(server: Server, fault: Fault) -> tuple[str, list[str]]:
    done = _ctl(server, ["explain"])
    first, *rest = done.stdout.splitlines() or [""]
    commands = [line.partition(": ")[2] for line in rest if line.startswith(("  next:", "  then:"))]
    is_named = first.startswith((f"{fault.model}:", "member:" if fault.model == "chain" else "\0"))
    is_told = is_named and fault.explained in done.stdout
    return "yes" if is_told else f"NO: {done.stdout}", list(dict.fromkeys(commands))


def _judge_alerts(fault: Fault, fired: list[alerts.Alert]) -> str:
    for one in fired:
        if one.name in fault.alerts and fault.in_alert in f"{one.labels} {one.text}":
            return f"yes: {one.name}"
    return f"NO: {[(one.name, one.text) for one in fired]}"


# ------------------------------------------------------------------ the commands


def _ctl(server: Server, words: list[str]) -> subprocess.CompletedProcess[str]:
    return _run("zmqtriton-ctl", [place(server), *words])


def _run(program: str, words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).parent / program), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=_COMMAND_S,
    )


def _said(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stderr or done.stdout).strip().splitlines()
    return f"{done.returncode} {lines[-1][:100] if lines else ''}"


def _type(server: Server, fault: Fault, command: str) -> str:
    """Type a command that was printed while the fault lasts; return what came of it.

    It may do what it says, or fail with the cause. What has served serves afterwards.
    """
    program, *words = shlex.split(command)
    has_served = _state(server, fault.model) == "READY"
    try:
        if program == "zmqtriton-ctl":
            done = _ctl(server, [word for word in words if word != "--follow"])
        elif program == "zmqtriton":
            done = _run(program, words)
        else:
            return "not typed"
    except subprocess.TimeoutExpired:
        return f"NO: takes longer than {_COMMAND_S:g} s"
    text = done.stdout + done.stderr
    names_cause = fault.explained in text or fault.on_page in text
    is_right = names_cause if done.returncode else bool(text.strip())
    if has_served and not _comes_back(server, fault.model):
        return f"NO: {_said(done)}, and it serves no longer"
    return f"{'' if is_right else 'NO: '}{_said(done)}"


def _comes_back(server: Server, model: str) -> bool:
    try:
        return eventually(lambda: _state(server, model) == "READY", 60)
    except AssertionError:
        return False


def main() -> None:
    arguments = parse_options(
        seconds=(12.0, "that each fault is watched"),
        only=([""], "faults whose names hold one"),
    )
    faults = [one for one in _FAULTS if any(part in one.model for part in arguments.only)]
    with tempfile.TemporaryDirectory() as name:
        options = [*_OPTIONS, f"--runtime-directory={name}/run"]
        server = Server(Path(name) / "server", options=options)
        _write(server.repository)
        browser_directory = Path(name) / "browser"
        browser_directory.mkdir()
        with (
            server,
            Browser(browser_directory) as browser,
            Asking(server, _WELL, 1, 0.02, 30.0) as honest,
        ):
            browser.set_viewport(1280, 900)
            browser.open(f"{server.url}/")
            counts = dict.fromkeys(_COLUMNS, 0)
            for fault in faults:
                _print(fault, _walk(server, fault, arguments.seconds, browser), counts)
            print(f"{counts} of {len(faults)}")
            print("turns beyond the bound:", long_turns(server.log_text()) or "none")
        answered = sum(answer.status == 200 for answer in honest.answers)
        print(f"beside them {answered} answered, {len(honest.answers) - answered} failed")


def _print(fault: Fault, outcome: Outcome, counts: dict[str, int]) -> None:
    for column, text in zip(_COLUMNS, outcome.columns, strict=True):
        counts[column] += text.startswith("yes")
    line = ", ".join(f"{c} {t}" for c, t in zip(_COLUMNS, outcome.columns, strict=True))
    print(f"{fault.model:20} {line}", flush=True)
    for command in outcome.commands:
        print(f"{'':20}   {command}", flush=True)


if __name__ == "__main__":
    main()
