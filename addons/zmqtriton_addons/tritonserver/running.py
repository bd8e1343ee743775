"""A server that runs for as long as something here refers to it."""

from __future__ import annotations

import math
import time
import weakref
from functools import partial
from typing import Any

from zmqtriton.embedded import Server as OwnedServer
from zmqtriton_addons.tritonserver.errors import InternalError
from zmqtriton_floor.errors import Unavailable

_LOOK_S = 0.01
#: Beyond the exit timeout, in which requests are answered, its processes may take so long to end.
_END_S = 60.0


class RunningServer:
    """Owns a server, which ends when a program drops it without a stop."""

    def __init__(self, **options: Any) -> None:
        """Start it, and wait until it has tried all that it loads at the start.

        Raises InternalError if it ends instead.
        """
        self.connection = OwnedServer(**options)
        stop = partial(self.connection.stop, options["exit_timeout_secs"] + _END_S)
        try:
            self.connection.start(wait_until_ready=False, timeout_s=math.inf)
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
