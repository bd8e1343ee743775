"""A reader's desk: a shell of its own in a directory of its own, which types what a page prints.

It has its own network, so that the ports that pages print are free, its own process numbers, so
that everything started there ends with it, and its own /run and /tmp, so that it sees no servers
but its own. Its directory lies in neither.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tests.support.needs import ROOT, find_tool, skip_missing
from tests.support.server import DEMO_MODELS
from tests.support.waiting import eventually
from tests.system.docs.examples import split_commands

#: Commands that serve until they are stopped.
_SERVES = re.compile(r"(sudo )?(zmqtriton (run|demo|--)|tritonserver --)")
#: Steps that every desk has done: it has the environment of the tests, where all is installed.
_DONE_BEFORE = re.compile(r"python3? -m venv|pip install|npm install|\. \.venv/bin/activate$")
#: Places that pages print and tests must not write to, and where they are on the desk.
_PLACES = {
    "/srv/": "srv/",
    "/etc/zmqtriton/": "etc/zmqtriton/",
    "/run/": "run/",
    "/home/me/": "",
}
_COMMAND_LIMIT_S = 120.0
#: What the desk needs, and what most readers type into it, with Debian's packages.
_TOOLS = {
    "unshare": "util-linux",
    "bash": "bash",
    "ip": "iproute2",
    "mount": "mount",
    "curl": "curl",
    "openssl": "openssl",
}


class Desk:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log = directory / "server.log"
        self._number = 0
        for tool, package in _TOOLS.items():
            find_tool(tool, package=package)
        unshare = ["unshare", "--net", "--pid", "--fork"]
        unshare += ["--kill-child", "--mount-proc"]
        if os.geteuid():
            unshare += ["--user", "--map-root-user"]
        if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
            skip_missing("a network namespace of one's own")
        self._shell = subprocess.Popen(
            [*unshare, "bash", "--norc", "--noprofile"],
            cwd=directory,
            env=self._environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.run("ip link set lo up")
        # zmqtriton-ctl looks there, and would find servers of other tests.
        for place in ("/run", "/tmp"):
            self._cover(place)
        # As on a terminal of a reader, but without the meter, and with a status for refusals.
        self.run('curl() { command curl -sS "$@"; }')

    def _cover(self, place: str) -> None:
        """Mount an empty directory at a place; a checkout that lies below stays where it is."""
        commands = [f"mount -t tmpfs desk {place}"]
        if ROOT.is_relative_to(place):
            aside, root = self._directory / "checkout", shlex.quote(str(ROOT))
            commands.insert(0, f"mkdir {aside} && mount --bind {root} {aside}")
            commands.append(f"mkdir -p {root} && mount --move {aside} {root} && rmdir {aside}")
        status, output = self.run(" && ".join(commands))
        assert status == 0, output

    def _environment(self) -> dict[str, str]:
        scratch = self._directory / "tmp"
        scratch.mkdir()
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
        return os.environ | {
            "PATH": path,
            "HOME": str(self._directory),
            "TMPDIR": str(scratch),
            "XDG_RUNTIME_DIR": str(scratch),
            "COLUMNS": "200",
            "MODELS": str(DEMO_MODELS),
            "ROOT": str(ROOT),
            # An environment of the tests may stand beside models under test; none is looked for.
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def __enter__(self) -> Desk:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(AssertionError, OSError):
            self.stop_server()
        self._shell.kill()
        self._shell.wait()
        assert self._shell.stdin is not None
        with suppress(OSError):
            self._shell.stdin.close()

    def path(self, printed: str) -> Path:
        """Return where a file is that a page prints."""
        return self._directory / self.in_place(printed)

    def in_place(self, text: str) -> str:
        for printed, place in _PLACES.items():
            text = re.sub(rf"(?<![\w.-]){printed}", f"{self._directory}/{place}", text)
        return text

    def type(self, commands: str) -> str:
        """Type the lines of a block; return what the last command printed.

        Raises AssertionError if one fails. One that serves goes on in the background.
        """
        output = ""
        for command in split_commands(self.in_place(commands)):
            if _DONE_BEFORE.search(command):
                continue
            if _SERVES.match(command) and not command.rstrip().endswith("&"):
                self.serve(command)
                continue
            status, output = self.run(command)
            assert status == 0, f"{command}\nended with {status}\n{output}\n{self.log_text()}"
        return output

    def run(self, command: str) -> tuple[int, str]:
        """Run a command in the shell; return its status, and what it printed."""
        self._number += 1
        script, output, end = (
            self._directory / "tmp" / f"{self._number}.{name}" for name in ("sh", "out", "end")
        )
        script.write_text(self.in_place(command) + "\n")
        self._tell(f". {script} >{output} 2>&1 </dev/null; echo $? >{end}.new; mv {end}.new {end}")
        eventually(
            lambda: end.exists() or self._shell.poll() is not None, _COMMAND_LIMIT_S, command
        )
        return int(end.read_text()), output.read_text("utf-8", "replace")

    def _tell(self, line: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(line + "\n")
        self._shell.stdin.flush()

    def serve(self, command: str) -> None:
        """Start a server in place of the one before, and wait until it is ready."""
        self.stop_server()
        command = command.removeprefix("sudo ").partition(" #")[0]
        self.run(f"(exec {command}) >server.log 2>&1 & SERVER=$!")
        state = eventually(lambda: self.run(_STATE)[1].strip(), _COMMAND_LIMIT_S, command)
        assert state == "ready", f"{command}\n{state}\n{self.log_text()}"

    def stop_server(self) -> None:
        self.run('[ -z "$SERVER" ] || { kill $SERVER; wait $SERVER; SERVER=; }')

    def log_text(self) -> str:
        """Return what the server has printed."""
        return self._log.read_text("utf-8", "replace") if self._log.exists() else ""

    def await_log(self, pattern: re.Pattern[str]) -> None:
        """Wait until the server has printed this."""
        eventually(lambda: pattern.search(self.log_text()), 30.0, pattern.pattern)


#: Prints "ready" or "ended", or nothing as long as neither is so.
_STATE = (
    "for url in {http,https}://localhost:8000/v2/health/ready; do"
    " command curl -skf -o/dev/null $url && echo ready && break; done"
    " || { kill -0 $SERVER || echo ended; } 2>/dev/null"
)
