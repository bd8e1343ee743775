"""The marks of jobs that are executed: a file that outlives the process, but not the machine.

A job begins on disk a moment before it is executed. After the death of the process the marks tell
which executions had begun; no disk is waited for. After a power cut nothing is known.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
#: The sizes of the head and of a mark, none of which lies in two pages: a kill tears none.
_HEAD_BYTES, _MARK_BYTES = 64, 32
#: The marks for which there is room on the disk from the start.
_USUAL = 256


class Marks:
    def __init__(self, path: Path, boot: str | None = None) -> None:
        """Read the file; `boot` is since when the machine runs. Raises OSError."""
        self._path = path
        self._file = -1
        self._head = _boot_id() if boot is None else boot
        head, *marks = _cut(path.read_bytes() if path.exists() else b"")
        is_known = bool(self._head) and head == self._head
        #: The jobs whose execution had begun and not ended when an earlier process ended; None if
        #: that is not known.
        self.earlier = frozenset(filter(None, marks)) if is_known else None
        self._free: list[int] = []
        self._places: dict[str, int] = {}

    def reset(self) -> None:
        """Forget the earlier marks, for new ones. Raises OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o600)
        os.pwrite(self._file, bytes(_USUAL * _MARK_BYTES), _HEAD_BYTES)
        os.pwrite(self._file, self._head.encode(), 0)

    def begin(self, job: str) -> None:
        """Mark a job, whose execution may begin now. Raises OSError."""
        place = self._free.pop() if self._free else len(self._places)
        self._places[job] = place
        self._write(place, job.encode())

    def end(self, job: str) -> None:
        """Remove a mark, if there is one; the end of the job is on disk."""
        place = self._places.pop(job, None)
        if place is None:
            return
        self._free.append(place)
        with suppress(OSError):  # a mark too many is ignored
            self._write(place, bytes(_MARK_BYTES))

    def close(self) -> None:
        os.close(self._file)

    def _write(self, place: int, mark: bytes) -> None:
        os.pwrite(self._file, mark, _HEAD_BYTES + place * _MARK_BYTES)


def _cut(content: bytes) -> list[str]:
    """Return the head and the marks."""
    ends = range(_HEAD_BYTES, len(content), _MARK_BYTES)
    parts = [content[:_HEAD_BYTES], *(content[at : at + _MARK_BYTES] for at in ends)]
    return [part.rstrip(b"\0").decode("ascii", "replace") for part in parts]


def _boot_id() -> str:
    """Return since when the machine runs; "" if it does not tell."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""
