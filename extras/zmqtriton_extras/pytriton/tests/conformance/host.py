"""Runs the scripts on a package, and plays cases against what they serve.

A package is `zmqtriton.pytriton`, or the one that it takes the place of; then the scripts are
copied with its name in their imports, which is all that users have to change.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tests.conformance.cases import Case
from tests.conformance.play import Target
from tests.support.server import free_ports
from tests.support.waiting import eventually

HERE = Path(__file__).resolve().parent
OURS = "zmqtriton.pytriton"
START_S = 300.0


class Package(NamedTuple):
    """The package and the Python that has it."""

    name: str = OURS
    python: str = sys.executable


class Host:
    """A process of host.py: serves the models of some scripts between `start` and `stop`."""

    def __init__(self, package: Package, names: Sequence[str], directory: Path) -> None:
        self._package = package
        self._names = names
        self._directory = directory
        self._log = directory / "host.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._target: Target
        self.http_port = self.grpc_port = 0

    def start(self) -> None:
        ready = self._directory / "ready"
        ready.unlink(missing_ok=True)
        self.http_port, self.grpc_port, metrics = free_ports(3)
        ports = self.http_port, self.grpc_port, metrics
        script = scripts(self._package, self._directory) / "host.py"
        with self._log.open("wb") as output:
            self._process = process = subprocess.Popen(
                [self._package.python, str(script), *map(str, ports), *self._names],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                env=environment(self._package, self._directory),
            )

        def is_ready() -> bool:
            assert process.poll() is None, self._said()
            return ready.exists()

        eventually(is_ready, START_S, "the host serves")
        self._target = Target(ports, str(self._directory), self._log)

    def play(self, case: Case) -> Any:
        return normal(self._target.play(case))

    def stop(self) -> None:
        """End it as a script ends: it leaves nothing, and its status is 0."""
        if self._process is None:
            return
        self._target.close()
        self._process.communicate(timeout=60)
        assert self._process.returncode == 0, self._said()
        self._process = None

    def kill(self) -> None:
        """End it with all of its processes."""
        if self._process is not None and self._process.poll() is None:
            children = psutil.Process(self._process.pid).children(recursive=True)
            self._process.kill()
            self._process.wait()
            for child in children:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        self._process = None

    def _said(self) -> str:
        return self._log.read_text("utf-8", "replace")


def scripts(package: Package, directory: Path) -> Path:
    """Write the scripts for a package. They are left where they stand if they name it already."""
    if package.name == OURS:
        return HERE / "scripts"
    target = directory / "scripts"
    if target.exists():
        return target
    shutil.copytree(HERE / "scripts", target, ignore=shutil.ignore_patterns("__pycache__"))
    for path in target.glob("*.py"):
        path.write_text(path.read_text("utf-8").replace(OURS, package.name), "utf-8")
    return target


def environment(package: Package, directory: Path) -> Mapping[str, str]:
    # The other package looks for its programs on the path and writes below the cache's directory.
    path = f"{Path(package.python).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(directory / "cache")}


@contextmanager
def hosting(package: Package, names: Sequence[str], directory: Path) -> Iterator[Host]:
    host = Host(package, names, directory)
    try:
        host.start()
        yield host
        host.stop()
    finally:
        host.kill()


def run_program(
    package: Package, name: str, directory: Path, host: Host | None = None
) -> dict[str, Any]:
    """Run a script that asks the package itself; returns its answers by the names of its cases."""
    answers = directory / f"{name}.json"
    script = scripts(package, directory) / f"{name}.py"
    ports = (host.http_port, host.grpc_port) if host else free_ports(3)
    words = [package.python, str(script), str(answers), *map(str, ports)]
    log = directory / f"{name}.log"
    with log.open("wb") as output:
        status = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=environment(package, directory),
            timeout=START_S,
        ).returncode
    assert status == 0, log.read_text("utf-8", "replace")
    return normal(json.loads(answers.read_text("utf-8")))


# ---------------------------------------------------------------------- normal form

_HEADING = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s*File "(?P<path>[^"]*)", line \d+, in (?P<function>.*)')
#: What each package writes in its own way before and behind the callable's traceback.
_BEFORE = re.compile(
    r"\A(?:Failed to process the request\(s\) for model (?:instance )?'[^']*', message: )?"
    r"(?:TritonModelException: )?(?:Model execute error: )?"
)
_BEHIND = re.compile(r"\n+At:\n.*\Z", re.DOTALL)
_CHANGING = (
    (re.compile(r"zmqtriton\.pytriton"), "pytriton"),
    (re.compile(r"\b0x[0-9a-f]{6,}"), "@ADDRESS@"),
    # numpy 2 names the types of scalars.
    (re.compile(r"\bnp\.str_\(('[^']*')\)"), r"\1"),
    # Ours says behind Triton's text what is wrong with the key.
    (re.compile(r"(?<=expecting header 'triton-access-token')\. (?:The|It) [\w ]+"), ""),
    (re.compile(r"127\.0\.0\.1:\d{4,}"), "@SERVER@"),
)


def normal(answer: Any) -> Any:
    """An answer as it is in every run and of either package: without paths, ports and frames."""
    if isinstance(answer, str):
        return _text(answer)
    if isinstance(answer, list):
        return [normal(one) for one in _in_order(answer)]
    if isinstance(answer, dict):
        return {key: normal(value) for key, value in answer.items() if key != "workspace-path"}
    return answer


def _in_order(answers: list[Any]) -> list[Any]:
    """Responses of a stream by the ids of their requests: they may come in any order."""
    if not all(isinstance(one, dict) and "infer_response" in one for one in answers):
        return answers
    return sorted(answers, key=lambda one: one["infer_response"].get("id", ""))


def _text(text: str) -> str:
    for pattern, replacement in _CHANGING:
        text = pattern.sub(replacement, text)
    text = _BEFORE.sub("", text)
    return traceback_of(text) if _HEADING in text else text


def traceback_of(text: str) -> str:
    """A traceback with the frames of scripts alone, without their lines of code."""
    kept = []
    for line in _BEHIND.sub("", text).splitlines():
        frame = _FRAME.match(line)
        if frame is not None:
            path = Path(frame["path"])
            if path.name == "coded" or path.parent.name == "scripts":
                kept.append(f"in {frame['function']}")
        elif line.strip() and not line.startswith("    ") and not line.endswith(_HEADING):
            kept.append(line)
    return "\n".join(kept)
