"""The entrance: the steps of every request, in their order, until it is ready to be sent.

Each protocol has one. A feature of requests is a step of its own, which `Entrance` calls and does
not know: one of the core's (`forwarding`, `reports`) or of an add-on.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import aclosing
from typing import Any, NamedTuple

from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.settings.offers import Hook
from zmqtriton_floor.token_file import Grant
from zmqtriton_floor.wire import ANY_VERSION, BYTE_WINDOW
from zmqtriton_frontends.access.bearer_tokens import check_model
from zmqtriton_frontends.entrance.ask import (
    Ask,
    Choice,
    Content,
    Division,
    Step,
    TakesLong,
)
from zmqtriton_frontends.entrance.forwarding import Forwarding
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.gateway.pending import Pending
from zmqtriton_frontends.gateway.streams import StreamItem
from zmqtriton_frontends.inference.admission import (
    CheckedRequest,
    ManyElements,
    count_all,
    count_few,
    count_none,
    prepare,
)
from zmqtriton_frontends.inference.load_on_demand import NotLoaded
from zmqtriton_frontends.inference.model_version import ModelVersion
from zmqtriton_frontends.inference.request_trace import Observer
from zmqtriton_frontends.inference.trace_sampling import parent_in
from zmqtriton_frontends.process.arrivals import Arrivals
from zmqtriton_frontends.process.own_threads import aside

#: Makes a step. It sees every inference of any protocol before the frontend sends it.
STEP = Hook[Callable[[Gateway], Step]]("requests.step")
#: Makes the object that divides requests between two versions of a model that serve together.
DIVISION = Hook[Callable[[Gateway], Division]]("requests.division")


class _Shared(NamedTuple):
    """The part of the entrances that a process has once."""

    #: Divides the requests to a model between two versions; None without the add-on.
    division: Division | None
    #: Steps of add-ons, made from the references in the settings, in that order.
    steps: tuple[Step, ...]
    #: Methods `refused` of those steps, called with each request that does not enter, and its
    #: error.
    refusals: tuple[Callable[[Ask, ZmqTritonError], None], ...]

    @classmethod
    def make(cls, gateway: Gateway) -> _Shared:
        offers = gateway.settings.offers
        steps = tuple(make(gateway) for make in STEP.all_of(offers))
        refusals = tuple(step.refused for step in steps if hasattr(step, "refused"))
        make_division = DIVISION.first_of(offers)
        return cls(make_division(gateway) if make_division else None, steps, refusals)


class Entrance:
    def __init__(self, gateway: Gateway, received: str, sending: str, forwards: str = "") -> None:
        """Set up once the gateway has its settings.

        `received` and `sending` name the two ends of a request in traces, `forwards` is the pattern
        of the headers that models get.
        """
        self.gateway = gateway
        self._catalogue = gateway.catalogue
        self._sending = sending
        if gateway.entrances is None:
            gateway.entrances = _Shared.make(gateway)
        self._shared: _Shared = gateway.entrances
        has_tokens = bool(gateway.settings.access.tokens)
        self._marks = (self._mark_with_token,) if has_tokens else ()
        self._forwarding = Forwarding(forwards, hides_tokens=has_tokens)
        self._received = received
        self._choices: tuple[Choice, ...] = ()
        self._steps: tuple[Step, ...] = ()
        for changes in (gateway.traces.on_change, gateway.catalogue.divisions.on_change):
            changes.append(self._arrange)
        self._arrange()

    def check_headers(self, headers: Iterable[tuple[str, str | bytes]]) -> None:
        """Raise InvalidArgument for headers that models must not get."""
        self._forwarding.add({}, headers)

    # ------------------------------------------------------------- the steps

    def _arrange(self) -> None:
        """Choose the steps that requests need by now, and their order."""
        division = self._shared.division
        choices: list[Choice] = [self._forwarding] if self._forwarding else []
        steps: list[Step] = [*self._marks, *self._shared.steps]
        if self._catalogue.divisions and division is not None:
            choices.append(division.choose)
            steps.append(division.copy)
        if self.gateway.traces.is_on:
            steps.append(self._trace)
        self._choices, self._steps = tuple(choices), tuple(steps)

    def enter(self, ask: Ask) -> CheckedRequest:
        """Return the request, ready to be sent.

        Raises the client's errors. Raises NotLoaded for a model that must be loaded first, and
        TakesLong for a body that must be read or checked aside.
        """
        try:
            if ask.grant is not None:
                check_model(ask.grant, ask.target[0])
            model = self._catalogue.find(*ask.target)
            content = read = ask.content or ask.read(model)
            for choice in self._choices:
                model, content = choice(ask, model, content)
            body, options, places, form, is_counted, layout = content
            if ask.deadline_ns:
                options = options._replace(deadline_ns=ask.deadline_ns)
            # the version may be unloaded while the request is on its way
            more_flags = 0 if ask.target[1] else ANY_VERSION
            checked = prepare(
                self._catalogue,
                model,
                body,
                options,
                places,
                form,
                more_flags=more_flags,
                count=count_none if is_counted else count_few,
                layout=layout if content is read else None,
            )
            if self._steps or model.steps or ask.steps:  # a plain request has none
                for step in self._steps + model.steps + ask.steps:
                    checked = step(ask, checked)
        except ManyElements:
            raise TakesLong(_count_aside(read, model.name)) from None
        except ZmqTritonError as error:
            if not isinstance(error, NotLoaded):
                for refused in self._shared.refusals:
                    refused(ask, error)
            raise
        return checked

    def _mark_with_token(self, ask: Ask, checked: CheckedRequest) -> CheckedRequest:
        """Mark a request with its client's token, whose limits the broker applies."""
        return checked if ask.grant is None else self.gateway.token_marks.mark(checked, ask.grant)

    def _trace(self, ask: Ask, checked: CheckedRequest) -> CheckedRequest:
        """Begin the trace of a request that has one. A step only while some are traced."""
        parent = None if ask.header is None else parent_in(ask.header)
        return self.gateway.traces.follow(checked, parent, (self._received, ask.begun_ns))

    # ------------------------------------------------------ three ways to it

    def begin(self, ask: Ask, pending: Pending, *, was_loaded: bool = False) -> None:
        """Begin a request with one answer, which `pending` may get before this returns.

        Makes no task unless the request has to wait.
        """
        try:
            pending.start(self.enter(ask))
        except NotLoaded as missing:
            if was_loaded:
                pending.set_exception(missing)
                return
            loading = missing.load(ask.deadline_ns)
            pending.wait(loading, lambda _: self.begin(ask, pending, was_loaded=True))
        except TakesLong as long:
            pending.wait(long.reading, lambda content: self.begin(_with(ask, content), pending))
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            pending.set_exception(error)

    async def find(self, name: str, *, grant: Grant | None, deadline_ns: int = 0) -> ModelVersion:
        """Find a model before its request is made, if necessary after a load.

        Raises the errors of Catalogue.find, and Forbidden for a model that the token does not
        allow.
        """
        check_model(grant, name)
        return await self._catalogue.attempt(lambda: self._catalogue.find(name), deadline_ns)

    async def admit(self, ask: Ask) -> CheckedRequest:
        """Return the request, ready to be sent in this turn of the loop; raises as `enter` does."""
        was_loaded = False
        while True:
            try:
                return self.enter(ask)
            except NotLoaded as missing:
                if was_loaded:
                    raise
                waiting: Coroutine[Any, Any, Content | None] = missing.load(ask.deadline_ns)
                was_loaded = True
            except TakesLong as long:
                waiting, was_loaded = long.reading, False
            content = await waiting
            if content is not None:
                ask = _with(ask, content)

    def responses(
        self, checked: CheckedRequest, arrivals: Arrivals | None = None
    ) -> AsyncGenerator[StreamItem, None]:
        """Send a request; return its responses, errors among them.

        The model makes as many responses as `arrivals` has room for; None: as many as are read.
        """
        if arrivals is not None:
            options = checked.options._replace(flags=checked.options.flags | BYTE_WINDOW)
            checked = checked._replace(options=options, arrivals=arrivals)
        items, observer = self.gateway.stream(checked), checked.observer
        return items if observer is None else followed(items, observer, self._sending)


async def followed(
    items: AsyncGenerator[StreamItem, None], observer: Observer, sending: str
) -> AsyncGenerator[StreamItem, None]:
    """Return the responses; the observer sees each before the client has it.

    The observer ends after the last of them, or when their reader leaves.
    """
    try:
        async with aclosing(items):
            async for item in items:
                if item.body is not None:
                    observer.take(item.body)
                if item.error is not None:
                    observer.fail(item.error)
                yield item
    except ZmqTritonError as error:
        observer.fail(error)
        raise
    finally:
        observer.end(sending)


async def _count_aside(content: Content, model: str) -> Content:
    """Return the content once a thread has counted its strings. Raises InvalidArgument."""
    body = content.body
    await aside(sum(len(tensor.data) for tensor in body.inputs), count_all, body, model)
    return content._replace(is_counted=True)


def _with(ask: Ask, content: Content) -> Ask:
    """Return the ask with the content of its body, which was read aside."""
    return ask._replace(read=lambda _: content)
