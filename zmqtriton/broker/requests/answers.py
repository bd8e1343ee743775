"""The way out of every request: it is finished once, and its replies go to the peer that made it.

Other parts decide the answer. If a model preserves the order of its requests, replies wait here for
the replies of earlier requests. A traced request's span is sent before its answer; for other
requests tracing costs a look at one field.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial

from zmqtriton.broker.requests.deadlocks import Deadlocks
from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton.broker.requests.response_order import Addressed
from zmqtriton.broker.scheduling.generation import BrokerGeneration
from zmqtriton.broker.state import BrokerPart, BrokerState
from zmqtriton_floor import spans, wire
from zmqtriton_floor.errors import OVERLOADED, Cancelled, ProtocolError, Unavailable, ZmqTritonError
from zmqtriton_floor.execution_progress import RequestKey

CANCELLED = Cancelled("request was cancelled")


class Answers(BrokerPart):
    def __init__(self, state: BrokerState, deadlocks: Deadlocks) -> None:
        super().__init__(state)
        self._deadlocks = deadlocks
        #: Sender of spans; None before the Bootstrap has come.
        self.spans: spans.SpanSender | None = None
        #: Called when a retired generation has answered everything.
        self.on_drained: Callable[[BrokerGeneration], None]
        #: The places of answered requests whose answers are kept back.
        self._kept_back: dict[RequestKey, int] = {}

    def _send_span(self, request: InflightRequest, sender: spans.SpanSender) -> None:
        generation, asker = request.generation, self._peers.get(request.peer)
        marks = [
            ("REQUEST_START", request.arrived_ns),
            ("QUEUE_START", request.arrived_ns),
            ("REQUEST_END", time.monotonic_ns()),
        ]
        span = {
            "parent": spans.span_of(request.parent_span),
            "is_root": asker is not None and asker.role != "stub",
            "model": generation.model,
            "version": generation.version,
            "executed": request.stub != 0,
            "marks": marks,
        }
        if request.error:
            span["error"] = request.error
        sender.send(request.trace, span)

    def reply(self, request: InflightRequest, reply: wire.Reply, body: bytes) -> None:
        """Send a response, or the end of a stream; if final, the request has been finished."""
        order = request.generation.order
        if order is None:
            self._outbox.replies.setdefault(request.peer, []).append((reply, body))
        else:
            leaving = order.pass_on((request.peer, reply, body))
            if not leaving and reply.flags & wire.FINAL:
                self._kept_back[request.key] = self._begun.add(request.key)
            self._send_kept(leaving)

    def _send_kept(self, leaving: Iterable[Addressed]) -> None:
        """Send replies that may have been kept back."""
        for peer, reply, body in leaving:
            self._send(peer, reply, body)
            place = self._kept_back.pop((peer, reply.id), None)
            if place is not None:
                self._outbox.once_delivered.append(partial(self._begun.remove, place))

    def reply_early(self, request: InflightRequest, error: ZmqTritonError) -> None:
        """Send the asking peer the end of its request early; the final reply follows later.

        The inputs belong to the stub until then.
        """
        if self._deadlocks.open_calls:
            self._deadlocks.discard(request)
        reply = wire.Reply(request.id, error.number, error.text, wire.ABANDONED)
        self._send(request.peer, reply, b"")

    def reject(self, peer: int, own_id: int, error: ZmqTritonError) -> None:
        """Refuse a request that was never admitted."""
        refusal = wire.Reply(own_id, error.number, error.text, wire.FINAL, error.retry_after_ms)
        self._send(peer, refusal, b"")

    def leave_order(self, request: InflightRequest) -> None:
        """Take a request out of the order, so that no other answer waits for its answer."""
        order = request.generation.order
        if order is not None:
            self._send_kept(order.leave(request.key))

    def _send(self, peer: int, reply: wire.Reply, body: bytes) -> None:
        self._outbox.replies.setdefault(peer, []).append((reply, body))

    def finish(self, request: InflightRequest) -> None:
        """End a request: it is no longer counted or kept by any part."""
        generation = request.generation
        instance = self._instances.get(request.stub)
        if instance is not None:
            instance.open_requests.pop(request.key, None)
        if self._deadlocks.open_calls:
            self._deadlocks.discard(request)
        if request.parent_span and self.spans is not None:
            self._send_span(request, self.spans)
        request.answer()
        if generation.has_sequences:
            scheduler = self._generations.schedulers.get(generation.number)
            if scheduler is not None and scheduler.sequences is not None:
                scheduler.sequences.finish_request(request)
        limits = self._limits
        limits.unanswered -= 1
        limits.unanswered_bytes -= request.size
        generation.unanswered -= 1
        peer = self._peers.get(request.peer)
        if peer is not None:
            del peer.requests[request.id]
        if request.retained_blocks:
            self._blocks.release(wire.BROKER, request.retained_blocks)
        if generation.is_retired:
            self.check_drained(generation)

    def check_drained(self, generation: BrokerGeneration) -> None:
        """Notify the supervisor once a retired generation has answered all requests."""
        scheduler = self._generations.schedulers.get(generation.number)
        is_over = scheduler is None or not scheduler.sequence_count
        if not is_over and self._generations.has_successor(generation):
            return  # their next requests still come here
        if not generation.unanswered and not generation.is_drained:
            generation.is_drained = True
            self._outbox.supervisor.append(wire.Drained(generation.number))
            self.on_drained(generation)


def overload_error(request: InflightRequest) -> Unavailable:
    """Return the refusal of a request whose queue is full; its text has the client's request id."""
    try:
        named = wire.decode_request(request.body).request_id
    except ProtocolError:
        named = ""
    text = f"[request id: {named or '<id_unknown>'}] {OVERLOADED}"
    model = request.asked_of  # only a model that asks does so by name
    where = f"Model {model} - Error when running inference: " if isinstance(model, str) else ""
    return Unavailable(where + text)
