"""A server that runs for as long as something here refers to it."""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from zmqtriton.embedded import Server as OwnedServer
from zmqtriton_addons.tritonserver.errors import InternalError
from zmqtriton_addons.tritonserver.log_records import LogCallback, begin_delivery
from zmqtriton_floor.errors import Unavailable

_LOOK_S = 0.01
#: Beyond the exit timeout, in which requests are answered, its processes may take so long to end.
_END_S = 60.0
#: The callback may be slow.
_LOG_END_S = 5.0


class RunningServer:
    """Owns a server, which ends when a program drops it without a stop."""

    def __init__(self, log_callback: LogCallback | None = None, **options: Any) -> None:
        """Start it, and wait until it has tried all that it loads at the start.

        Raises InternalError if it ends instead.
        """
        self.connection = OwnedServer(**options)
        within_s = options["exit_timeout_secs"] + _END_S
        stop: Callable[[], object] = partial(self.connection.stop, within_s)
        try:
            with ExitStack() as until_started:
                stderr = None
                if log_callback is not None:
                    ours, stderr = os.pipe()
                    until_started.callback(os.close, stderr)
                    stop = partial(_stop, stop, begin_delivery(ours, log_callback))
                self.connection.start(wait_until_ready=False, timeout_s=math.inf, stderr=stderr)
            while not self.connection.call("is_open"):
                time.sleep(_LOOK_S)
        except Unavailable as error:
            stop()
            raise InternalError(f"creating server: {error.text}") from error
        except BaseException:
            stop()
            raise
        self._end = weakref.finalize(self, stop)
        # at exit the server notices by itself that this process ends
        self._end.atexit = False

    def stop(self) -> None:
        """Answer open requests, and end the server."""
        self._end()


def _stop(stop: Callable[[], object], delivery: threading.Thread) -> None:
    """End the server, and deliver the last of its log."""
    stop()
    if delivery is not threading.current_thread():
        delivery.join(_LOG_END_S)
