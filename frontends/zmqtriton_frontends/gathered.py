"""A request's body in one piece, in the arena where there was room.

Made by payload.py; whoever asked for it frees it when the request is on its way or has failed.
"""

from __future__ import annotations

from typing import Any

from zmqtriton_floor.memory import Arena


class Gathered:
    """A body to be used within a with statement; what was placed meanwhile outlives it."""

    def __init__(self, data: Any, arena: Arena | None = None, block: int = 0) -> None:
        self.data = data
        self._arena = arena
        self._block = block

    def __enter__(self) -> Any:
        return self.data

    def __exit__(self, *error: object) -> None:
        self.free()

    def free(self) -> None:
        if self._arena is not None:
            self._arena.free([self._block])
