"""Makes the pictures of README and guides: the web page and `zmqtriton-ctl top`, under load.

    python -m tools.screenshots [--seconds 300]

Serves the demo's models, sends requests for the given time, since the page shows the last five
minutes, and writes to docs/guides. Needs Chromium.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import io
import json
import math
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from tests.support.browser import Browser
from tests.support.server import Server
from zmqtriton_extras.authoring.demo import MODELS

ROOT = Path(__file__).resolve().parent.parent
GUIDES = ROOT / "docs" / "guides"
COLUMNS, LINES = 120, 11
#: How long the load needs from one peak to the next.
_WAVE_S = 100.0
_CLEAR = b"\x1b[H\x1b[2J"
#: Fonts from elsewhere, which no picture may load.
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


class Picture(NamedTuple):
    """A picture of the web page."""

    file: str
    address: str
    plots: int
    is_dark: bool


PICTURES = (
    Picture("page.png", "#add_sub/1/overview", plots=6, is_dark=False),
    Picture("page-server.png", "#/overview", plots=4, is_dark=True),
)


def _tensor(name: str, datatype: str, *data: Any, shape: tuple[int, ...] = ()) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape or [len(data)], "data": data}


def _vectors(*names: str, batch: tuple[int, ...] = (1,)) -> list[dict[str, Any]]:
    return [_tensor(name, "FP32", *[1.0] * 16, shape=(*batch, 16)) for name in names]


class Question(NamedTuple):
    """A request that clients send again and again."""

    path: str
    document: dict[str, Any]
    clients: int
    pause_s: float


QUESTIONS = (
    Question("add_sub/infer", {"inputs": _vectors("INPUT0", "INPUT1")}, 3, 0.05),
    Question("doubled/infer", {"inputs": _vectors("LEFT", "RIGHT")}, 1, 0.2),
    Question(
        "string_upper/infer",
        {"inputs": [_tensor("TEXT", "BYTES", "hello", shape=(1, 1))]},
        2,
        0.1,
    ),
    Question(
        "pipeline/infer",
        {"inputs": [_tensor("TEXT", "BYTES", "hello"), *_vectors("LEFT", "RIGHT", batch=())]},
        1,
        0.3,
    ),
    Question("tokens/generate_stream", {"TEXT": "as it comes", "DELAY_MS": 100}, 1, 0.5),
    # an exception
    Question("crashy/infer", {"inputs": [_tensor("MODE", "INT32", 3)]}, 1, 2.0),
)


def _ask(server: Server, path: str, document: dict[str, Any]) -> None:
    """Send a request, and ignore its result."""
    body = json.dumps(document).encode()
    with (
        contextlib.suppress(OSError),
        urllib.request.urlopen(f"{server.url}/v2/models/{path}", body, timeout=30) as answer,
    ):
        answer.read()


@contextlib.contextmanager
def _load(server: Server) -> Iterator[None]:
    """Let clients send requests, in waves, until the end of the block."""
    is_over = threading.Event()

    def ask_on(question: Question) -> None:
        wave = 1.0
        while not is_over.wait(question.pause_s * wave):
            _ask(server, question.path, question.document)
            wave = 1.5 + math.sin(2 * math.pi * time.monotonic() / _WAVE_S)

    clients = [
        threading.Thread(target=ask_on, args=(question,))
        for question in QUESTIONS
        for _ in range(question.clients)
    ]
    for client in clients:
        client.start()
    try:
        yield
    finally:
        is_over.set()
        for client in clients:
            client.join()


def _photograph(server: Server, directory: Path) -> None:
    """Write the pictures of the page, each as high as its content."""
    directory.mkdir()
    with Browser(directory) as browser:
        browser.open(f"{server.url}/")
        for picture in PICTURES:
            browser.set_viewport(1280, 900, dark=picture.is_dark)
            browser.evaluate(f"void (location.hash = {picture.address!r})")
            drawn = "document.querySelectorAll('#plots .curve[d^=M]').length"
            browser.wait_for(f"{drawn} >= {picture.plots}")
            browser.evaluate("new Promise((resolve) => setTimeout(resolve, 3000))")  # the tiles
            height = browser.evaluate("document.documentElement.scrollHeight")
            browser.set_viewport(1280, height, dark=picture.is_dark)
            browser.screenshot(GUIDES / picture.file)


def _screen_of_top(server: Server) -> str:
    """Return a screen of `zmqtriton-ctl top` with its colours."""
    ours, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", LINES, COLUMNS, 0, 0))
    program = Path(sys.executable).with_name("zmqtriton-ctl")
    command = [str(program), "top", "--interval", "5", "--server", server.url]
    with subprocess.Popen(command, stdin=terminal, stdout=terminal) as process:
        os.close(terminal)
        output = b""
        while output.count(_CLEAR) < 2:  # the first is whole when the second begins
            output += os.read(ours, 65536)
        os.write(ours, b"q")
        process.wait(30)
    os.close(ours)
    return output.split(_CLEAR)[1].decode()


def svg_of(screen: str, title: str) -> str:
    """Return a terminal's text with its colours as a drawing of that terminal."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi("\n".join(screen.rstrip().splitlines())))
    return _FONTS.sub("", console.export_svg(title=title, unique_id="top"))


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes the pictures of README and guides.")
    parser.add_argument("--seconds", type=float, default=300.0, help="of load before; default 300")
    seconds = parser.parse_args().seconds
    models = sorted(path for path in MODELS.iterdir() if path.is_dir())
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        options = ["--model-control-mode=explicit", "--load-model=*"]  # as `zmqtriton demo` has it
        with Server(directory / "server", models, options=options) as server, _load(server):
            time.sleep(seconds)
            _photograph(server, directory / "browser")
            screen = _screen_of_top(server)
        (GUIDES / "top.svg").write_text(svg_of(screen, "zmqtriton-ctl top"), "utf-8")
    for file in (*(picture.file for picture in PICTURES), "top.svg"):
        print(f"docs/guides/{file}: {(GUIDES / file).stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
