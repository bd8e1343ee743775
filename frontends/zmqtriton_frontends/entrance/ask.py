"""A request as its protocol has received it, and the steps of requests that the core has.

These have headers become parameters, and reports stand beside answers. Both protocols make one
`Forwarding` of their option; it is false if nothing is forwarded. Texts are Triton's. Where tokens
are needed models do not get them, whatever the pattern says: another model's code could use them.
Reports are for requests whose headers, or metadata, ask for the stages of the request and the load
of its model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.token_file import Grant
from zmqtriton_floor.wire import RequestBody
from zmqtriton_frontends.access.refusals import Source
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.inference import load_metrics, stage_times
from zmqtriton_frontends.inference.admission import (
    NO_OPTIONS,
    CheckedRequest,
    Pairs,
    SchedulingOptions,
)
from zmqtriton_frontends.inference.catalogue import HeaderLookup, ModelVersion
from zmqtriton_frontends.inference.classification import NO_CLASSES, Classes
from zmqtriton_frontends.inference.client_regions import NO_PLACES, RegionSlice
from zmqtriton_frontends.inference.restrictions import by_category

_STAGES, _LOAD = stage_times.WISH.encode(), load_metrics.FORMAT.encode()
#: The headers that ask.
REPORT_HEADERS = frozenset((_STAGES, _LOAD))
#: Names that mean something to the server as parameters, so a client's header may not set them.
_RESERVED = frozenset(
    (
        "sequence_id",
        "sequence_start",
        "sequence_end",
        "priority",
        "timeout",
        "headers",
        "binary_data_output",
    )
)
#: The header that bearer tokens come in.
_HIDDEN = frozenset({"authorization"})
#: How Triton's regular expressions say that case counts.
_CASE_COUNTS = "(?-i)"


class Content(NamedTuple):
    """The content of a request, as it is to be checked against its model."""

    body: RequestBody
    options: SchedulingOptions = NO_OPTIONS
    #: Outputs that are written to clients' shared memory.
    places: Mapping[str, RegionSlice] = NO_PLACES
    #: Outputs of which the client wants classes only.
    classes: Classes = NO_CLASSES


class TakesLong(Exception):
    """Raised by Ask.read where a body is read aside, so that other clients have their turns."""

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


class Division(NamedTuple):
    """The steps of requests while those to some model are divided between two versions."""

    choose: Choice
    copy: Step


class Ask(NamedTuple):
    #: The name of the model and its version, "" for the one that serves.
    target: tuple[str, str]
    #: Reads the body for the model. Raises InvalidArgument and TakesLong.
    read: Callable[[ModelVersion], Content]
    #: Returns the value of a header or of metadata, by its name in lower case.
    header: HeaderLookup | None = None
    #: Returns all of them as the client wrote them; None if models get none.
    spelled_headers: Callable[[], Iterable[tuple[str, str | bytes]]] | None = None
    #: That of the client's token, where one is needed.
    grant: Grant | None = None
    #: When the client stops waiting, on CLOCK_MONOTONIC; 0 is never.
    deadline_ns: int = 0
    #: When the request began to arrive.
    begun_ns: int = 0
    #: Steps of this request alone: its client asks for what they add.
    steps: tuple[Step, ...] = ()
    #: Returns the client's address, protocol and route; only logs call it.
    source: Callable[[], Source] | None = None


class Forwarding:
    """Which headers are forwarded."""

    def __init__(self, pattern: str, *, hides_tokens: bool = False) -> None:
        flags = "" if pattern.startswith(_CASE_COUNTS) else "(?i)"
        pattern = pattern.removeprefix(_CASE_COUNTS)
        self._pattern = re.compile(flags + pattern) if pattern else None
        self._hidden = _HIDDEN if hides_tokens else frozenset()

    def __bool__(self) -> bool:
        return self._pattern is not None

    def __call__(
        self, ask: Ask, model: ModelVersion, content: Content
    ) -> tuple[ModelVersion, Content]:
        if ask.spelled_headers is not None:
            self.add(content.body.parameters, ask.spelled_headers())
        return model, content

    def add(self, parameters: dict[str, Any], headers: Iterable[tuple[str, str | bytes]]) -> None:
        """Copy the headers whose names match the pattern.

        Raises InvalidArgument for a reserved name.
        """
        if self._pattern is None:
            return
        for name, value in headers:
            if not self._pattern.search(name):
                continue
            key = name.lower()
            if key in self._hidden:
                continue
            if key in _RESERVED or key.startswith("triton_"):
                raise InvalidArgument(
                    f"Header '{name}' is reserved for Triton usage and cannot be forwarded."
                )
            parameters[name] = value if isinstance(value, str) else _text(value)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def are_wanted(header: HeaderLookup) -> bool:
    """Return whether a request has such headers."""
    return header(_STAGES) is not None or header(_LOAD) is not None


class Reports:
    def __init__(self, gateway: Gateway, coding: str) -> None:
        """Set up; `coding` is that by which the protocol reads headers."""
        self._gateway = gateway
        self._coding = coding
        self._restriction = by_category(gateway.settings.access.restrictions).get("statistics")

    def __call__(self, ask: Ask, checked: CheckedRequest) -> CheckedRequest:
        header = ask.header
        if header is None:
            return checked
        form, stages = header(_LOAD), None
        if stage_times.is_wish(header(_STAGES)):
            stages = stage_times.Stages(ask.begun_ns)
            checked = checked.with_stages(stages)
        form = form.strip().lower() if form is not None and self._may_know(header) else ""
        return checked.with_report(partial(self._report, checked.model, form, stages))

    async def _report(
        self, model: ModelVersion, form: str, stages: stage_times.Stages | None
    ) -> Pairs:
        pairs: list[tuple[str, str | bytes]] = []
        if form:
            answer = await self._gateway.statistics(model.name, model.version, kind=wire.LOAD)
            load = load_metrics.of_model(answer["loads"])
            if form == "bin":
                pairs.append((load_metrics.BINARY_METRICS, load_metrics.write_binary(load)))
            elif written := load_metrics.write(form, load):
                pairs.append((load_metrics.METRICS, written))
        if stages is not None:
            pairs.append((stage_times.ANSWER, stages.write()))
        return pairs

    def _may_know(self, header: HeaderLookup) -> bool:
        """True unless statistics need a key that the request does not have."""
        if self._restriction is None:
            return True
        key = header(self._restriction.name.encode())
        return key is not None and self._restriction.admits([key.encode(self._coding)])
