"""The progress of a load, shown while the command waits for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from zmqtriton.ctl.client import QUICK_TIMEOUT_S, Client, NoServerError, ServerSelector, connect
from zmqtriton.ctl.progress.live_line import LiveLine
from zmqtriton_floor.errors import ZmqTritonError

_LOOK_EVERY_S = 0.5
_ALL_LINES = 1 << 30


@contextmanager
def shown_load(client: Client, model: str) -> Iterator[None]:
    """Show what the load of a model waits for; "" is that of any model."""
    done = threading.Event()
    with LiveLine(model or "loading") as line:
        watcher = threading.Thread(
            target=_watch, args=(ServerSelector(str(client.directory)), model, line, done)
        )
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def _watch(server: ServerSelector, model: str, line: LiveLine, done: threading.Event) -> None:
    """Look every now and then; a server that does not answer is the command's to report."""
    if done.wait(_LOOK_EVERY_S):
        return  # most loads take less, and need no second connection
    try:
        with connect(server) as client:
            after = _last_line(client, 0)["last"]
            while not done.wait(_LOOK_EVERY_S):
                phases = client.call("loads", timeout_s=QUICK_TIMEOUT_S)
                lines = _last_line(client, after)["lines"]
                line.show(describe(phases, lines, model))
    except (NoServerError, ZmqTritonError):
        return


def _last_line(client: Client, after: int) -> dict[str, Any]:
    asked = {"model": "", "after": after, "lines": _ALL_LINES if after else 1}
    found: dict[str, Any] = client.call("logs", asked, timeout_s=QUICK_TIMEOUT_S)
    return found


def describe(phases: dict[str, str], lines: list[dict[str, Any]], model: str) -> str:
    """Describe the load: its phase, and what the process that prepares it has said last."""
    if not model:
        return ", ".join(f"{name} ({phase})" for name, phase in phases.items())
    preparers = (f"{model}.environment", f"{model}.copy")
    said = [line["text"] for line in lines if line["file"] in preparers]
    return "; ".join([*([phases[model]] if model in phases else []), *said[-1:]])
