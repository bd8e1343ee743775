"""The way out of every request: it is finished once, and its replies go to whoever asked.

Called by the core, which has decided what the answer is. Where a model keeps the order of its
requests, replies wait here for those before them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from zmqtriton.broker.requests.inflight import Inflight
from zmqtriton.broker.requests.response_order import Addressed
from zmqtriton.broker.requests.traces import Traces
from zmqtriton.broker.scheduling.generation import Generation
from zmqtriton_floor import wire
from zmqtriton_floor.errors import OVERLOADED, Cancelled, ProtocolError, Unavailable, ZmqTritonError

if TYPE_CHECKING:
    from zmqtriton.broker.core import Core

CANCELLED = Cancelled("request was cancelled")


class Answers:
    def __init__(self, core: Core) -> None:
        self._core = core
        self.traces = Traces()

    def reply(self, request: Inflight, reply: wire.Reply, body: bytes) -> None:
        """A response, or the end of one; of something finished if it is final."""
        order = request.generation.order
        if order is None:
            self._core.outbox.replies.setdefault(request.peer, []).append((reply, body))
        else:
            self._send(order.pass_on(request, (request.peer, reply, body)))

    def deny(self, peer: int, own_id: int, error: ZmqTritonError) -> None:
        """Something that was never admitted."""
        self._send([(peer, _error_reply(own_id, error), b"")])

    def refuse(self, request: Inflight, error: ZmqTritonError) -> None:
        self.reply(request, _error_reply(request.row.id, error), b"")

    def forgo(self, request: Inflight) -> None:
        """Nobody reads what it is answered, so no other answer has to wait for it."""
        order = request.generation.order
        if order is not None:
            self._send(order.leave(request))

    def _send(self, leaving: Iterable[Addressed]) -> None:
        replies = self._core.outbox.replies
        for peer, reply, body in leaving:
            replies.setdefault(peer, []).append((reply, body))

    def finish(self, request: Inflight) -> None:
        core, generation = self._core, request.generation
        if request.instance is not None:
            request.instance.open.pop(request.route, None)
        if core.circles.asked:
            core.circles.discard(request)
        if request.row.trace:
            asker = core.peers.get(request.peer)
            is_client = asker is not None and asker.role != "stub"
            self.traces.finished(request, is_client=is_client)
        request.answer()
        if generation.sequences is not None:
            generation.sequences.answered(request)
        core.limits.answered(request)
        generation.unanswered -= 1
        peer = core.peers.get(request.peer)
        if peer is not None:
            del peer.requests[request.row.id]
        core.blocks.let_go(request)
        if generation.is_retired:
            self.check_drained(generation)

    def check_drained(self, generation: Generation) -> None:
        sequences, generations = generation.sequences, self._core.generations
        is_over = sequences is None or not sequences.count
        if not is_over and generations.has_successor(generation):
            return  # their next requests come here still
        if not generation.unanswered and not generation.is_drained:
            generation.is_drained = True
            self._core.outbox.supervisor.append(wire.Drained(generation.number))


def _error_reply(own_id: int, error: ZmqTritonError) -> wire.Reply:
    return wire.Reply(own_id, error.number, error.text, wire.FINAL)


def too_many(request: Inflight) -> Unavailable:
    """What a request is told where as many wait as may; with the id that its client gave it."""
    try:
        named = wire.decode_request(request.body).request_id
    except ProtocolError:
        named = ""
    text = f"[request id: {named or '<id_unknown>'}] {OVERLOADED}"
    model = request.row.model  # only a model that asks does so by name
    where = f"Model {model} - Error when running inference: " if model else ""
    return Unavailable(where + text)
