"""Rooms of the process of jobs: abilities over jobs, which jobs themselves do not know."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol

from zmqtriton_addons.jobs.messages import Body, Document, Message
from zmqtriton_addons.jobs.process.running import Running
from zmqtriton_addons.jobs.process.store import Store
from zmqtriton_addons.jobs.process.store_thread import StoreThread
from zmqtriton_frontends.gateway import Gateway

#: Answers a question. Raises Refused.
Handler = Callable[[Document, Body], Awaitable[Message]]


class Part(Protocol):
    """A part of the process, which works while the server does not leave."""

    def begin(self) -> None:
        """Begin, or go on; the store is open."""

    def leave(self) -> None:
        """Begin nothing more."""


class Room(Part, Protocol):
    """Makes jobs of its own, and keeps tables of its own beside them."""

    #: The questions of the processes of HTTP.
    verbs: Mapping[str, Handler]


class RoomKind(NamedTuple):
    #: Makes its tables when the store is opened.
    prepare: Callable[[Store], None]
    make: Callable[[Gateway, StoreThread, Running], Room]
