"""One row of the table of routes, for app.py and for the description of the API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

Responder = Callable[..., Awaitable[None]]


class Route(NamedTuple):
    method: str
    path: str
    #: By which an operator may restrict it; empty if it reveals nothing about this server.
    category: str
    responder: Responder
    #: By which it is restricted unless its own category is.
    general_category: str = ""
