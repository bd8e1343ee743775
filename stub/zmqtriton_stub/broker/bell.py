"""The bell of a thread that waits for descriptors."""

from __future__ import annotations

import contextlib
import os


class Bell:
    """Wakes the one thread that polls it."""

    def __init__(self) -> None:
        self.descriptor, self._other_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def ring(self) -> None:
        # a full pipe wakes it as well
        with contextlib.suppress(BlockingIOError):
            os.write(self._other_end, b"\0")

    def silence(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.descriptor, 4096)

    def __del__(self) -> None:
        # not before: whoever may still ring would write to another's descriptor
        os.close(self.descriptor)
        os.close(self._other_end)
