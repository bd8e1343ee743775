"""The progress of a load, shown while the command waits for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from zmqtriton.control_client.client import (
    QUICK_TIMEOUT_S,
    Client,
    NoServerError,
    ServerSelector,
    connect,
)
from zmqtriton.ctl.progress.live_line import LiveLine
from zmqtriton_floor.errors import ZmqTritonError

_LOOK_EVERY_S = 0.5


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
            while not done.wait(_LOOK_EVERY_S):
                line.show(describe(client.call("loads", timeout_s=QUICK_TIMEOUT_S), model))
    except (NoServerError, ZmqTritonError):
        return


def describe(phases: dict[str, str], model: str) -> str:
    """Describe a load by its phase, or all loads."""
    if model:
        return phases.get(model, "")
    return ", ".join(f"{name} ({phase})" for name, phase in phases.items())
