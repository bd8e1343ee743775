"""A line on the step that a command waits for; it changes on a terminal, else there are a few."""

from __future__ import annotations

import re
import sys
import threading
import time
from typing import TYPE_CHECKING

from zmqtriton_addons.ctl.output import chosen_form, print_note

if TYPE_CHECKING:
    from rich.progress import Progress

_PERCENTAGE = re.compile(r"(\d+) %")
_BAR_WIDTH = 20


class LiveLine:
    """Shows on stderr the present step and its time, from the first second on.

    Without a terminal, it prints a line after five seconds and then every ten.
    """

    FIRST_S = 5.0
    EVERY_S = 10.0

    def __init__(self, what: str) -> None:
        self._what = what
        self._step = ""
        self._began_s = time.monotonic()
        self._has_ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._bar: Progress | None = None

    def __enter__(self) -> LiveLine:
        if sys.stderr.isatty() and chosen_form() == "table":
            self._bar = _make_bar()
            self._bar.add_task(self._what, total=None)
            self._bar.start()
        else:
            self._thread = threading.Thread(target=self._print_now_and_then, daemon=True)
            self._thread.start()
        return self

    def show(self, step: str) -> None:
        """Show the present step; a percentage in it moves the bar."""
        self._step = step
        if self._bar is not None:
            share = _PERCENTAGE.search(step)
            self._bar.update(
                self._bar.task_ids[0],
                description=f"{self._what}: {step}",
                total=100 if share else None,
                completed=int(share[1]) if share else 0,
            )

    def _print_now_and_then(self) -> None:
        pause_s = self.FIRST_S
        while not self._has_ended.wait(pause_s):
            pause_s = self.EVERY_S
            step = f": {self._step}" if self._step else ""
            print_note(f"{self._what}{step}, for {time.monotonic() - self._began_s:.0f} s")

    def __exit__(self, *error: object) -> None:
        self._has_ended.set()
        if self._bar is not None:
            self._bar.stop()
        if self._thread is not None:
            self._thread.join()


def _make_bar() -> Progress:
    # only now: it takes long to import, and most commands show none
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=_BAR_WIDTH),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
