"""A request as its protocol has received it, and the kinds of functions that may change it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from zmqtriton_floor.token_file import Grant
from zmqtriton_floor.wire import RequestBody
from zmqtriton_frontends.access.refusals import Source
from zmqtriton_frontends.inference.admission import NO_OPTIONS, CheckedRequest, SchedulingOptions
from zmqtriton_frontends.inference.catalogue import HeaderLookup
from zmqtriton_frontends.inference.client_regions import NO_PLACES, RegionSlice
from zmqtriton_frontends.inference.layouts import Layout
from zmqtriton_frontends.inference.model_version import ModelVersion


class Content(NamedTuple):
    """The content of a request, not yet checked against its model."""

    body: RequestBody
    options: SchedulingOptions = NO_OPTIONS
    #: Outputs that are written to clients' shared memory.
    places: Mapping[str, RegionSlice] = NO_PLACES
    #: The form of the outputs that the client wants, for its protocol alone.
    form: Any = None
    #: True if its BYTES tensors have as many elements as their shapes say.
    is_counted: bool = False
    #: Layout of the body; None if it has none, or one that may differ in more than data.
    layout: Layout | None = None


class TakesLong(Exception):
    """Raised where a body is read or checked by a thread or in steps, so that others have turns."""

    def __init__(self, reading: Coroutine[Any, Any, Content]) -> None:
        """Set up; `reading` reads the body."""
        super().__init__("this request takes long to read")
        self.reading = reading


#: Decides before the check what a request asks, or which version; returns the version and the
#: content that go on. Raises the client's errors.
Choice = Callable[["Ask", ModelVersion, Content], tuple[ModelVersion, Content]]
#: A feature of requests, which the entrance calls and does not know; returns the request that goes
#: on. Raises the client's errors.
Step = Callable[["Ask", CheckedRequest], CheckedRequest]


class Division(Protocol):
    """The steps of requests while the requests to some model are divided between two versions."""

    @property
    def choose(self) -> Choice: ...

    @property
    def copy(self) -> Step: ...


class Ask(NamedTuple):
    #: The name of the model and its version, "" for the one that serves.
    target: tuple[str, str]
    #: Reads the body for the model. Raises InvalidArgument and TakesLong.
    read: Callable[[ModelVersion], Content]
    #: Returns the value of a header or of metadata, by its name in lower case.
    header: HeaderLookup | None = None
    #: Returns all of them as the client wrote them; None if models get none.
    spelled_headers: Callable[[], Iterable[tuple[str, str | bytes]]] | None = None
    #: The rights of the client's token; None where the server needs no tokens.
    grant: Grant | None = None
    #: Time on CLOCK_MONOTONIC at which the client stops waiting; 0 is never.
    deadline_ns: int = 0
    #: Time on CLOCK_MONOTONIC at which the request began to arrive.
    begun_ns: int = 0
    #: Steps of this request alone: its client asks for what they add.
    steps: tuple[Step, ...] = ()
    #: Returns the client's address, protocol and route; only logs call it.
    source: Callable[[], Source] | None = None
    #: The content, where the body was read before its model was found; `read` is not called then.
    content: Content | None = None
