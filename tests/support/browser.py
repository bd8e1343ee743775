"""Chromium without a window, driven over its DevTools protocol: JSON through two pipes.

    with Browser(tmp_path) as browser:
        browser.open(f"{server.url}/")
        browser.wait_for("document.title === 'triton'")

Whatever the page logs, breaks or is refused by its policy stands in `complaints`.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.needs import find_tool
from tests.support.waiting import eventually

_TIMEOUT_S = 60.0
#: Chromium reads commands from 3 and answers on 4; what is inherited may have any number.
_LAUNCHER = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3])
os.dup2(read, 3), os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
_ARGUMENTS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--password-store=basic",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "about:blank",
)


class Browser:
    """One page of one browser; running between `__enter__` and `__exit__`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._program = find_tool("chromium", "chromium-browser")
        self._number = 0
        self._received = b""
        self._session = ""
        self._process: subprocess.Popen[bytes] | None = None
        self.complaints: list[str] = []

    def __enter__(self) -> Browser:
        # It makes a socket there, and the path of one has 107 bytes at most.
        self._temporary = tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True)
        commands_out, commands = os.pipe()
        answers, answers_in = os.pipe()
        self._commands, self._answers = commands, answers
        # Root has no sandbox; a page of our own server is all that is ever opened.
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        profile = f"--user-data-dir={self._directory / 'profile'}"
        self._log = self._directory / "chromium.log"
        launch = [sys.executable, "-c", _LAUNCHER, str(commands_out), str(answers_in)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*launch, self._program, *sandbox, profile, *_ARGUMENTS],
                pass_fds=(commands_out, answers_in),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                # What a desktop keeps for its user is nobody's business here.
                env={
                    **os.environ,
                    "HOME": str(self._directory),
                    "TMPDIR": self._temporary.name,
                    "DBUS_SESSION_BUS_ADDRESS": "disabled:",
                },
            )
        os.close(commands_out)
        os.close(answers_in)
        fcntl.fcntl(answers, fcntl.F_SETFL, os.O_NONBLOCK)
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
            self._session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends it; without its pipe Chromium leaves by itself."""
        os.close(self._commands)
        os.close(self._answers)
        assert self._process is not None
        try:
            self._process.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            self._temporary.cleanup()

    # ------------------------------------------------------------- protocol

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of one command; an AssertionError where Chromium refuses it."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        try:
            os.write(self._commands, json.dumps(message).encode() + b"\0")
        except BrokenPipeError:
            raise AssertionError("Chromium ended") from None
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + _TIMEOUT_S
        while b"\0" not in self._received:
            left = deadline - time.monotonic()
            assert left > 0, "Chromium does not answer"
            select.select([self._answers], [], [], left)
            try:
                data = os.read(self._answers, 1 << 20)
            except BlockingIOError:
                continue
            if not data:
                end = self._log.read_text(errors="replace")[-2000:]
                raise AssertionError(f"Chromium ended: {end}")
            self._received += data
        text, _, self._received = self._received.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._record_complaint(message.get("method", ""), message.get("params", {}))
        return message

    def _record_complaint(self, event: str, about: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            thrown = details.get("exception", {}).get("description", "")
            self.complaints.append(f"exception: {details['text']} {thrown}")
        elif event == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning"):
            said = [str(a.get("value", a.get("description"))) for a in about["args"]]
            self.complaints.append(f"console: {' '.join(said)}")
        elif event == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            entry = about["entry"]
            # Chromium itself logs each answer that is no 2xx, which is a page's daily bread.
            if entry["source"] != "network":
                self.complaints.append(f"log: {entry['text']} {entry.get('url', '')}")

    # ------------------------------------------------------------- the page

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def evaluate(self, expression: str) -> Any:
        """Return what JavaScript makes of it, as JSON; awaited where it is a promise."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, f"{expression}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def wait_for(self, expression: str, within_s: float = _TIMEOUT_S) -> Any:
        """The first true value of it."""
        text = f"(() => {{ try {{ return {expression}; }} catch {{ return null; }} }})()"
        return eventually(lambda: self.evaluate(text), within_s, f"{expression}\n{self.complaints}")

    def text(self, selector: str) -> str:
        """The text that a person sees there."""
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    def fill(self, selector: str, text: str) -> None:
        """As if typed: focus, all of it replaced."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
        self.evaluate("document.execCommand('selectAll')")
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def press(self, key: str, code: int, modifiers: int = 0) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                modifiers=modifiers,
            )

    def set_viewport(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the width of the window, and which colours its owner likes."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def screenshot(self, path: Path) -> bytes:
        """The whole page as PNG."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        data = base64.b64decode(answer["data"])
        path.write_bytes(data)
        return data
