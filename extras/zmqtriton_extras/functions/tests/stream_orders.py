"""Explores all orders in which streams arrive, step, are cancelled, fall behind and end.

A state is reached by the actions that lead to it, which are done again in a new world. A state that
was seen is left. Requests are told apart by the costs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from zmqtriton_stub.model import provide_api

provide_api()  # the loop imports it by Triton's name

from zmqtriton_extras.functions.backend.api import End, Failed, Refused  # noqa: E402
from zmqtriton_extras.functions.backend.streams import Stream, Streams, Work  # noqa: E402

Action = tuple[Any, ...]

ROOM, STREAMS = 3, 2
#: The results that a step has for a stream; the errors leave no trace in the log.
RESULTS: dict[str, Callable[[], Any]] = {
    "piece": lambda: "piece",
    "nothing": lambda: None,
    "last": lambda: End("piece"),
    "end": End,
    "failed": lambda: Failed(0, "failed"),
    "unsendable": lambda: Refused("unsendable"),
}


class Sender:
    """Both ends of a stream: what the model's side sends, and what its reader does."""

    def __init__(self, waiting: list[tuple[Sender, Any]]) -> None:
        #: What has not left yet, of all senders.
        self._waiting = waiting
        self.is_gone = self.is_slow = self.has_doubts = False
        self.sent: list[Any] = []
        self.ends = 0

    def is_cancelled(self, *, looks: bool = True) -> bool:
        return self.is_gone

    def is_behind(self) -> bool:
        return self.is_slow

    def is_in_doubt(self) -> bool:
        return self.has_doubts

    def send(self, response: Any = None, flags: int = 0, *, waits: bool = False) -> None:
        assert not self.ends, "nothing is sent after the end"
        assert flags or response is not None
        if isinstance(response, Exception):
            raise response
        self.ends += bool(flags)
        if response is not None:
            self._waiting.append((self, response))
        if not waits:
            self.flush()

    def flush(self) -> None:
        for sender, response in self._waiting:
            sender.sent.append(response)
        self._waiting.clear()


class Request:
    def __init__(self, number: int, waiting: list[tuple[Sender, Any]]) -> None:
        self.number, self.sender = number, Sender(waiting)

    def get_response_sender(self) -> Sender:
        return self.sender


class World:
    """A model with its streams, which keeps what each of its methods got."""

    budget = ROOM

    def __init__(self, needs: tuple[int, ...]) -> None:
        self._needs = needs
        self.waiting: list[tuple[Sender, Any]] = []
        self.requests = [Request(number, self.waiting) for number in range(len(needs))]
        self.arrived = self.refusals = 0
        self.admitted: list[int] = []
        self.left: list[int] = []
        #: The numbers of those that the last step had.
        self.states: list[int] = []
        self.results: Any = None
        #: Broken promises in calls of the model, whose errors the streams take for its own.
        self.faults: list[str] = []
        self.streams = Streams(Work(self, STREAMS, ROOM))

    # ------------------------------------------------------------ the model

    def cost(self, request: Request) -> int:
        return self._needs[request.number]

    def admit(self, request: Request) -> int:
        if self.refusals:
            self.refusals -= 1
            raise Refused("refused")
        self._expect(request.number not in self.admitted, "it is admitted once")
        self.admitted.append(request.number)
        inside = set(self.admitted) - set(self.left)
        self._expect(sum(self._needs[n] for n in inside) <= ROOM, "they have room")
        self._expect(len(inside) <= STREAMS, "they are not too many")
        return request.number

    def step(self, states: list[int]) -> list[Any]:
        self.states = states
        for number in states:
            sender = self.requests[number].sender
            is_there = number in self.admitted and number not in self.left
            self._expect(is_there and not sender.ends, "a step has open streams alone")
            self._expect(not (sender.is_gone or sender.is_slow), "its reader is there")
        results = self.results
        if isinstance(results, BaseException):
            raise results
        return list(results) if isinstance(results, list) else results

    def leave(self, state: int) -> None:
        self._expect(state in self.admitted and state not in self.left, "it leaves once")
        self.left.append(state)

    def _expect(self, is_kept: bool, promise: str) -> None:
        self.faults += [] if is_kept else [promise]

    # ---------------------------------------------------------- what happens

    def enabled(self) -> Iterator[Action]:
        """Yield the actions that are possible now."""
        if self.arrived < len(self._needs):
            yield ("arrives",)
            yield ("arrives, to be refused",)
        for request in self.requests[: self.arrived]:
            if not (request.sender.is_gone or request.sender.ends):
                yield "is cancelled", request.number
                yield "changes pace", request.number
        yield ("step raises",)
        for place in range(STREAMS):
            yield "step fails one", place
        able = [
            stream
            for stream in (*self.streams.open, *self.streams.waiting)
            if not (stream.sender.is_gone or stream.sender.is_slow)
        ]
        # a result more than there are streams changes nothing
        most = min(STREAMS, len(able))
        yield from (("step", *names) for names in product(RESULTS, repeat=most))

    def do(self, action: Action) -> None:
        kind, *rest = action
        if kind.startswith("arrives"):
            from_here = self.requests[self.arrived]
            self.arrived += 1
            self.refusals += kind != "arrives"
            self.streams.add(Stream(from_here))
        elif kind == "is cancelled":
            self.requests[rest[0]].sender.is_gone = True
        elif kind == "changes pace":
            sender = self.requests[rest[0]].sender
            sender.is_slow = not sender.is_slow
        else:
            self._round(kind, rest)

    def _round(self, kind: str, rest: list[Any]) -> None:
        gone = {r.number for r in self.requests if r.sender.is_gone}
        ready = self.streams.begin()
        first = next(iter(self.streams.waiting), None)
        if first is not None and len(self.streams.open) < STREAMS:
            free = ROOM - sum(self._needs[stream.state] for stream in self.streams.open)
            assert self._needs[first.request.number] > free, "none waits without a reason"
        assert not gone & {stream.state for stream in self.streams.open}
        if not ready:
            return
        if kind == "step":
            self.results = [RESULTS[name]() for name in rest][: len(ready)]
        else:
            # the number of no stream ends all of them
            self.results = Failed(rest[0] if rest else STREAMS, "failed")
        self.streams.step(ready)
        assert [stream.sender for stream in ready] == [
            self.requests[number].sender for number in self.states
        ]

    def check(self) -> None:
        """Raise AssertionError unless the promises hold."""
        assert [] == self.faults
        assert [] == self.waiting, "what a step has sent has left"
        assert self.admitted == sorted(self.admitted), "they are admitted in the order of arrival"
        is_inside = {stream.sender for stream in (*self.streams.open, *self.streams.waiting)}
        for request in self.requests[: self.arrived]:
            assert (request.sender in is_inside) == (not request.sender.ends)
            if request.sender.ends and request.number in self.admitted:
                assert request.number in self.left

    def finish(self) -> None:
        """Have all streams read and end; each has its end then."""
        for request in self.requests:
            request.sender.is_slow = False
        for _ in range(2 * len(self._needs)):
            self.do(("step", *["last"] * STREAMS))
        assert all(request.sender.ends == 1 for request in self.requests[: self.arrived])
        assert sorted(self.admitted) == sorted(self.left)
        assert not self.streams.is_full

    def key(self) -> tuple[Any, ...]:
        """Return what decides about all that may follow."""
        places = {id(s.sender): "open" for s in self.streams.open}
        places.update({id(s.sender): "waits" for s in self.streams.waiting})
        rows = [
            (places.get(id(r.sender), ""), r.sender.is_gone, r.sender.is_slow)
            for r in self.requests
        ]
        return (*rows, self.arrived, self.refusals, self.streams.is_full)


def explore(*needs: int) -> int:
    """Return the number of states that requests can be in. Raises AssertionError."""
    seen = {World(needs).key()}
    waiting: deque[tuple[Action, ...]] = deque([()])
    while waiting:
        actions = waiting.popleft()
        for action in list(_reached(needs, actions).enabled()):
            path = (*actions, action)
            try:
                world = _reached(needs, path)
                world.check()
                key = world.key()
                if key not in seen:
                    seen.add(key)
                    waiting.append(path)
                    world.finish()
            except AssertionError as error:
                raise AssertionError(f"{error}, after {path}") from error
    return len(seen)


def _reached(needs: tuple[int, ...], actions: tuple[Action, ...]) -> World:
    world = World(needs)
    for action in actions:
        world.do(action)
    return world
