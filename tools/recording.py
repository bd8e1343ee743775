"""Records README's moving picture: a function is served, saved, called, killed, and still there.

    python -m tools.recording

All commands run in a new directory on this machine, and their output is what they print. It writes
docs/guides/recording.svg, which moves by its style alone, and stands still for those who like that.
"""

from __future__ import annotations

import html
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.server import exchange, free_ports
from tests.support.waiting import eventually

FILE = Path(__file__).resolve().parent.parent / "docs" / "guides" / "recording.svg"
SOURCE = """\
from zmqtriton import model

@model
def shout(text: str, times: int = 2) -> str:
    return " ".join([text.upper()] * times)
"""
#: Seconds of the picture for a command, for a line that it prints, and at the end.
_COMMAND_S, _LINE_S, _END_S = 1.6, 0.35, 4.0
_WIDTH, _LINE, _LEFT, _TOP = 760, 21, 18, 46
_STYLE = """
text { font: 14px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace }
text { white-space: pre; fill: #d7dde6 }
.command { fill: #84b0ff } .comment { fill: #8b95a5 } .error { fill: #ff8683 }
@media (prefers-reduced-motion: no-preference) {
.line { opacity: 0; animation: %gs step-end infinite }
%s}"""


class Line(NamedTuple):
    """A line of the terminal; `kind` is command, comment or output."""

    kind: str
    text: str


class Recorder:
    """Runs commands in a directory, and keeps them with what they print."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port
        self.lines: list[Line] = []

    def say(self, kind: str, text: str) -> None:
        self.lines += [Line(kind, line) for line in text.rstrip("\n").split("\n")]

    def run(self, command: str) -> None:
        """Run a command of the shell. Its picture has the usual port."""
        words = ["sh", "-c", command]
        output = subprocess.run(
            words, cwd=self.directory, stdout=subprocess.PIPE, text=True, check=True
        ).stdout
        self.say("command", command.replace(f":{self.port}", ":8000"))
        if output:
            self.say("output", output)

    def call(self) -> None:
        self.run(f"""curl -s localhost:{self.port}/shout -d '{{"text": "hello"}}'""")


def worker(port: int) -> int:
    """Return the process of the model's only instance."""
    status: Any = exchange(f"http://localhost:{port}/v2/zmqtriton/status").document
    [pid] = [each["pid"] for each in status["processes"] if each["role"] == "stub"]
    return int(pid)


def record(directory: Path) -> list[Line]:
    ports = free_ports(3)
    recorder = Recorder(directory, ports[0])
    file = directory / "shout.py"
    file.write_text(SOURCE)
    recorder.run("cat shout.py")
    kinds = ("http", "grpc", "metrics")
    options = [f"--{kind}-port={port}" for kind, port in zip(kinds, ports, strict=True)]
    command = [sys.executable, "-m", "zmqtriton", "run", "shout.py", "--reload", *options]
    silent = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=directory, stdout=silent, stderr=silent) as server:
        try:
            recorder.say("command", "zmqtriton run shout.py --reload &")
            eventually(lambda: is_ready(ports[0]), 60, "the server is ready")
            recorder.call()
            recorder.say("comment", "# change it, and save")
            old = worker(ports[0])
            recorder.run("sed -i 's/times: int = 2/times: int = 3/' shout.py")
            eventually(lambda: is_new(ports[0], old), 60, "the server has loaded the file again")
            recorder.call()
            pid = worker(ports[0])
            recorder.say("comment", "# kill the process of the model")
            recorder.say("command", f"kill -9 {pid}")
            os.kill(pid, signal.SIGKILL)
            began = time.monotonic()
            recorder.call()
            took_ms = 1000 * (time.monotonic() - began)
            assert worker(ports[0]) != pid
            recorder.say("comment", f"# still there, {took_ms:.0f} ms later, in a new process")
        finally:
            server.terminate()
    return recorder.lines


def is_ready(port: int) -> bool:
    try:
        return exchange(f"http://localhost:{port}/v2/health/ready").status == 200
    except OSError:
        return False


def is_new(port: int, old: int) -> bool:
    try:
        return worker(port) != old
    except ValueError:  # two instances while one takes over
        return False


def drawing(lines: list[Line]) -> str:
    """Return the lines as a picture in which each appears at its time."""
    at_s, times = 0.4, []
    for line in lines:
        at_s += _COMMAND_S if line.kind == "command" else _LINE_S
        times.append(at_s)
    whole = at_s + _END_S
    frames = "".join(
        f"@keyframes l{n} {{ 0% {{ opacity: 0 }} {100 * at / whole:.2f}% {{ opacity: 1 }} }}\n"
        f".l{n} {{ animation-name: l{n} }}\n"
        for n, at in enumerate(times)
    )
    rows = []
    for n, line in enumerate(lines):
        text = html.escape(("$ " if line.kind == "command" else "") + line.text, quote=False)
        y = _TOP + _LINE * n
        rows.append(f'<text class="line l{n} {line.kind}" x="{_LEFT}" y="{y}">{text}</text>')
    height = _TOP + _LINE * len(lines)
    words = html.escape(" ".join(line.text for line in lines if line.kind != "output"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">\n'
        f"<title>A terminal: {words}</title>\n<style>{_STYLE % (whole, frames)}</style>\n"
        f'<rect width="{_WIDTH}" height="{height}" rx="9" fill="#0f1217"/>\n'
        '<g fill="#3a4250"><circle cx="20" cy="16" r="5"/><circle cx="38" cy="16" r="5"/>'
        '<circle cx="56" cy="16" r="5"/></g>\n' + "\n".join(rows) + "\n</svg>\n"
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        picture = drawing(record(Path(name)))
    FILE.write_text(picture, "utf-8")
    print(f"{FILE.name}: {len(picture) / 1000:.1f} kB")


if __name__ == "__main__":
    main()
