"""The end of a wait for something that has no value."""

from __future__ import annotations

import asyncio


def wake(waiting: asyncio.Future[None] | None, *_: object) -> None:
    """Settle a future, if there is one that is still waited for; may be a callback of another."""
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
