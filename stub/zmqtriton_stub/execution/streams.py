"""Responses of decoupled models: numbered, at the reader's pace, and past the broker if possible.

An OpenStream is one request from its arrival until its final response is sent; connection.py makes
it and reports the number of responses that the reader has taken. A Publisher is the socket that
leads directly to the frontends. It belongs to the link: its methods are called under the link's
lock.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

import zmq

from zmqtriton_floor import endpoints, wire
from zmqtriton_floor.errors import Cancelled, Unavailable
from zmqtriton_floor.process import zmq_sockets
from zmqtriton_stub.api.errors import CANCELLED, TritonModelException, clip
from zmqtriton_stub.api.inference import InferenceResponse
from zmqtriton_stub.execution.implicit_state import changed_states, keep_states
from zmqtriton_stub.execution.response_counts import CANCEL, EMPTY, FAIL, SUCCESS
from zmqtriton_stub.execution.responses import (
    INTERNAL,
    OpenRequest,
    OutcomeWithBody,
    ResponseLink,
    state_lock,
)
from zmqtriton_stub.memory.tensor_memory import ClientMemory

#: Maximum number of responses that a stream buffers for a slow reader, and of their bytes.
MAX_BUFFERED = 1024
MAX_BUFFERED_BYTES = 16 << 20
#: Time that send() blocks for a reader that is as far behind as it may be and shows no progress: in
#: a thread that sends for this stream only, and in one that other streams wait for. Clients read in
#: steps that the server does not control: gRPC's library makes room for megabytes at once. What a
#: client has not read by then is kept here while there is room for all clients; its frontend is the
#: judge of whether it has stalled.
_PATIENCE_S = 5.0
_SHARED_PATIENCE_S = 0.25
#: Time that a thread for several streams blocks since the last progress of the reader. _PATIENCE_S
#: is the maximum in all.
_MOVING_S = 1.5
#: Smaller ones do not count as bytes of the window.
_SMALL_BYTES = 4 << 10
#: Another thread may take the message that a waiting one is waiting for.
_LOOK_MS = 5
#: Number of responses of a stream between two looks at the broker's messages, if none is buffered.
_LOOK_EVERY = 16

_TOO_SLOW = "the reader of this stream did not keep up"


class _Sender(threading.local):
    """The last stream that this thread has sent a response for."""

    stream: OpenStream | None = None
    #: True if the thread has come to this stream from one that is still open.
    has_many = False


_sender = _Sender()
_now_ns = time.monotonic_ns


class OpenStream(OpenRequest):
    """A request of a decoupled model, from its arrival to its last response.

    It lives until its senders have finished and its reader has taken everything.
    """

    # They may have to wait for the reader.
    _passes_on = False
    _LOSS = "The model let go of a response sender without the FINAL flag."

    __slots__ = (
        "_buffer",
        "_buffered_bytes",
        "_doubted",
        "_for_clients",
        "_has_lost",
        "_has_window",
        "_heard_s",
        "_number",
        "_out",
        "_out_bytes",
        "_since_ns",
        "_taken",
        "_window_bytes",
    )

    def __init__(self, link: ResponseLink, work: wire.BatchedRequest, body: bytes) -> None:
        super().__init__(link, work, body)
        #: The index of the next response that leaves.
        self._number = 0
        #: Number of responses that the reader has taken.
        self._taken = 0
        #: Number of responses that had left when the broker died: it may have lost some.
        self._doubted = 0
        #: Responses that may not leave yet, in order.
        self._buffer: deque[OutcomeWithBody] = deque()
        self._buffered_bytes = 0
        #: True if the reader is a client: then the bytes on the way to it are bounded as well.
        self._has_window = bool(work.flags & wire.BYTE_WINDOW)
        self._window_bytes = wire.STREAM_WINDOW_BYTES if self._has_window else MAX_BUFFERED_BYTES
        memory = link.instance.memory
        self._for_clients = memory.for_clients if memory is not None and self._has_window else None
        #: The numbers and bytes of those that have left and count as unread.
        self._out: deque[tuple[int, int]] = deque()
        self._out_bytes = 0
        #: When the reader was heard of last.
        self._heard_s = 0.0
        #: Responses were dropped, so the end must say so.
        self._has_lost = False
        #: When the model could begin with the next response.
        self._since_ns = 0

    # ------------------------------------------------------------- the model

    def begin(self, now_ns: int) -> None:
        self._since_ns = now_ns

    def send(self, response: InferenceResponse | None, flags: int, *, waits: bool = False) -> None:
        begun_ns = _now_ns()
        if self.is_cancelled and not flags and not self._is_closed:
            self._has_lost = True  # nobody will read it
            with state_lock:
                self._count_response(CANCEL, begun_ns)
            return
        last = _sender.stream
        if last is not self:
            _sender.has_many = last is not None and not last._is_closed
            _sender.stream = self
        if self._is_full and not flags and not self._is_closed:
            self._await_reader()  # before it takes memory
        if self._for_clients is not None and self._for_clients.is_full(self.route[0]):
            self._await_room(self._for_clients)
        may_keep = self._may_keep_more
        changes = changed_states(self._link.instance.states, self, response)
        if response is None:
            answer: OutcomeWithBody = wire.Outcome(*self.route, 0, "", flags), b""
        else:
            answer = self.encode(response, flags)
        is_too_slow = False
        with state_lock:
            if self._is_closed:
                self.withdraw(answer)
                raise TritonModelException(
                    "Unable to send response. Response sender has been closed."
                )
            self._is_closed = bool(flags)
            if self._is_full and not (may_keep or flags or self.is_answered):
                is_too_slow = True
                self.withdraw(answer)
                self._cut()
            else:
                keep_states(self, changes)
                kind = EMPTY if response is None else FAIL if response._error else SUCCESS
                self._count_response(kind, begun_ns)
                self._put(answer)
        self._turn(waits=waits)
        if is_too_slow:
            self._link.instance.log(
                "W", f"model '{self._link.instance.name}' lost a client: {_TOO_SLOW}", depth=3
            )

    def _turn(self, *, waits: bool) -> None:
        # a model that does nothing but send learns in time how far its reader is, and at once of
        # another broker
        takes = bool(self._buffer) or not self._number % _LOOK_EVERY or self._link.descriptor < 0
        if takes:
            self._link.poll()
            self._link.tell_tallies()
        if not waits:
            self._link.turn(takes=takes)

    def _count_response(self, kind: int, begun_ns: int) -> None:
        done_ns = _now_ns()
        infer_ns = begun_ns - self._since_ns if self._since_ns else 0
        self._link.tallies.add(self._count, kind, infer_ns, done_ns - begun_ns)
        self._count += 1
        self._since_ns = done_ns

    def fail(self, text: str, code: int = INTERNAL) -> list[OutcomeWithBody]:
        """End the stream with an error, sent here after the responses that wait."""
        with state_lock:
            if not self._is_closed:
                self._is_closed = True
                self._count_response(FAIL, _now_ns())
                self._put((wire.Outcome(*self.route, code, clip(text), wire.FINAL), b""))
        return []

    def drop(self) -> None:
        instance = self._link.instance
        with state_lock:
            if self._is_closed or self.is_answered or self._link.is_closed:
                return
            # without an error, a client would take what it has for the whole
            is_missed = not self.is_cancelled
            self.fail(
                instance.failure(self.loss) if is_missed else CANCELLED,
                INTERNAL if is_missed else Cancelled.number,
            )
        self._link.turn()
        instance.log(
            "W", f"model '{instance.name}' let go of a response sender without the FINAL flag"
        )

    # ------------------------------------------------------------ the reader

    def grant(self, taken: int, passed: int = 0) -> None:
        """Record the number of responses that the reader has taken, and send more if allowed.

        Responses up to number `passed` no longer count as bytes on their way to a client.
        """
        with state_lock:
            self._heard_s = time.monotonic()
            # it cannot have taken what was not sent
            self._taken = max(self._taken, min(taken, self._number))
            out, passed = self._out, max(passed, self._taken)
            while out and out[0][0] < passed:
                self._out_bytes -= out.popleft()[1]
            buffer = self._buffer
            while buffer and (self._may_send or buffer[0][0].flags):
                answer = buffer.popleft()
                self._keep(-self._weight(answer))
                self._emit(answer)

    def cancel(self) -> None:
        """Drop unsent responses; the stream ends when the model ends it."""
        super().cancel()
        with state_lock:
            self._out.clear()
            self._out_bytes = 0
            if self._buffer:
                is_ended = bool(self._buffer[-1][0].flags)
                self._discard()
                if is_ended and not self.is_answered:
                    self._emit(self._end(Cancelled.number, CANCELLED))

    def doubt(self, unsent: int | None) -> OutcomeWithBody:
        """Doubt the arrival of responses after a broker's death; return a question to the reader.

        The response with the number `unsent` is the first that was not sent; None: all were sent.
        """
        self._doubted = self._number if unsent is None else unsent
        return wire.Outcome(*self.route, 0, "", wire.SENT, self._doubted), b""

    def is_in_doubt(self) -> bool:
        return self._taken < self._doubted

    def is_behind(self) -> bool:
        return not self._may_send or (
            self._for_clients is not None and self._for_clients.is_full(self.route[0])
        )

    # ----------------------------------------------------------------- inside

    @property
    def _may_send(self) -> bool:
        return (
            self._number < self._taken + wire.STREAM_WINDOW and self._out_bytes < self._window_bytes
        )

    @property
    def _is_full(self) -> bool:
        waiting = self._out_bytes + self._buffered_bytes
        return waiting >= self._window_bytes or len(self._buffer) >= MAX_BUFFERED

    @property
    def _may_keep_more(self) -> bool:
        """True if further responses may wait here although the reader is far behind."""
        if not self._has_window or len(self._buffer) >= MAX_BUFFERED:
            return False
        return self._for_clients is None or self._for_clients.may_keep(self.route[0])

    def _put(self, answer: OutcomeWithBody) -> None:
        """Send a response, or keep it until the reader has taken earlier ones."""
        outcome, _ = answer
        if self.is_answered:
            self.withdraw(answer)
        elif self.is_cancelled and not outcome.flags:
            self._has_lost = True
            self.withdraw(answer)
        elif self._has_lost:
            self.withdraw(answer)
            self._emit(self._end(Cancelled.number, CANCELLED))
        elif self._buffer or not (outcome.flags or self._may_send):
            self._buffer.append(answer)
            self._keep(self._weight(answer))
        else:
            self._emit(answer)

    def _emit(self, answer: OutcomeWithBody) -> None:
        """Number a response; the holder of the link's lock, present or next, sends it."""
        (peer, own_id, code, text, flags, _, blocks), body = answer
        outcome = wire.Outcome(peer, own_id, code, text, flags, self._number, blocks)
        memory = self._link.instance.memory
        if blocks and self._for_clients is not None and memory is not None:
            self._for_clients.add(peer, memory.own(blocks))
        if flags:
            self.finish((outcome, body))
            self.leave_inputs()
        elif self._has_window and (blocks or len(body) > _SMALL_BYTES):
            weight = self._weight(answer)
            self._out.append((self._number, weight))
            self._out_bytes += weight
        self._number += 1
        self._link.put((outcome, body))
        if self.left_inputs:
            self.release_inputs()

    def _cut(self) -> None:
        """End the stream because its reader is too slow; later responses are dropped."""
        self._discard()
        self.is_cancelled = True
        self._emit(self._end(Unavailable.number, _TOO_SLOW))

    def _discard(self) -> None:
        self._keep(-self._buffered_bytes)
        while self._buffer:
            self.withdraw(self._buffer.popleft())
        self._has_lost = True

    def _keep(self, more: int) -> None:
        """Account for the memory of responses that wait here."""
        self._buffered_bytes += more
        if self._for_clients is not None:
            self._for_clients.keep(self.route[0], more)

    def _weight(self, answer: OutcomeWithBody) -> int:
        """Return the memory that a response takes, here and in the arena."""
        (*_, blocks), body = answer
        memory = self._link.instance.memory
        return len(body) + (memory.size(blocks) if blocks and memory is not None else 0)

    def _end(self, code: int, text: str) -> OutcomeWithBody:
        return wire.Outcome(*self.route, code, text, wire.FINAL), b""

    def _await_reader(self) -> None:
        """Wait until the reader has taken a response, or has taken none for too long."""
        begun_s, link = time.monotonic(), self._link
        if _sender.has_many and self._may_keep_more:
            link.turn()
            return  # others wait for this thread
        while True:
            link.poll()
            link.turn()
            is_over = not self._is_full or self.is_answered or link.is_closed
            if is_over or time.monotonic() > self._patient_until(begun_s):
                return
            link.wait(_LOOK_MS)

    def _await_room(self, for_clients: ClientMemory) -> None:
        """Wait, within a time limit, until the reader's process has read its messages."""
        deadline_s, link = time.monotonic() + _PATIENCE_S, self._link
        while for_clients.is_full(self.route[0]) and not (
            self.is_cancelled
            or self.is_answered
            or link.is_closed
            or time.monotonic() >= deadline_s
        ):
            link.poll()
            link.turn()
            link.wait(_LOOK_MS)

    def _patient_until(self, begun_s: float) -> float:
        if not _sender.has_many:
            return max(begun_s, self._heard_s) + _PATIENCE_S
        return max(
            begun_s + _SHARED_PATIENCE_S, min(self._heard_s + _MOVING_S, begun_s + _PATIENCE_S)
        )


class Publisher:
    """The XPUB of this stub and its subscribers."""

    def __init__(
        self, address: str, listener: int | None = None, *, is_timed: bool = False
    ) -> None:
        #: The broker wants to see when the first response of each stream leaves.
        self._is_timed = is_timed
        self._address = address
        self._context = zmq.Context()
        self._socket: Any = zmq_sockets.open_publisher(self._context, address, listener)
        #: The topics of the subscribed frontends.
        self._topics: set[bytes] = set()

    def close(self, linger_ms: int) -> None:
        self._socket.close(linger_ms)
        self._context.term()

    def listen(self, listener: int) -> None:
        """Accept further subscribers at this listener; present ones stay."""
        zmq_sockets.take_subscribers(self._socket, self._address, listener)

    def send(self, answers: list[OutcomeWithBody]) -> list[OutcomeWithBody]:
        """Send responses that go directly to their reader; return the others, in order."""
        topic = endpoints.topic(answers[0][0].peer)
        # at the beginning of a stream its reader may have lost the way since the last one
        if topic not in self._topics or not all(outcome.number for outcome, _ in answers):
            self._take_subscriptions()
        if len(answers) == 1:
            if topic not in self._topics or not self._is_plain(answers[0][0]):
                return answers
            self._send(topic, answers)
            return []
        rest: list[OutcomeWithBody] = []
        straight: dict[bytes, list[OutcomeWithBody]] = {}
        for answer in answers:
            topic = endpoints.topic(answer[0].peer)
            if topic in self._topics and self._is_plain(answer[0]):
                straight.setdefault(topic, []).append(answer)
            else:
                rest.append(answer)
        for topic, some in straight.items():
            self._send(topic, some)
        return rest

    def _is_plain(self, outcome: wire.Outcome) -> bool:
        """True if the broker does not need to know about the response."""
        if self._is_timed and not outcome.number:
            return False
        return not (outcome.flags or outcome.code or outcome.blocks)

    def _send(self, topic: bytes, answers: list[OutcomeWithBody]) -> None:
        header, *bodies = frames(answers)
        zmq_sockets.send(self._socket, [topic + header, *bodies])

    def _take_subscriptions(self) -> None:
        """Add the topics of frontends that have subscribed, and remove those that have left."""
        while zmq_sockets.has_input(self._socket):
            [message] = zmq_sockets.receive(self._socket)
            if message[:1] == b"\1":
                self._topics.add(message[1:])
            else:
                self._topics.discard(message[1:])


def frames(answers: list[OutcomeWithBody]) -> list[bytes]:
    """Return the frames of one message with all responses."""
    return [
        wire.encode(wire.Results([outcome for outcome, _ in answers], [])),
        *[body for _, body in answers],
    ]


def coalesce(first: OutcomeWithBody, waiting: deque[Any]) -> list[OutcomeWithBody]:
    """Take responses from the queue that can travel with the first, up to another item."""
    answers = [first]
    # an error's text may be long, so each goes alone
    while waiting and len(answers) < wire.STREAM_WINDOW and not answers[-1][0].code:
        if type(waiting[0]) is list or waiting[0][0].code:
            break
        answers.append(waiting.popleft())
    return answers
