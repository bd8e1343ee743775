"""The figures of local services on the page; all services are asked at once, at each scrape."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from zmqtriton.sdk.frontend import Gateway
from zmqtriton.sdk.process import local_service_path
from zmqtriton.sdk.wire import Unavailable

#: Returns the text of one service.
Figures = Callable[[], Awaitable[str]]
#: Seconds for the figures of a service; a page without them is better than no page.
_WITHIN_S = 1.0


async def render(services: Iterable[Figures]) -> str:
    """Return the text of all services that answer in time."""
    return "".join(await asyncio.gather(*map(_in_time, services)))


async def _in_time(figures: Figures) -> str:
    try:
        return await asyncio.wait_for(figures(), _WITHIN_S)
    except (OSError, Unavailable, asyncio.TimeoutError):
        return ""  # it is being replaced


def at_socket(gateway: Gateway, service: str, question: bytes = b"") -> Figures:
    """Return the function that gets the text from the socket of a service."""
    path = local_service_path(gateway.settings.server.runtime_directory, service)

    async def ask() -> str:
        reader, writer = await asyncio.open_unix_connection(path)
        try:
            writer.write(question)
            return (await reader.read()).decode()
        finally:
            writer.close()

    return ask
