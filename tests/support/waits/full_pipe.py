"""A pipe that nobody reads, as a log shipper that hangs leaves it."""

from __future__ import annotations

import os
import threading
from contextlib import suppress


class FullPipe:
    """A pipe into which nothing fits, until `read` is called."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.writing, False)
        with suppress(BlockingIOError):
            while True:
                os.write(self.writing, b"\n" * 4096)
        os.set_blocking(self.writing, True)
        self._text = bytearray()

    def __enter__(self) -> FullPipe:
        return self

    def __exit__(self, *error: object) -> None:
        for descriptor in (self.reading, self.writing):
            os.close(descriptor)

    def read(self) -> None:
        """Read from now on, in a thread."""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while data := os.read(self.reading, 65536):
            self._text += data

    def text(self) -> str:
        return self._text.decode("utf-8", "replace").lstrip("\n")
