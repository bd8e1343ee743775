"""An ASGI application in place of routes, without a server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from zmqtriton_extras.routes.backend.asgi import Application


async def says_nothing(scope: Any, receive: Any, send: Any) -> None:
    """Return at once, as applications do that know requests alone."""


async def raises(scope: Any, receive: Any, send: Any) -> None:
    raise KeyError(scope["type"])


async def starts(scope: Any, receive: Any, send: Any) -> None:
    assert await receive() == {"type": "lifespan.startup"}
    await send({"type": "lifespan.startup.complete"})
    assert await receive() == {"type": "lifespan.shutdown"}


async def fails(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "lifespan.startup.failed", "message": "no weights"})


async def live(app: Any) -> None:
    application = Application(app)
    await asyncio.wait_for(application.start(), 20)


@pytest.mark.parametrize("app", [says_nothing, raises, starts])
def test_an_application_starts_with_a_lifespan_or_without_one(app: Any) -> None:
    asyncio.run(live(app))


def test_an_application_that_cannot_start_says_why() -> None:
    with pytest.raises(RuntimeError, match="no weights"):
        asyncio.run(live(fails))


def test_an_application_shuts_down_when_its_loop_ends() -> None:
    events: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while "lifespan.shutdown" not in events:
            events.append((await receive())["type"])
            await send({"type": f"{events[-1]}.complete"})
        await asyncio.sleep(0)  # what it closes may take turns of the loop
        events.append("closed")

    # asyncio.run() cancels what is left, as a stub does
    asyncio.run(live(app))

    assert events == ["lifespan.startup", "lifespan.shutdown", "closed"]
