"""The output of a model: each line that is printed while requests are served begins with their ids.

Lines that do not pass sys.stdout or sys.stderr, those of C libraries for one, stay as they are.
"""

from __future__ import annotations

import io
import re
import sys
from typing import Any

from zmqtriton_floor import logs
from zmqtriton_stub.api import callers

#: The beginning of a line that has any text, behind the end of another.
_LATER_LINE = re.compile(r"(?<=[\r\n])(?=[^\r\n])")


def attribute() -> None:
    """Have the lines that Python code prints in this process say which requests they are about."""
    sys.stdout, sys.stderr = _attributed(sys.stdout), _attributed(sys.stderr)


def _attributed(stream: Any) -> Any:
    is_plain = isinstance(stream, io.TextIOWrapper) and type(stream) is not AttributedOutput
    return AttributedOutput(stream) if is_plain else stream


class AttributedOutput(io.TextIOWrapper):
    """A second way to where a stream leads; the stream itself may still be used."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        stream.reconfigure(line_buffering=True)
        # a file of its own: that of the stream may think of what its descriptor was before
        super().__init__(
            open(stream.fileno(), "wb", closefd=False),  # noqa: SIM115 - as long as the process
            encoding=stream.encoding,
            errors=stream.errors,
            # otherwise what was printed last is lost in a crash
            line_buffering=True,
        )
        self._stream = stream
        self._is_at_start = True

    @property
    def name(self) -> str:
        """The name of the stream, "<stdout>" for one."""
        return self._stream.name

    @property
    def mode(self) -> str:
        """The mode of the stream, for libraries that look."""
        return self._stream.mode

    def write(self, text: str) -> int:
        beginning = logs.name_requests(callers.request_ids())
        shown = text
        if beginning and text and isinstance(text, str):  # what is none, super() refuses
            is_within = not self._is_at_start or text[0] in "\r\n"
            shown = ("" if is_within else beginning) + _LATER_LINE.sub(lambda _: beginning, text)
        super().write(shown)
        self._is_at_start = text[-1] in "\r\n" if text else self._is_at_start
        return len(text)
