"""Serves many streams in one model: each call of `step` computes the next piece of all streams.

`Streams` decides which requests are admitted, take part in a step, or have ended. It has no thread,
lock or clock. `StreamLoop` is the thread that runs the steps. Streams start and end between steps.
A stream whose client reads too slowly is left out of steps until it has caught up.
"""

from __future__ import annotations

import contextvars
import functools
import math
import threading
import time
from collections import deque
from operator import methodcaller
from queue import SimpleQueue
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

import triton_python_backend_utils as pb_utils

from zmqtriton_extras.functions.backend.api import End, Failed, Full, Refused
from zmqtriton_extras.functions.backend.calls import failure
from zmqtriton_floor.sdk import described

#: Seconds between two looks at the clients while all read too slowly. They have unread responses
#: for longer than that.
_LOOK_S = 0.05
#: Maximum seconds that execute() waits if a request waits for room. Later requests then stay in
#: the server's queue, which knows priorities. It is too short to look like a hung execution.
_FULL_S = 1.0
#: Seconds between two reports of metrics, because each costs messages.
_TELL_S = 0.25
#: Minimum seconds between two log lines of the same kind.
_QUIET_S = 60.0
_RESTS = ("sleep", "wake_up")
_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
_SECONDS = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10]
_ENDED = Refused("the instance of the model has ended", status=503)
_TOO_LARGE = Refused(
    "the model has no room for this request, even without other streams", status=503
)


class Work:
    """Calls the methods of a model with `admit` and `step`, and perhaps `leave` and `cost`."""

    def __init__(self, model: Any, streams: int, budget: float = 0) -> None:
        self.streams = streams
        #: Maximum cost of all streams together; 0: no limit except `streams`.
        self.budget = budget
        self.step: Callable[[List[Any]], Any] = model.step
        self.leave: Callable[[Any], Any] = getattr(model, "leave", id)  # id does nothing
        #: The model's `sleep` and `wake_up`, if it has them.
        self.rests = {name: getattr(model, name) for name in _RESTS if hasattr(model, name)}
        self._model = model

    def read(self, request: Any) -> Any:
        """Return the arguments of `admit` and `cost` for a request. Raises MismatchError."""
        return request

    def cost(self, arguments: Any) -> float:
        return float(self._model.cost(arguments))

    def admit(self, arguments: Any) -> Any:
        return self._model.admit(arguments)

    def response(self, value: Any) -> Any:
        return value


class Stream:
    """One request and its stream of responses, from arrival to end."""

    __slots__ = (
        "arguments",
        "arrived_s",
        "cost",
        "flush",
        "has_begun",
        "how",
        "is_behind",
        "is_gone",
        "is_in_doubt",
        "request",
        "sender",
        "state",
    )

    def __init__(self, request: Any, arrived_s: float = 0.0) -> None:
        self.request = request
        self.arrived_s = arrived_s
        self.sender = request.get_response_sender()
        # Triton's senders lack these: they know no readers, and each response leaves at once
        is_here = hasattr(self.sender, "flush")
        self.is_behind, self.is_in_doubt, self.flush = [  # bool() is False
            getattr(self.sender, name, bool) for name in ("is_behind", "is_in_doubt", "flush")
        ]
        #: Arguments of send() for a response that is sent together with others.
        self.how = {"waits": True} if is_here else {}
        #: Returns whether its client has left. Call is_cancelled() of any sender first.
        self.is_gone = functools.partial(
            self.sender.is_cancelled, **({"looks": False} if is_here else {})
        )
        self.arguments: Any = None
        #: The cost of its request; None before the request is read.
        self.cost: Optional[float] = None
        #: True after its first response.
        self.has_begun = False
        #: The state that `admit` has returned.
        self.state: Any = None


class Streams:
    """All streams of a model, in their order of arrival."""

    def __init__(self, work: Work, flush: Callable[[Stream], Any] = methodcaller("flush")) -> None:
        self._work = work
        #: Sends the responses of a step; its argument is any stream of the step.
        self._flush = flush
        self.waiting: Deque[Stream] = deque()
        self.open: List[Stream] = []
        #: True if the first waiting request costs more than is free of the budget.
        self.is_full = False
        #: The part of the budget that is free.
        self._free = work.budget
        #: Number of streams that the last step left out since clients have responses to read.
        self.behind = 0
        #: Number of these streams whose clients are slow. Other clients may have lost responses
        #: with a broker.
        self.slow = 0
        #: Number of responses that were sent.
        self.pieces = 0
        #: Streams whose first response is not yet in the metrics.
        self.begun: List[Stream] = []
        #: True if cancellations were read after the last step. Reading them also sends responses,
        #: which another thread should do during the next step.
        self._has_looked = False

    def add(self, stream: Stream) -> None:
        self.waiting.append(stream)

    def begin(self) -> List[Stream]:
        """Prepare a step: end streams whose clients have left, and admit waiting requests.

        Returns the streams that take part in the step.
        """
        if not self._has_looked:
            for stream in [*self.open, *self.waiting][:1]:
                stream.sender.is_cancelled()
        self._has_looked = False
        for stream in [each for each in (*self.open, *self.waiting) if each.is_gone()]:
            self._end(stream)
        self._admit()
        ready = [each for each in self.open if not each.is_behind()]
        self.behind = self.slow = len(self.open) - len(ready)
        if self.behind:
            self.slow -= sum(each.is_behind() and each.is_in_doubt() for each in self.open)
        return ready

    def step(self, ready: List[Stream]) -> None:
        """Call `step` for these streams, and send its results."""
        try:
            results = self._work.step([each.state for each in ready])
            ready[0].sender.is_cancelled()
            self._has_looked = True
            if not isinstance(results, (list, tuple)) or len(results) != len(ready):
                raise TypeError(
                    f"step must return a list of {len(ready)} results, got {described(results)}"
                )
        except BaseException as error:  # noqa: BLE001 - the model's code may raise anything
            ended = self.open
            if isinstance(error, Failed) and 0 <= error.entry < len(ready):
                ended = [ready[error.entry]]
            for stream in list(ended):
                self._end(stream, failure(error))
            return
        for stream, result in zip(ready, results):
            if result is not None:
                self._take(stream, result)
        self._flush(ready[0])

    def close(self, response: Any) -> None:
        """End all open and waiting streams with the same response."""
        for stream in [*self.open, *self.waiting]:
            self._end(stream, response)

    def _admit(self) -> None:
        while self.waiting and len(self.open) < self._work.streams and not self.is_full:
            stream = self.waiting[0]
            try:
                self._enter(stream)
            except Full:
                if self.open:
                    self.is_full = True
                    return
                self._end(stream, failure(_TOO_LARGE))
            except BaseException as error:  # noqa: BLE001 - the model's code may raise anything
                self._end(stream, failure(error))
            else:
                self.open.append(self.waiting.popleft())

    def _enter(self, stream: Stream) -> None:
        """Call `admit` for a request. Raises Full without room, and the model's errors."""
        work = self._work
        if stream.cost is None:
            stream.arguments = work.read(stream.request)
            stream.cost = work.cost(stream.arguments) if work.budget else 0
            if not 0 <= stream.cost < math.inf:
                raise Refused(f"its cost is {stream.cost:g}, which must be a number from 0 on")
            if stream.cost > work.budget:
                raise Refused(f"its cost is {stream.cost:g}, and the budget {work.budget:g}")
        if stream.cost > self._free:
            raise Full
        stream.state = work.admit(stream.arguments)
        self._free -= stream.cost
        stream.arguments = stream.request = None  # the model keeps of it what it needs

    def _take(self, stream: Stream, result: Any) -> None:
        """Send a stream's result of a step, and end the stream if it was the last one."""
        is_last = isinstance(result, End)
        value = result.value if is_last else result
        try:
            if isinstance(value, (Failed, Refused)):
                raise value
            if value is not None:
                stream.sender.send(self._work.response(value), **stream.how)
                self.pieces += 1
                if not stream.has_begun:
                    stream.has_begun = True
                    self.begun.append(stream)
            response = None
        except BaseException as error:  # noqa: BLE001 - values that are no response
            is_last, response = True, failure(error)
        if is_last:
            self._end(stream, response)

    def _end(self, stream: Stream, response: Any = None) -> None:
        """End a stream, with a last response or without one. An open stream leaves the model."""
        try:
            stream.sender.send(*[response][: response is not None], flags=_FINAL)
        except Exception as error:  # noqa: BLE001 - a model may have sent the end itself
            pb_utils.Logger.log_error(f"the end of a stream was not sent: {error}")
        self.is_full = False  # another one is the first, which may need less, or there is room
        if stream not in self.open:
            self.waiting.remove(stream)
            return
        try:
            self._work.leave(stream.state)
        except BaseException as error:  # noqa: BLE001 - the others go on
            failure(error)  # it is logged
        stream.state = None
        self.open.remove(stream)  # only now: a model without streams may sleep
        self._free += stream.cost or 0


class Measures:
    """The metrics of the streams of one instance; instances of a model add to the same metrics."""

    def __init__(self, args: Dict[str, str]) -> None:
        labels = {"model": args["model_name"], "version": args["model_version"]}
        family = pb_utils.MetricFamily
        states = family("streams", "Streams by state", family.GAUGE)
        pieces = family("streams_pieces_total", "Responses of streams", family.COUNTER)
        rows = (
            ("streams_step_size", "Streams in a step", _SIZES),
            ("streams_step_seconds", "Time of a step", _SECONDS),
            ("streams_first_seconds", "Time to the first response of a stream", _SECONDS),
        )
        histograms = [(family(name, text, family.HISTOGRAM), bounds) for name, text, bounds in rows]
        self._families = [states, pieces, *[each for each, _ in histograms]]
        self._size, self._seconds, self._first = [
            each.Metric(labels=labels, buckets=bounds) for each, bounds in histograms
        ]
        self._counts = {
            each: states.Metric(labels={**labels, "state": each})
            for each in ("open", "waiting", "behind")
        }
        self._counts["pieces"] = pieces.Metric(labels=labels)
        self._sent = dict.fromkeys(self._counts, 0)
        #: Metrics and their values that are not reported yet.
        self._seen: List[Tuple[Any, float]] = []
        self._due_s = 0.0

    def tell(self, streams: Streams, *, is_idle: bool) -> None:
        """Report the changes since the last report, at most every quarter of a second.

        When the loop is idle, it reports at once.
        """
        now_s = time.monotonic()
        if now_s < self._due_s and not is_idle:
            return
        self._due_s = now_s + _TELL_S
        for metric, value in self._seen:
            metric.observe(value)
        self._seen.clear()
        now = (len(streams.open), len(streams.waiting), streams.behind, streams.pieces)
        for (name, metric), count in zip(self._counts.items(), now):
            if count != self._sent[name]:
                metric.increment(count - self._sent[name])
                self._sent[name] = count

    def note_step(self, size: int, begun_s: float, streams: Streams) -> None:
        now_s = time.monotonic()
        self._seen += [(self._size, size), (self._seconds, now_s - begun_s)]
        self._seen += [(self._first, now_s - stream.arrived_s) for stream in streams.begun]
        streams.begun.clear()


class StreamLoop:
    """The thread of an instance that runs the steps of its streams. execute() calls `put`."""

    def __init__(self, work: Work, args: Dict[str, str]) -> None:
        #: A stream of each step whose responses must be sent; None at the end.
        self._leaving: SimpleQueue[Optional[Stream]] = SimpleQueue()
        self._streams = Streams(work, self._leaving.put)
        self._measures = Measures(args)
        self._changed = threading.Condition()
        self._arrived: List[Stream] = []
        self._is_closed = False
        #: None before the first request, because a model may be forked until then.
        self._thread: Optional[threading.Thread] = None
        #: Time of the last log line of each kind.
        self._logged_s: Dict[str, float] = {}
        self._work = work

    def calls(self) -> Dict[str, Callable[..., Any]]:
        """Return the methods that the server calls, by name.

        They are not attributes: a reference cycle would keep the metrics alive after the
        connection.
        """
        rests = self._work.rests.items()
        calls = {name: functools.partial(self._rest, call) for name, call in rests}
        return {**calls, "execute": self.put}

    def put(self, requests: List[Any]) -> None:
        """Add requests, and return at once; if one waits for room, wait up to a second."""
        now_s = time.monotonic()
        streams = [Stream(request, now_s) for request in requests]
        with self._changed:
            if self._thread is None:
                run = contextvars.Context().run  # not for these requests alone
                self._thread = threading.Thread(target=run, args=(self._run,), daemon=True)
                self._thread.start()
                threading.Thread(target=self._send, daemon=True).start()
            self._arrived += streams
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_closed or not self._streams.is_full, _FULL_S)

    def close(self) -> None:
        """End all streams and the thread. Usually none are left when the server unloads a model."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _rest(self, call: Callable[[], Any]) -> None:
        """Call the model's `sleep` or `wake_up` after all streams have left."""
        with self._changed:
            self._changed.wait_for(lambda: not self._streams.open)
            call()

    def _run(self) -> None:
        streams, is_idle = self._streams, True
        while self._wait(is_idle):
            ready = streams.begin()
            is_idle = not ready
            if ready:
                begun_s = time.monotonic()
                streams.step(ready)
                self._measures.note_step(len(ready), begun_s, streams)
            self._measures.tell(streams, is_idle=not streams.open or is_idle)
            self._log()
        streams.close(failure(_ENDED))
        self._measures.tell(streams, is_idle=True)
        self._leaving.put(None)

    def _send(self) -> None:
        """Send the responses of each step while the next one computes, in a thread of its own."""
        for stream in iter(self._leaving.get, None):
            stream.flush()

    def _wait(self, is_idle: bool) -> bool:
        """Wait until a step is possible, and add new requests. Returns False at the end."""
        streams = self._streams
        with self._changed:
            self._changed.notify_all()
            if is_idle:
                look_s = _LOOK_S if streams.open else None
                self._changed.wait_for(lambda: self._arrived or self._is_closed, look_s)
            arrived, self._arrived = self._arrived, []
        for stream in arrived:
            streams.add(stream)
        return not self._is_closed

    def _log(self) -> None:
        """Log what streams wait for, at most once a minute; `zmqtriton-ctl explain` reads it."""
        streams = self._streams
        count = len(streams.open)
        if streams.is_full:
            self._say("room", f"requests wait for room: {count} streams have it")
        if streams.slow > 0:
            text = f"{streams.slow} of {count} streams wait for their readers"
            self._say("readers", text)

    def _say(self, kind: str, text: str) -> None:
        now_s = time.monotonic()
        if now_s - self._logged_s.get(kind, -_QUIET_S) >= _QUIET_S:
            self._logged_s[kind] = now_s
            pb_utils.Logger.log_info(text)
