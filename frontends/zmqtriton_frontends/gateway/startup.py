"""The start of a process that serves clients: it waits until they may connect, and says where."""

from __future__ import annotations

import asyncio
from typing import Any

from zmqtriton_frontends.gateway.gateway import Gateway


async def may_open(gateway: Gateway, stopped: asyncio.Future[Any]) -> bool:
    """Start the gateway and wait until clients may connect.

    False if the process is stopped before.
    """
    is_open = asyncio.Event()
    gateway.on_open = is_open.set

    async def open_up() -> None:
        await gateway.start()
        await is_open.wait()

    opening = asyncio.ensure_future(open_up())
    await asyncio.wait((opening, stopped), return_when=asyncio.FIRST_COMPLETED)
    if stopped.done():
        opening.cancel()
        return False
    await opening  # otherwise its error would go unnoticed
    return True


def address(host: str, port: int) -> str:
    """Return the address in its usual notation."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
