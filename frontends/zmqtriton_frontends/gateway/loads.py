"""Model loads that clients request, with the files that they send.

A thread writes the files, since they may be large, into the server's private directory; the
supervisor takes over the files with the call. If the client leaves before, the files are removed
here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from zmqtriton_floor import staging
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.process.own_threads import Threads

_threads = Threads("staging", 2, 32)

#: Parameters that a load may have, its files among them.
MAX_PARAMETERS = 4096
#: Bytes of the largest parameter that is no file.
MAX_CONFIG_BYTES = 1 << 20


async def load(
    gateway: Gateway,
    model: str,
    parameters: Mapping[str, str],
    files: Mapping[str, Any],
    client: str = "",
    **more: Any,
) -> None:
    """Load a model, with more arguments of the call. Raises the error of a failed load."""
    if not files:
        await gateway.call("load", {"model": model, "parameters": dict(parameters), **more}, client)
        return
    runtime: str = gateway.settings.server.runtime_directory
    writing = _threads.run(staging.arguments, runtime, gateway.serial, model, parameters, files)
    try:
        arguments = await asyncio.shield(writing)
    except asyncio.CancelledError:
        writing.add_done_callback(lambda done: _discard(runtime, done))
        raise
    await gateway.call("load", {**arguments, **more}, client)


def _discard(runtime: str, writing: asyncio.Future[dict[str, Any]]) -> None:
    """Remove the files of a client that has left while the files were written."""
    if not writing.cancelled() and writing.exception() is None:
        name = writing.result()["files"].get("staged")
        if name:
            staging.discard(runtime, name)
