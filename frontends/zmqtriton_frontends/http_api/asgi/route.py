"""One row of the table of routes: what app.py builds the application of, and description.py
describes. Knows no route.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

Responder = Callable[..., Awaitable[None]]


class Route(NamedTuple):
    method: str
    path: str
    #: By which an operator may restrict it; empty for what tells nothing of this server.
    category: str
    responder: Responder
