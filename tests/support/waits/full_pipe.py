"""A pipe that nobody reads, as a log shipper that hangs leaves it."""

from __future__ import annotations

import os
from contextlib import suppress


class FullPipe:
    """A pipe into which nothing fits."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.writing, False)
        with suppress(BlockingIOError):
            while True:
                os.write(self.writing, b"\n" * 4096)
        os.set_blocking(self.writing, True)

    def __enter__(self) -> FullPipe:
        return self

    def __exit__(self, *error: object) -> None:
        for descriptor in (self.reading, self.writing):
            os.close(descriptor)
