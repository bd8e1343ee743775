"""The responses owed to a request: in default mode one. streams.py knows the decoupled mode.

An OpenRequest is one request from its arrival to its final outcome. The loop sends responses that
execute() returns; an InferenceResponseSender sends others, from any thread. Every request gets its
final outcome, even if the model forgets it.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, Callable, Collection, List, Protocol, Sequence, Tuple

from zmqtriton_floor import wire
from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.errors import InternalError, ZmqTritonError
from zmqtriton_floor.mappings import REGIONS_FROM
from zmqtriton_floor.wire import Outcome, ResponseBody, encode_body, make
from zmqtriton_stub import instance as this_process
from zmqtriton_stub import request_log
from zmqtriton_stub.api.errors import TritonModelException, clip
from zmqtriton_stub.api.inference import InferenceRequest, InferenceResponse
from zmqtriton_stub.api.tensor import packed
from zmqtriton_stub.broker.model_metrics import LinkToBroker
from zmqtriton_stub.broker.unconfirmed_answers import UnconfirmedAnswers
from zmqtriton_stub.execution.implicit_state import changed_states, keep_states
from zmqtriton_stub.execution.response_counts import ResponseCounter
from zmqtriton_stub.memory.tensor_forwarding import ForwardedTensor

#: A row of Results and its body.
OutcomeWithBody = Tuple[wire.Outcome, bytes]

INTERNAL = InternalError.number

# One lock for all requests, which is held for a few steps only. Reentrant, since a destructor that
# the garbage collector runs during them may need it, for another request.
state_lock = threading.RLock()


class ResponseLink(LinkToBroker, Protocol):
    """The connection to the broker, as seen by a request."""

    instance: this_process.StubInstance
    #: Every request without a final outcome, by peer and id.
    pending: dict[tuple[int, int], Any]
    #: Answers that the broker may not have passed on yet.
    answered: UnconfirmedAnswers
    #: Counts the responses of streams.
    tallies: ResponseCounter
    #: Executions after which the process is looked at next; 0 after an error of the model.
    look_after: int

    def send(self, message: list[bytes]) -> None: ...

    def postpone(self, step: Callable[[], None]) -> None: ...

    def tell_tallies(self) -> None: ...


class OpenRequest:
    """A request in this process without a final outcome."""

    #: Outcomes may refer to the memory of other processes, since they leave at once, while that
    #: memory is sure to be kept.
    _passes_on = True
    _LOSS = "The model let go of a request without a response to it."

    __slots__ = (
        "_count",
        "_done",
        "_is_closed",
        "_link",
        "blocks",
        "body",
        "has_run",
        "held",
        "holds_inputs",
        "is_answered",
        "is_cancelled",
        "is_rescheduled",
        "left_inputs",
        "loss",
        "outputs",
        "places",
        "request_id",
        "route",
        "senders",
        "states",
        "wants_again",
        "work",
    )

    def __init__(self, link: ResponseLink, work: wire.BatchedRequest, body: bytes) -> None:
        self._link = link
        self.work = work
        #: The request's body, until it is decoded.
        self.body = body
        #: The blocks of the inputs; they belong to the requester, which keeps them until the final
        #: outcome.
        self.blocks: Sequence[wire.Block] = ()
        #: Keeps leases of others' memory until the outcome is sent that passes it on.
        self.held: list[Any] | None = None
        #: True if leases of the inputs were reported to the next broker. This process then releases
        #: them, since the process that sent the inputs, or keeps them for it, may have died with
        #: the last broker.
        self.holds_inputs = False
        #: Blocks of inputs with such leases, from the final outcome until it is sent.
        self.left_inputs: list[wire.Block] | None = None
        #: The requested names; none means all of the configuration.
        self.outputs: Sequence[str] = ()
        #: Places in clients' memory for outputs, which are written there and do not travel.
        self.places: Sequence[wire.Place] = ()
        self.route = work[1:3]
        self.request_id = ""
        self.is_cancelled = False
        #: The final outcome is sent, or about to be.
        self.is_answered = False
        #: The model may send nothing more.
        self._is_closed = False
        self._count = self._done = 0
        #: Number of the model's senders that can still answer.
        self.senders = 0
        #: The model has asked for another execution after this one.
        self.wants_again = False
        #: True if the request was executed, and waits at the broker to be executed again.
        self.is_rescheduled = False
        self.has_run = False
        #: The states of its sequence, by input; None if there are none.
        self.states: dict[str, wire.Tensor] | None = None
        #: Text of the error if the model has no sender left that could answer.
        self.loss = self._LOSS

    @property
    def requested_outputs(self) -> Collection[str]:
        """The outputs to send; without requested names, all."""
        return self.outputs or self._link.instance.outputs

    def is_cancelled_now(self) -> bool:
        """Return whether the request was cancelled, after reading the broker's messages."""
        line = self._link.instance.line
        if line is not None:
            return self.is_cancelled or line.is_cancelled(self.route)
        if not self.is_cancelled:
            self._link.poll()
            self._link.turn()
        return self.is_cancelled

    def tell_progress(self, done: int) -> None:
        """Report progress in parts of 1000, if the client follows it."""
        is_followed = self.work.flags & wire.WANT_STAGES and self._link.instance.line is None
        if is_followed and done != self._done and not self.is_answered:
            self._done = done
            self._link.send([wire.encode(wire.Progress(*self.route, done))])

    def trace_context(self) -> tuple[str, int, str]:
        return self._link.instance.tracing.context_of(self.work)

    def make_sender(self) -> InferenceResponseSender:
        with state_lock:
            self.senders += 1
        return InferenceResponseSender(self)

    def is_behind(self) -> bool:
        """Return whether a response would wait here until the reader has taken others."""
        return False

    def is_in_doubt(self) -> bool:
        """Return whether responses that the reader has not taken may have died with a broker."""
        return False

    def begin(self, now_ns: int) -> None:
        """Do nothing: only a stream, whose responses are timed, needs the time of its begin."""

    def cancel(self) -> None:
        """Mark the request as abandoned: its client has left.

        The stub still answers it, unless it waits to be rescheduled: the broker has answered that.
        """
        self.is_cancelled = True
        if self.is_rescheduled:
            with state_lock:
                self.is_answered = True
                self._link.pending.pop(self.route, None)
            self.leave_inputs()
            self.release_inputs()

    # --------------------------------------------------- executed more than once

    def reschedule(self) -> bool:
        """Prepare to get the request again under the same key; False if it is over."""
        with state_lock:
            if self.is_answered or self._is_closed:
                return False
            self.is_rescheduled = self.has_run = True
            return True

    def resume(self, work: wire.BatchedRequest, body: bytes) -> None:
        """Continue with the request that the broker has sent again, for its next execution."""
        self.work, self.body = work, body
        self.wants_again = self.is_rescheduled = False

    def release(self) -> None:
        """Drop the execution that the model had asked for; end the request if it has no sender."""
        self.wants_again = False
        if not self.senders:
            self.drop()

    # ------------------------------------------------------------ answering

    def accept(self, *, has_response: bool = True, flags: int = wire.FINAL) -> None:
        """Count a response. Raises with Triton's text if it may not be sent."""
        with state_lock:
            if has_response and self._count:
                raise TritonModelException(
                    "Unable to send response. Non-decoupled model cannot send more than one "
                    "response."
                )
            if not has_response and not self._count:
                raise TritonModelException(
                    "Unable to send response. Non-decoupled model cannot send complete final "
                    "before sending a response."
                )
            if self._is_closed:
                raise TritonModelException(
                    "Unable to send response. Response sender has been closed."
                )
            self._is_closed = bool(flags)
            self._count += 1

    def encode(self, response: InferenceResponse, flags: int = wire.FINAL) -> OutcomeWithBody:
        """Return the response as an outcome, without outputs that were not requested."""
        peer, own_id = self.route
        error = response._error
        if error is not None:
            self._link.look_after = 0
            return Outcome(peer, own_id, error.number, clip(error.message()), flags), b""
        instance = self._link.instance
        outputs: Collection[str] = self.outputs or instance.outputs
        sendable, memory = instance.sendable, instance.memory
        tensors, is_inline = [], True
        for tensor in response._output_tensors:
            is_declared = sendable.get(tensor._name) == tensor._datatype
            if sendable and (not is_declared or instance.declared_shapes):
                instance.check_outputs(response)
            if not outputs or tensor._name in outputs:
                tensors.append(packed(tensor))
                data = tensors[-1][3]
                is_inline = is_inline and type(data) is bytes and len(data) <= INLINE_BYTES
        if self.work.trace or this_process.log_options.verbose:
            self._record(tensors)
        blocks: list[wire.Block] = []
        try:
            reshaping = instance.reshaping
            tensors = tensors if reshaping is None else reshaping.for_client(tensors)
            if memory is not None:
                if self.places and not self.is_cancelled:
                    tensors = memory.regions.store(self.places, tensors)
                if not is_inline:
                    tensors, blocks = memory.place(
                        tensors, self._find if self._passes_on else None, self.work.flags
                    )
        except ZmqTritonError as full:
            return Outcome(peer, own_id, full.number, clip(full.text), flags), b""
        answer = make(Outcome, (peer, own_id, 0, "", flags, 0, blocks))
        return answer, encode_body(make(ResponseBody, (response._parameters, tensors)))

    def _record(self, tensors: list[wire.Tensor]) -> None:
        """Record a response in the log and in the trace, if they are on."""
        instance = self._link.instance
        if this_process.log_options.verbose:
            request_log.answered(instance, tensors)
        if self.work.trace:
            instance.tracing.answered(self, tensors)

    def _find(self, data: Any) -> ForwardedTensor | None:
        memory = self._link.instance.memory
        assert memory is not None
        if self.held is None:
            self.held = []
        return memory.passing.to_asker(data, self.blocks, self.held)

    def withdraw(self, answer: OutcomeWithBody) -> None:
        """Release the blocks that an unsent response refers to."""
        blocks, memory = answer[0].blocks, self._link.instance.memory
        self.held = None
        if blocks and memory is not None:
            memory.free(blocks)

    def hold_inputs(self) -> list[wire.Block]:
        """Keep the request's input blocks after the death of the broker; return them."""
        self.holds_inputs = True
        return _in_arenas(self.blocks)

    def leave_inputs(self) -> None:
        """Leave the inputs: after the final outcome the requester may reuse their memory."""
        memory = self._link.instance.memory
        with state_lock:  # a sender's thread and the loop may come to it together
            blocks, self.blocks = self.blocks, ()
            if blocks and memory is not None:
                leased = memory.leave(blocks)
                if leased:
                    self._link.send([wire.encode(wire.Lease(leased))])
                if self.holds_inputs:
                    self.left_inputs = _in_arenas(blocks)

    def release_inputs(self) -> None:
        """Release inputs of a lost request: an outcome that refers to them has been sent."""
        blocks, self.left_inputs = self.left_inputs, None
        memory = self._link.instance.memory
        if blocks and memory is not None:
            memory.release(blocks)

    def finish(self, answer: OutcomeWithBody) -> None:
        """Finish: the final outcome is on its way."""
        link = self._link
        outcome, body = answer
        with state_lock:
            self.is_answered = True
            # what is passed on is not ours to keep for another broker
            link.answered.add(outcome, body, is_lasting=not self.held)
            link.pending.pop(self.route, None)
            memory = link.instance.memory if outcome.blocks else None
            if memory is not None:
                memory.arena.leases.send(memory.own(outcome.blocks))

    def fail(self, text: str, code: int = INTERNAL) -> list[OutcomeWithBody]:
        """Finish with an error; return the outcome, which the caller sends."""
        self._is_closed = True
        answer = wire.Outcome(*self.route, code, clip(text), wire.FINAL), b""
        self.finish(answer)
        return [answer]

    def send(self, response: InferenceResponse | None, flags: int, *, waits: bool = False) -> None:
        """Send a response of the model; any thread may call this. Only streams can wait here."""
        # the first response is the last, so nobody need wait for the flag
        changes = changed_states(self._link.instance.states, self, response)
        answer = None if response is None else self.encode(response)
        is_sent = False
        try:
            with state_lock:
                self.accept(has_response=response is not None, flags=flags)
                if answer is not None and not self.is_answered:
                    is_sent = True
                    keep_states(self, changes)
                    self.finish(answer)
                    self._send(answer)
        finally:
            if answer is not None and not is_sent:
                self.withdraw(answer)

    def let_go(self, *, waits: bool = False) -> None:
        """Count down the senders, and end the request with the last one.

        A destructor must not wait for the lock: its thread may hold what the lock's holder waits
        for.
        """
        if not state_lock.acquire(waits):
            self._link.postpone(partial(self.let_go, waits=True))
            return
        try:
            self.senders -= 1
            is_last = not self.senders and not self.is_rescheduled
            # one that is about to be rescheduled gets another sender
            if is_last and not (self.wants_again and self._link.instance.is_iterative):
                self.drop()
        finally:
            state_lock.release()

    def drop(self) -> None:
        """End the request with an error, because the model has no sender for it any more."""
        with state_lock:
            if self.is_answered or self._link.is_closed:
                return
            text = self._link.instance.failure(self.loss)
            for answer in self.fail(text):
                self._send(answer)
        self._link.instance.log("W", text)

    def _send(self, answer: OutcomeWithBody) -> None:
        outcome, body = answer
        self.leave_inputs()
        self._link.send([wire.encode(wire.Results([outcome], [])), body])
        self.held = None
        self.release_inputs()


class RequestBatch(List[OpenRequest]):
    """The requests of one execute(), until all their answers are sent or left to their senders."""

    # without an __init__(): one is made for nearly every request
    __slots__ = (
        "answers",
        "ids",
        "is_traced",
        "number",
        "requests",
        "times_ns",
    )

    #: The broker's number; 0 for samples of the warm-up.
    number: int
    #: Answers for the broker when the batch is over; set, as the rest is, when it is begun.
    answers: list[OutcomeWithBody]
    #: When it was begun, when its requests were ready, and when execute() had returned.
    times_ns: list[int]
    #: Requests that the model was given, until it is clear which are left to their senders.
    requests: list[InferenceRequest]
    #: The ids of the requests, if the log shows them.
    ids: Sequence[str]
    #: One of the requests is.
    is_traced: bool


def _in_arenas(blocks: Sequence[wire.Block]) -> list[wire.Block]:
    """Return the blocks that have leases: those in regions of clients have none."""
    return [block for block in blocks if block.segment < REGIONS_FROM]


class InferenceResponseSender:
    """Sends the responses to one request, from any thread."""

    __slots__ = ("__weakref__", "_pending")

    def __init__(self, pending: OpenRequest) -> None:
        self._pending = pending

    def send(
        self, response: InferenceResponse | None = None, flags: int = 0, *, waits: bool = False
    ) -> None:
        """Send a response; the last one, or none, with TRITONSERVER_RESPONSE_COMPLETE_FINAL.

        Not in Triton's API: a response that `waits` is sent with the next one that does not, of any
        sender, or by flush(). Many simultaneous responses cost less so.
        """
        if flags not in (0, wire.FINAL):
            raise TritonModelException("Unable to send response. Unsupported flag provided.")
        if response is None and not flags:
            raise TritonModelException(
                "Inference Response object must be provided when the response flags is set to zero."
            )
        if response is not None and not isinstance(response, InferenceResponse):
            raise TypeError(f"response must be an InferenceResponse, got {type(response)}")
        line = self._pending._link.instance.line
        if line is None:
            self._pending.send(response, flags, waits=waits)
        else:
            line.send(self._pending.route, response, flags)

    def is_cancelled(self, *, looks: bool = True) -> bool:
        """Return whether the client no longer waits for the response.

        Not in Triton's API: if many senders are asked, one call with `looks` reads news for all.
        """
        return self._pending.is_cancelled_now() if looks else self._pending.is_cancelled

    def is_behind(self) -> bool:
        """Return whether the next response would wait here because the client reads too slowly.

        Not in Triton's API. In a fork of the model it is always False.
        """
        return self._pending.is_behind()

    def is_in_doubt(self) -> bool:
        """Return whether responses may have died with a broker, which is not the client's fault.

        Not in Triton's API. The doubt ends within seconds, by a cancellation if responses are lost.
        """
        return self._pending.is_in_doubt()

    def flush(self) -> None:
        """Send responses that wait. Not in Triton's API."""
        if self._pending._link.instance.line is None:  # in a fork of the model none waits
            self._pending._link.turn()

    def __del__(self) -> None:
        self._pending.let_go()
