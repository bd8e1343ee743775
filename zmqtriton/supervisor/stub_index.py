"""The generations of stubs by their serial numbers, and the generations that have ended.

A server may have thousands, and each message of a stub concerns one. Does no I/O.
"""

from __future__ import annotations


class StubIndex:
    """Generations tell it of each stub that they start, and of their own end."""

    def __init__(self) -> None:
        self._generations: dict[int, int] = {}
        self._ended: list[int] = []

    def add(self, serial: int, generation: int) -> None:
        self._generations[serial] = generation

    def remove(self, serial: int) -> None:
        """Forget a stub in whose place there is another one, or none any more."""
        self._generations.pop(serial, None)

    def find(self, serial: int) -> int:
        """Return the number of a stub's generation; 0 without one."""
        return self._generations.get(serial, 0)

    def end(self, generation: int) -> None:
        """Note that nothing of a generation is left."""
        self._ended.append(generation)

    def take_ended(self) -> list[int]:
        """Take the numbers of the generations that have ended since the last call."""
        ended, self._ended = self._ended, []
        return ended
