"""Tokens on the page of metrics, whose process asks that of tokens at each scrape."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from zmqtriton_addons.token_metrics import SERVICE
from zmqtriton_floor.endpoints import local_service_path
from zmqtriton_frontends.gateway import Gateway

#: A page without tokens is better than none.
_WITHIN_S = 1.0


def metrics(gateway: Gateway) -> Callable[[], Awaitable[str]]:
    """Return the function that returns the text, which is "" without an answer."""
    path = local_service_path(gateway.settings.server.runtime_directory, SERVICE)

    async def read() -> bytes:
        reader, writer = await asyncio.open_unix_connection(path)
        try:
            writer.write(b"?\n")
            return await reader.read()
        finally:
            writer.close()

    async def render() -> str:
        try:
            return (await asyncio.wait_for(read(), _WITHIN_S)).decode()
        except (OSError, asyncio.TimeoutError):
            return ""  # it is being replaced

    return render
