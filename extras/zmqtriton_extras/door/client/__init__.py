"""A client of a server's door: calls models over ZeroMQ, and needs nothing else of the server.

Its public name is `zmqtriton.Door`, for threads and for coroutines.
"""

from __future__ import annotations

try:
    from zmqtriton_extras.door.client.connection import Door as Door
except ModuleNotFoundError as error:
    text = f"{error}, which the door needs: pip install 'zmqtriton-client[door]'"
    raise ModuleNotFoundError(text, name=error.name) from None
