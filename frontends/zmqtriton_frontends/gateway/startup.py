"""How a process that serves clients begins: it waits until they may come, and says where to."""

from __future__ import annotations

import asyncio
from typing import Any

from zmqtriton_frontends.gateway.gateway import Gateway


async def may_open(gateway: Gateway, stopped: asyncio.Future[Any]) -> bool:
    """Starts the gateway and returns when clients may come; False where the process is stopped
    before that."""
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
    await opening  # or what went wrong would stay in it
    return True


def address(host: str, port: int) -> str:
    """As one writes it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
