"""The instance's side: serves the processes that its model has forked, in a thread of its own.

The thread runs while there are such processes. All calls come from the model's own code, so they
are treated as if the model had made them in this process.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import select
import socket
import threading
from collections import deque
from functools import cached_property
from typing import Any, Callable, Mapping

from zmqtriton_floor import wire
from zmqtriton_floor.errors import (
    InternalError,
    NotFound,
    ProtocolError,
    Unavailable,
    ZmqTritonError,
)
from zmqtriton_floor.zmtp import ZmtpConnection, receive_buffer
from zmqtriton_stub.api.bls import open_reply, prepare, response_of
from zmqtriton_stub.api.errors import (
    ErrorCode,
    TritonError,
    TritonModelException,
    clip,
)
from zmqtriton_stub.api.inference import InferenceResponse
from zmqtriton_stub.broker.between_threads import Bell
from zmqtriton_stub.broker.bls_call import BlsCall
from zmqtriton_stub.broker.bls_client import BlsClient
from zmqtriton_stub.instance import StubInstance

#: Verbs of calls that the supervisor answers.
_CONTROL = frozenset({"load", "unload", "ready"})
_CLOSED = "Unable to send response. Response sender has been closed."


class Calls:
    """Carries out the calls of all forks.

    Calls that may take long run in a thread of their own, so that a fork does not delay other
    forks.
    """

    def __init__(
        self, instance: StubInstance, answer: Callable[[ZmtpConnection, wire.CallResult], None]
    ) -> None:
        """Set up; `answer` may be called by any thread."""
        self._instance = instance
        self._answer = answer

    def take(
        self, connection: ZmtpConnection, call: wire.Call, bodies: list[bytes], made: set[int]
    ) -> None:
        """Carry out a call; `made` has the metrics that this fork has made."""
        arguments = json.loads(call.arguments)
        measures = self._instance.measures
        if call.verb == "change":
            number, verb, value = arguments
            measured = measures.find(number)
            if measured is not None:  # its last holder has let it go
                measures.change(measured, verb, value)
        elif call.verb == "drop":
            made.discard(arguments)
            measures.drop(arguments)
        else:
            threading.Thread(
                target=self._run,
                args=(connection, call, arguments, bodies, made),
                name="fork's call",
                daemon=True,
            ).start()

    def _run(
        self,
        connection: ZmtpConnection,
        call: wire.Call,
        arguments: Any,
        bodies: list[bytes],
        made: set[int],
    ) -> None:
        try:
            result = self._result(call, arguments, bodies)
            if call.verb in ("family", "metric"):
                made.add(result)
            answer = wire.CallResult(call.id, 0, "", json.dumps(result))
        except ZmqTritonError as error:
            answer = wire.CallResult(call.id, error.number, error.text, "")
        except (TritonModelException, ValueError, TypeError) as error:
            answer = wire.CallResult(call.id, InternalError.number, clip(str(error)), "")
        self._answer(connection, answer)

    def _result(self, call: wire.Call, arguments: Any, bodies: list[bytes]) -> Any:
        measures = self._instance.measures
        if call.verb in _CONTROL:
            control = self._instance.call
            if control is None:
                raise Unavailable(
                    "models are controlled from initialize() and execute() of a model that is "
                    "being served, not from auto_complete_config() or finalize()"
                )
            return control(call.verb, call.arguments)
        if call.verb == "family":
            return measures.add_family(*arguments)
        if call.verb == "metric":
            return measures.add(*arguments).number
        if call.verb == "value":
            measured = measures.find(arguments)
            if measured is None:
                raise NotFound("the metric is gone")
            return measures.value(measured)
        if call.verb == "is_cancelled":
            pending = self._instance.pending.get(tuple(arguments))
            return pending is not None and pending.is_cancelled_now()
        if call.verb == "send":
            return self._send(arguments, bodies)
        raise InternalError(f"a fork asks for {call.verb}")

    def _send(self, arguments: Any, bodies: list[bytes]) -> None:
        peer, own_id, flags, failure = arguments
        pending = self._instance.pending.get((peer, own_id))
        if pending is None:
            raise TritonModelException(_CLOSED)
        response = None
        if failure is not None:
            text, code, number = failure
            response = InferenceResponse(error=TritonError(text, ErrorCode(code), number))
        elif bodies:
            response = response_of(wire.decode_response(bodies[0]))
        pending.send(response, flags)


_NOT_SERVING = Unavailable("BLS is only supported during the 'execute' function.")


class _Fork:
    """One connection of a child."""

    def __init__(self, connection: ZmtpConnection) -> None:
        self.connection = connection
        #: Calls of other models without a final reply, by the fork's own numbers.
        self.questions: dict[int, BlsCall] = {}
        #: The metrics and families that it has made.
        self.measured: set[int] = set()

    def cancel(self, asker: BlsClient | None, ids: list[int]) -> None:
        for question in filter(None, map(self.questions.get, ids)):
            if asker is not None:
                asker.cancel(question)

    def grant(self, asker: BlsClient | None, acks: list[wire.StreamAck]) -> None:
        """Let models send more responses, after the fork has read some."""
        for ack in acks:
            question = self.questions.get(ack.id)
            if asker is not None and question is not None:
                asker.grant(question, ack.responses)


class Relay:
    """The inlets of all forks of this process, and the connections that came through them."""

    def __init__(self, instance: StubInstance) -> None:
        self._instance = instance
        self._calls = calls = Calls(instance, self._answer)
        #: Functions by type of a fork's message. Each gets the fork, the message, and the bodies
        #: behind it.
        self._of_forks: dict[type, Callable[[_Fork, Any, list[bytes]], object]] = {
            wire.Infer: self._ask,
            wire.LogLine: lambda child, line, _: instance.tell(line),
            wire.Mismatch: lambda child, message, _: instance.tell(message),
            wire.Call: lambda child, call, bodies: calls.take(
                child.connection, call, bodies, child.measured
            ),
            wire.Cancel: lambda child, message, _: child.cancel(instance.asker, message.ids),
            wire.StreamAcks: lambda child, message, _: child.grant(instance.asker, message.acks),
        }
        #: The ends of inlets that forks are about to get, by the thread that forks.
        self._opening: dict[int, tuple[socket.socket, socket.socket]] = {}
        self._inlets: dict[int, socket.socket] = {}
        self._forks: dict[int, _Fork] = {}
        #: Steps that other threads want done here.
        self._steps: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._is_running = False
        #: Made for the first connection: most models never fork.
        self._piece: mmap.mmap | None = None
        #: Descriptors of the calls' client, and what to call for each, while a fork awaits replies.
        self._watched: Mapping[int, Callable[[], None]] = {}

    @cached_property
    def _epoll(self) -> select.epoll:
        """The descriptors of the thread, made for the first fork."""
        return select.epoll()

    @cached_property
    def _bell(self) -> Bell:
        """The bell of the thread, made for the first fork."""
        bell = Bell()
        self._epoll.register(bell.descriptor, select.EPOLLIN)
        return bell

    # ------------------------------------------------------------------ forks

    def open_inlet(self) -> None:
        """Make an inlet for the process that this thread is about to fork."""
        with contextlib.suppress(OSError):  # without one its calls are refused
            self._opening[threading.get_ident()] = socket.socketpair(
                socket.AF_UNIX, socket.SOCK_SEQPACKET
            )

    def serve(self) -> None:
        """Take the instance's end of the inlet, and serve it."""
        ends = self._opening.pop(threading.get_ident(), None)
        if ends is None:
            return
        ends[1].close()
        with self._lock:
            self._steps.append(lambda: self._add_inlet(ends[0]))
            bell = self._bell
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="forks", daemon=True).start()
        bell.ring()

    def leave(self) -> socket.socket | None:
        """Return the fork's own end of its connection; close the other connections in the fork."""
        own = self._opening.pop(threading.get_ident(), None)
        for end in [
            *self._inlets.values(),
            *(end for ends in self._opening.values() for end in ends),
        ]:
            end.close()
        self._opening.clear()
        for child in self._forks.values():
            child.connection.abandon()
        if own is None:
            return None
        own[0].close()
        return own[1]

    # ----------------------------------------------------------------- thread

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException:
            # nobody may wait for an answer that does not come
            for child in list(self._forks.values()):
                child.connection.break_off()
            for inlet in self._inlets.values():
                inlet.close()
            raise

    def _serve(self) -> None:
        while True:
            while self._steps:
                self._steps.popleft()()
            with self._lock:
                if not (self._steps or self._inlets or self._forks):
                    self._is_running = False
                    return
            for descriptor, _ in self._epoll.poll():
                self._look(descriptor)

    def _do(self, step: Callable[[], None]) -> None:
        """Let the thread take a step; any thread may call this."""
        self._steps.append(step)
        self._bell.ring()

    def _look(self, descriptor: int) -> None:
        if descriptor in self._inlets:
            self._accept(descriptor)
        elif descriptor in self._forks:
            self._read(self._forks[descriptor])
        elif descriptor in self._watched:
            self._watched[descriptor]()
        else:
            self._bell.silence()

    def _add_inlet(self, inlet: socket.socket) -> None:
        self._inlets[inlet.fileno()] = inlet
        self._epoll.register(inlet.fileno(), select.EPOLLIN)

    def _accept(self, descriptor: int) -> None:
        """Accept a connection from a fork through its inlet, or the inlet's end."""
        inlet = self._inlets[descriptor]
        message, ancillary, _, _ = inlet.recvmsg(1, socket.CMSG_SPACE(4))
        if not message:
            del self._inlets[descriptor]
            self._epoll.unregister(descriptor)
            inlet.close()
        for _, _, data in ancillary:
            end = socket.socket(fileno=int.from_bytes(data[:4], "little"))
            self._piece = self._piece or receive_buffer()
            child = _Fork(ZmtpConnection(end, b"ROUTER", b"DEALER", self._piece))
            self._forks[child.connection.descriptor] = child
            self._epoll.register(child.connection.descriptor, select.EPOLLIN)

    # ------------------------------------------------------------------ calls

    def _read(self, child: _Fork) -> None:
        connection = child.connection
        connection.flush()
        connection.read()
        while connection.messages:
            try:
                self._take(child, connection.messages.popleft())
            except ProtocolError:
                connection.break_off()
        if not connection.is_open:
            self._end(child)
            return
        self._flush(child)

    def _flush(self, child: _Fork) -> None:
        connection = child.connection
        connection.flush()
        room = select.EPOLLOUT if connection.is_blocked else 0
        self._epoll.modify(connection.descriptor, select.EPOLLIN | room)

    def _end(self, child: _Fork) -> None:
        del self._forks[child.connection.descriptor]
        self._epoll.unregister(child.connection.descriptor)
        child.connection.close()
        asker = self._instance.asker
        for question in child.questions.values():
            if asker is not None:
                asker.cancel(question)
                asker.drop(question)
        child.questions.clear()
        for number in list(child.measured):
            self._instance.measures.drop(number)
        self._watch_replies()

    def _take(self, child: _Fork, frames: list[bytes]) -> None:
        message = wire.decode(frames[0])
        take = self._of_forks.get(type(message))
        if take is not None:
            take(child, message, frames[1:])

    def _answer(self, connection: ZmtpConnection, answer: wire.CallResult) -> None:
        """Send the result of a call; any thread may call this."""
        self._do(lambda: self._send(connection, [wire.encode(answer)]))

    def _send(self, connection: ZmtpConnection, frames: list[bytes]) -> None:
        child = self._forks.get(connection.descriptor)
        if child is not None and child.connection is connection:
            connection.put(frames)
            self._flush(child)

    # -------------------------------------------------------------------- BLS

    def _ask(self, child: _Fork, infer: wire.Infer, bodies: list[bytes]) -> None:
        """Send a fork's request to another model."""
        if len(bodies) != 1:
            return
        asker, row, body = self._instance.asker, infer.requests[0], bodies[0]
        number = row.id
        if asker is None:
            self._refuse(child, number, _NOT_SERVING)
            return
        try:
            request = wire.RequestBody(*wire.decode_request(body))
            prepared = prepare(self._adapted(row), request, self._instance.memory)
        except ZmqTritonError as error:
            self._refuse(child, number, error)
            return
        question = asker.ask(
            prepared.row,
            prepared.body,
            prepared.blocks,
            lambda question: self._do(lambda: self._reply(child, number, question)),
            prepared.held,
        )
        child.questions[number] = question
        self._watch_replies()

    def _adapted(self, row: wire.Request) -> wire.Request:
        """Return a fork's request as one of this process."""
        # a fork waits, and not this process; and who asks of it again is no broker
        row = row._replace(flags=row.flags & ~(wire.CALLER_BLOCKS | wire.RESENT))
        if row.caller_id and (row.caller_peer, row.caller_id) not in self._instance.pending:
            # a fork that outlives the request in which it was made works for others now
            row = row._replace(deadline_ns=0, caller_peer=0, caller_id=0)
        return row

    def _refuse(self, child: _Fork, number: int, error: ZmqTritonError) -> None:
        row = wire.Reply(number, error.number, error.text, wire.FINAL)
        child.connection.put([wire.encode(wire.Replies([row])), b""])

    def _reply(self, child: _Fork, number: int, question: BlsCall) -> None:
        """Pass on arrived messages, with the bytes of their references."""
        for answered in question.arrived():
            row, body = answered
            own = row._replace(id=number, flags=row.flags & ~wire.HAS_REFERENCES)
            try:
                if body:
                    body = wire.encode_body(
                        open_reply(answered, self._instance.memory, takes_gpu=False)
                    )
            except ZmqTritonError as error:
                own, body = own._replace(code=error.number, text=error.text), b""
            if row.flags & wire.FINAL:
                child.questions.pop(number, None)
            self._send(child.connection, [wire.encode(wire.Replies([own])), body])
        self._watch_replies()

    def _watch_replies(self) -> None:
        """Read replies while a fork awaits some."""
        asker = self._instance.asker
        is_awaiting = any(child.questions for child in self._forks.values())
        watched = asker.watch.looks(asker.turn) if is_awaiting and asker is not None else {}
        if watched.keys() == self._watched.keys():
            return
        for descriptor in self._watched:
            with contextlib.suppress(OSError):  # it is closed
                self._epoll.unregister(descriptor)
        self._watched = watched
        for descriptor in watched:
            self._epoll.register(descriptor, select.EPOLLIN)
