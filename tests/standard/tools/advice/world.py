"""A model with a fault, beside others on one server, and an operator who does what is advised."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.standard.ctl.system.commands import ctl
from tests.standard.tools.system import broken_models
from tests.support.server import Server
from tests.support.waiting import eventually

BODY = {"inputs": [{"name": "IN", "shape": [1], "datatype": "FP32", "data": [1]}]}
BATCH = {"inputs": [{"name": "IN", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}
#: They show something, and change nothing.
_SHOWING = {"check", "config", "doctor", "explain", "infer", "logs", "models", "stacks", "stats"}
_SHOWING |= {"status", "clients", "profile", "memory", "debug"}
#: Programs of the machine that a command may be, beside our own.
_PROGRAMS = {"df", "ls", "rm", "namei", "ss", "fuser", "findmnt", "chmod", "mkdir", "kill"}
_PROGRAMS |= {"openssl", "cat"}


def program(words: list[str], directory: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command as an operator does, with our programs on the PATH."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=directory,
        env={**os.environ, "PATH": path},
    )


class Operator:
    """Types commands as they are printed."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def findings(self, *words: str) -> list[Any]:
        done = ctl(self.server, "explain", *words, "-o", "json")
        assert 0 == done.exit_code, done.output
        return json.loads(done.stdout)

    def type(self, command: str) -> str:
        """Type a command; return what it prints, which is something, unless it fails."""
        words = shlex.split(command)
        if words[0] == "zmqtriton-ctl":
            done = ctl(self.server, *words[1:])
            status, said = done.exit_code, done.output
        else:
            assert words[0] in {"zmqtriton", *_PROGRAMS}, f"nobody knows how to type {command}"
            ended = program(words, self.server.directory)
            status, said = ended.returncode, ended.stdout + ended.stderr
        # a check that finds errors has that status
        assert not status or words[1:2] == ["check"], (command, status, said)
        assert said.strip() or words[0] in {"rm", "chmod", "mkdir", "kill"}, command
        return said


def is_showing(command: str) -> bool:
    """True of a command that changes nothing, which is typed while the fault lasts."""
    return shlex.split(command)[1] in _SHOWING


class World(Operator):
    """One model of the table."""

    def __init__(self, server: Server, name: str) -> None:
        super().__init__(server)
        self.name = name
        self.path = server.repository / name
        self.code = self.path / "1" / "model.py"
        self.config = self.path / "config.pbtxt"

    # ------------------------------------------------------------- its files

    def write(self, config: str, code: str | None) -> None:
        self.code.parent.mkdir(parents=True, exist_ok=True)
        self.config.write_text(config)
        if code is not None:
            self.write_code(code)

    def write_code(self, code: str) -> None:
        self.code.write_text(code)

    def configure(self, old: str, new: str) -> None:
        self.server.edit_config(self.name, old, new)

    def add_to_config(self, text: str) -> None:
        self.config.write_text(self.config.read_text() + text)

    def remove(self) -> None:
        shutil.rmtree(self.path)

    # --------------------------------------------------------------- requests

    def load(self, name: str = "") -> str:
        return self.server.control_model("load", quote(name or self.name))

    def unload(self) -> str:
        return self.server.control_model("unload", quote(self.name))

    def load_behind(self, name: str = "") -> None:
        """Load it without waiting, which may be for ever."""
        threading.Thread(target=self._load_or_leave, args=(name,), daemon=True).start()

    def _load_or_leave(self, name: str) -> None:
        with suppress(OSError):
            self.load(name)

    def state(self) -> str:
        _, entries = self.server.request_json("/v2/repository/index", {})
        return next((e.get("state", "") for e in entries if e["name"] == self.name), "")

    def ask(self, within_s: float = 60.0, body: Any = BODY, model: str = "") -> int:
        """Return the status of the answer; 0 if there is none in time."""
        with suppress(OSError):
            path = f"/v2/models/{quote(model or self.name)}/infer"
            return self.server.request_json(path, body, within_s=within_s)[0]
        return 0

    def ask_behind(self, *, times: int = 1, body: Any = BODY) -> None:
        """Ask without waiting for the answer, which may never come."""
        for _ in range(times):
            threading.Thread(target=self.ask, args=(600.0, body), daemon=True).start()

    def load_with(self, clients: int, times: int, body: Any = BODY) -> list[int]:
        """Ask by some clients at once; return the statuses."""
        statuses: list[int] = []

        def run() -> None:
            statuses.extend(self.ask(body=body) for _ in range(times))

        threads = [threading.Thread(target=run) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return statuses

    def answered_in(self, seconds: float, clients: int) -> list[int]:
        """Return the statuses of clients that ask again a while after each answer."""
        statuses: list[int] = []
        ends = threading.Event()

        def run() -> None:
            while not ends.is_set():
                statuses.append(self.ask())
                ends.wait(0.02)

        threads = [threading.Thread(target=run) for _ in range(clients)]
        for thread in threads:
            thread.start()
        ends.wait(seconds)
        ends.set()
        for thread in threads:
            thread.join()
        return statuses

    def queued_ms(self, load: Callable[[], object], model: str = "") -> float:
        """Return how long requests of this load wait in the queue, on average."""
        before = self._queue(model)
        load()
        after = self._queue(model)
        count, ns = (after[key] - before[key] for key in ("count", "ns"))
        return float(ns / max(1, count) / 1e6)

    def _queue(self, model: str) -> dict[str, int]:
        stats = self.server.statistics(model or self.name)["inference_stats"]["queue"]
        return {key: int(stats.get(key, 0)) for key in ("count", "ns")}

    # ------------------------------------------------------------ explanations

    def await_cause(self, words: str) -> list[Any]:
        """Wait until explain says this; logs and counts follow the answers. Return all it says."""

        def is_told() -> list[Any]:
            self.last = self.findings(self.name)
            return self.last if any(words in one["text"] for one in self.last) else []

        try:
            return eventually(is_told, 60, f"{self.name}: {words}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it says {self.last}") from None

    def is_named(self, cause: str) -> bool:
        """Return True if the server itself names the cause."""
        texts = [one["text"] for one in self.findings(self.name)]
        return any(cause in text and "a check also finds" not in text for text in texts)

    def texts(self) -> str:
        return "\n".join(one["text"] for one in self.findings(self.name))

    def serves(self) -> None:
        eventually(lambda: self.ask() == 200, 60, f"{self.name} serves; {self.texts()}")


def code_of(body: str, before: str = "") -> str:
    return f"{broken_models.BEGIN}{before}\n\nclass TritonPythonModel:\n{body}"


def first(findings: Iterable[Any], words: str) -> Any:
    """Return the finding with these words, rather one of the server's than of a check of files."""
    matches = [one for one in findings if words in one["text"]]
    return next((one for one in matches if "a check also finds" not in one["text"]), matches[0])
