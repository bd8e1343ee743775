"""Batches in execute(): from their arrival to the answers, at once or later.

The loop hands batches over, in the main thread. If execute() is a coroutine that may overlap with
others, its batch ends with the coroutine. Knows nothing of waiting; responses.py knows which
responses a request must still get.
"""

from __future__ import annotations

import gc
import sys
import time
from itertools import repeat
from typing import Any

import numpy as np

from zmqtriton_floor.datatypes import BY_NUMBER, count_elements
from zmqtriton_floor.errors import (
    Cancelled,
    InternalError,
    InvalidArgument,
    Unavailable,
    ZmqTritonError,
)
from zmqtriton_floor.execution_progress import ProgressView
from zmqtriton_floor.signature import Signature
from zmqtriton_floor.wire import (
    BROKER,
    MAX_HEADER_BYTES,
    PADDING,
    UNCHECKED,
    UNREAD_STRINGS,
    Executed,
    RequestBody,
    RequestKey,
    Results,
    Tensor,
    decode_request,
    encode,
    encode_rows,
)
from zmqtriton_stub import instance as this_process
from zmqtriton_stub import request_log
from zmqtriton_stub.api.callers import served
from zmqtriton_stub.api.errors import CANCELLED, TritonModelException, describe
from zmqtriton_stub.api.inference import (
    InferenceRequest,
    InferenceResponse,
    no_response,
    received,
)
from zmqtriton_stub.broker.connection import BrokerConnection
from zmqtriton_stub.execution.implicit_state import changed_states, keep_states
from zmqtriton_stub.execution.responses import (
    OpenRequest,
    OutcomeWithBody,
    RequestBatch,
    state_lock,
)
from zmqtriton_stub.memory import gpu
from zmqtriton_stub.memory.growth import GrowthWatch
from zmqtriton_stub.memory.tensor_forwarding import check_placed
from zmqtriton_stub.model import NoRoomToWakeError, PythonModel, Responses
from zmqtriton_stub.own_process import OwnProcess

_now_ns = time.monotonic_ns
#: Messages of the broker are looked for in this interval while batches wait.
_LOOK_EVERY_NS = 1_000_000

#: Flags of requests whose inputs no other process has checked, or not all of them.
_TO_CHECK = UNCHECKED | UNREAD_STRINGS
_NO_RESPONSE = str(no_response(None))


class Executions:
    """All batches that this process executes."""

    def __init__(
        self,
        instance: this_process.StubInstance,
        model: PythonModel,
        link: BrokerConnection,
        progress: ProgressView,
        *,
        process: OwnProcess | None = None,
    ) -> None:
        """Set up; without `process`, its memory and GPUs are not watched."""
        self._instance = instance
        self._model = model
        self._link = link
        self._progress = progress
        self._growth = GrowthWatch()
        self._process = process
        if process is None or not process.has_own_memory:
            self._growth.due = sys.maxsize
        self._count, link.look_after = 0, self._growth.due
        #: When to look for messages of the broker although batches wait here.
        self._look_at_ns = 0
        #: The instance is free for the next batch while coroutines of earlier ones go on.
        self._is_free_at_once = instance.is_decoupled and not instance.max_inflight
        #: Tasks of those batches whose execute() is a coroutine among others, by number of the
        #: batch.
        self.tasks: dict[int, Any] = {}

    @property
    def running(self) -> int:
        """The number of batches in execution, which the broker waits for."""
        return len(self._link.executing)

    def pending(self) -> list[OpenRequest]:
        """The open requests of the batches in execution."""
        return [pending for batch in list(self._link.executing.values()) for pending in batch]

    def _unsettled(self) -> list[tuple[int, int]]:
        """Return the open requests, and those whose answers the broker may not have passed on."""
        with state_lock:
            return [*self._link.answered.keys(), *self._link.pending]

    def begin(self, batch: RequestBatch) -> bool:
        """Execute a batch; False, with nothing done, if the broker that has sent it was replaced.

        Every request gets its final answer here, or later from its sender.
        """
        instance, number, keys = self._instance, batch.number, []
        for pending in batch if number else ():  # samples of the warm-up are nobody's
            keys.append(pending.route)
        if not self._progress.begin(number, keys, self._unsettled):
            return False
        begun_ns = _now_ns()
        batch.answers, batch.ids = [], ()
        self._link.executing[number] = batch
        requests = _requests(batch, instance)
        # the model may do with its list what it likes
        batch.requests = requests.copy()
        if this_process.log_options.verbose:
            batch.ids = request_log.begun(instance, requests)
        if batch.is_traced:
            instance.tracing.begun(requests)
        ready_ns = _now_ns()
        batch.times_ns = [begun_ns, ready_ns, ready_ns]
        for pending in batch if instance.is_decoupled else ():
            pending.begin(ready_ns)
        outer = served.set(batch)
        try:
            returned = self._model.execute(requests) if requests else []
            requests = []
            if returned is not None and type(returned) is not list:
                self._await(batch, returned)
                return True
            batch.times_ns[2] = _now_ns()
            self._answer(batch, returned)
            returned = []  # it may hold inputs, which would have to be kept
        except BaseException as error:  # noqa: BLE001 - the model's code may raise anything
            self._fail(batch, error)
        finally:
            served.reset(outer)
        self._leave(batch, self._reschedule(batch) if instance.is_iterative else [])
        return True

    # ------------------------------------------------------------ coroutines

    def _await(self, batch: RequestBatch, task: Any) -> None:
        """End the batch when the task does."""
        if self._instance.is_decoupled:
            # from here on whoever lets go of a request ends it
            self._answer(batch, None)
        if self._is_free_at_once:
            batch.times_ns[2] = _now_ns()
            self._leave(batch, [])
        else:
            self.tasks[batch.number] = task
        task.add_done_callback(lambda done: self._ended(batch, done))
        # nothing may have been sent that would have led to what has come meanwhile
        self._link.turn()

    def _ended(self, batch: RequestBatch, task: Any) -> None:
        # the event loop runs while the right to rounds is lent
        self._model.watch.claim()
        try:
            if not self._link.is_closed:
                self._end_task(batch, task)
        finally:
            self._model.watch.give_back()

    def _end_task(self, batch: RequestBatch, task: Any) -> None:
        if not self._is_free_at_once:
            batch.times_ns[2] = _now_ns()
        try:
            returned = self._model.check(task.result(), len(batch.requests))
            if self._instance.is_decoupled:
                for pending in [each for each in batch if each.wants_again]:
                    self._check_again(batch, pending, None)
            else:
                self._answer(batch, returned)
        except BaseException as error:  # noqa: BLE001 - the model's code, or that it was cancelled
            if self._instance.is_decoupled:
                self._complain(batch, error)
            else:
                self._fail(batch, error)
        routes = self._reschedule(batch)
        if not self._is_free_at_once:
            self._leave(batch, routes)
        elif routes:
            self._link.send([encode(Results([], [], routes))])

    def _complain(self, batch: RequestBatch, error: BaseException) -> None:
        """Log the error, as Triton does, and send no answer.

        A request without a sender ends with this error.
        """
        text, self._link.look_after = describe(error), 0
        self._instance.report_failure(text, error)
        for pending in batch:
            pending.loss = text
            pending.release()
        error.__traceback__ = None  # it holds what the coroutine held
        if any(not pending.is_answered for pending in batch):
            gc.collect()  # senders may be in circles with what is over

    # --------------------------------------------------------------- the end

    def _answer(self, batch: RequestBatch, responses: Responses | None) -> None:
        """Add the answers to what execute() returned; all or, with an exception, none of them.

        None instead of a list leaves all responses to the senders.
        """
        requests, batch.requests = batch.requests, []
        states, answers = self._instance.states, batch.answers
        encoded: list[tuple[OpenRequest, OutcomeWithBody, Any]] = []
        try:
            for request, response in zip(
                requests, repeat(None) if responses is None else responses
            ):
                # what the API knows by its protocol was made here
                pending: OpenRequest | None = request._pending  # type: ignore[assignment]
                if pending is None or (pending.is_answered and response is None):
                    continue
                if pending.wants_again:
                    self._check_again(batch, pending, response)
                if response is not None:
                    pending.accept()
                    changes = changed_states(states, pending, response) if states else None
                    encoded.append((pending, pending.encode(response), changes))
                elif not (pending.wants_again or pending.is_answered):
                    _leave_to_sender(pending, request, is_owed=responses is not None)
        except BaseException:
            for pending, answer, _ in encoded:
                pending.withdraw(answer)
            raise
        for pending, answer, changes in encoded:
            if changes:
                keep_states(pending, changes)
            pending.finish(answer)
            answers.append(answer)

    def _check_again(
        self, batch: RequestBatch, pending: OpenRequest, response: InferenceResponse | None
    ) -> None:
        """Refuse to reschedule a request if the model is not iterative.

        Raises if the model has also returned a response to it.
        """
        if response is not None:
            raise TritonModelException(
                "Expected a None object in the execute function return list for reschduled "
                f"request, found type '{type(response)}'."
            )
        if self._instance.is_iterative:
            return
        text = self._instance.report_failure(
            "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is "
            "not configured to handle such a flag."
        )
        pending.wants_again = False
        if not self._instance.is_decoupled:
            batch.answers += pending.fail(text)

    def _reschedule(self, batch: RequestBatch) -> list[RequestKey]:
        """Return the requests to be executed once more; none if the model may not ask for it."""
        return [
            RequestKey(*pending.route)
            for pending in batch
            if pending.wants_again and pending.reschedule()
        ]

    def _fail(self, batch: RequestBatch, error: BaseException) -> None:
        text, number, self._link.look_after = describe(error), InternalError.number, 0
        if isinstance(error, NoRoomToWakeError):
            number = Unavailable.number
        else:
            text = self._instance.report_failure(text, error)
        batch.requests = []
        for pending in batch:
            if not pending.is_answered:
                batch.answers += pending.fail(text, number)

    def _leave(self, batch: RequestBatch, rescheduled: list[RequestKey]) -> None:
        """Leave the instance free for another batch."""
        for pending in batch:
            if pending.blocks and pending.is_answered:  # and nothing of ours reads them any more
                pending.leave_inputs()
        link, number, done_ns = self._link, batch.number, _now_ns()
        begun_ns, ready_ns, executed_ns = batch.times_ns
        times = ready_ns - begun_ns, executed_ns - ready_ns, done_ns - executed_ns, begun_ns
        if self._instance.measures.changes:
            self._instance.measures.flush()  # whoever has the answer finds them
        if batch.is_traced or batch.ids:
            self._record(batch, done_ns)
        outcomes, frames = [], [b""]
        for outcome, body in batch.answers:
            outcomes.append(outcome)
            frames.append(body)
        batch.answers = []
        link.executing.pop(number, None)
        self.tasks.pop(number, None)
        frames[0] = encode_rows(Results, outcomes, [(number, *times)], rescheduled, "")
        if len(frames[0]) <= MAX_HEADER_BYTES:
            link.put(frames)
        else:
            self._put_in_parts(
                Results(outcomes, [Executed(number, *times)], rescheduled), frames[1:]
            )
        # batches that are here already may be short, and a look costs as much as one of them
        takes = not link.batches or done_ns >= self._look_at_ns
        self._look_at_ns = done_ns + _LOOK_EVERY_NS if takes else self._look_at_ns
        link.turn(takes=takes)
        # the outcomes, which may refer to that memory, have been sent
        for pending in batch:
            pending.held = None
            if pending.left_inputs:
                pending.release_inputs()
        self._count += 1
        if self._count >= link.look_after:
            self._look_at_process()

    def _look_at_process(self) -> None:
        """Look at the memory if that is due, and ask CUDA after a failure."""
        if self._process is not None and (error := gpu.fatal_error()):
            self._process.give_up(f"{error}: all work of this process on the GPU fails from now on")
        changed = self._growth.look(self._count) if self._count >= self._growth.due else None
        self._link.look_after = self._growth.due
        if changed is not None:
            self._instance.tell(changed)

    def _put_in_parts(self, results: Results, bodies: list[bytes]) -> None:
        """Queue results that may have too many and too long error texts for one message."""
        header = encode(results)
        if len(header) <= MAX_HEADER_BYTES or len(bodies) < 2:
            self._link.put([header, *bodies])
            return
        middle = len(bodies) // 2
        first, second = results.outcomes[:middle], results.outcomes[middle:]
        self._put_in_parts(Results(first, []), bodies[:middle])
        self._put_in_parts(results._replace(outcomes=second), bodies[middle:])

    def _record(self, batch: RequestBatch, done_ns: int) -> None:
        """Record an execution in the trace and in the log."""
        if batch.is_traced:
            names = "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END"
            self._instance.tracing.executed(batch, [*zip(names, [*batch.times_ns, done_ns])])
        if batch.ids:
            request_log.released(self._instance, batch.ids)


def _requests(batch: RequestBatch, instance: this_process.StubInstance) -> list[InferenceRequest]:
    """Return the batch as the model sees it; requests that do not decode or fit are answered."""
    requests, memory, is_traced = [], instance.memory, False
    for pending in batch:
        work = pending.work
        flags = work.flags
        is_traced = is_traced or work.trace != ""
        if pending.is_cancelled:  # while it waited here
            batch.answers += pending.fail(CANCELLED, Cancelled.number)
            continue
        try:
            body = decode_request(pending.body)
            request_id, parameters, pending.outputs, inputs, pending.places = body
            pending.request_id = request_id
            if memory is not None:
                if flags & UNCHECKED:
                    check_placed(inputs, flags)
                    # only frontends lend the memory of clients
                    pending.places = () if work.peer else pending.places
                for row in inputs:
                    if type(row[3]) is not bytes:
                        inputs, pending.blocks = memory.open(
                            inputs, is_leased=False, takes_gpu=instance.takes_gpu
                        )
                        break
            if flags & _TO_CHECK and instance.signature is not None:
                count = len(inputs) - instance.controls
                _check(pending, body._replace(inputs=inputs[:count]), instance.signature)
            if instance.states is not None or instance.reshaping is not None or flags & PADDING:
                inputs = _for_model(pending, inputs, batch, instance)
        except ZmqTritonError as error:
            batch.answers += pending.fail(error.text, error.number)
            continue
        pending.body = b""
        requests.append(received(pending, request_id, parameters, inputs))
    batch.is_traced = is_traced
    return requests


def _for_model(
    pending: OpenRequest,
    inputs: list[Tensor],
    batch: RequestBatch,
    instance: this_process.StubInstance,
) -> list[Tensor]:
    """Return the inputs with zeros, in the model's shapes, and with states."""
    if pending.work.flags & PADDING:
        inputs = [_zeros(tensor) for tensor in inputs]
    if instance.reshaping is not None:
        inputs = instance.reshaping.for_model(inputs)
    if instance.states is not None:
        inputs = instance.states.give(pending, inputs, batch)
    return inputs


def _zeros(tensor: Tensor) -> Tensor:
    """Return the tensor with zeros for missing data; an empty string has four zeros."""
    if tensor.data:
        return tensor
    size = count_elements(tensor.shape) * (BY_NUMBER[tensor.datatype].size or 4)
    return tensor._replace(data=np.zeros(size, np.uint8).data)


def _check(pending: OpenRequest, body: RequestBody, signature: Signature) -> None:
    """Raise InvalidArgument if a model's or ensemble's request does not fit this model."""
    try:
        signature.check(body)
    except InvalidArgument as error:
        if pending.work.peer == BROKER or not pending.work.flags & UNCHECKED:
            raise
        where = f"Model {signature.model} - Error when running inference: "
        raise InvalidArgument(where + error.text) from None


def _leave_to_sender(pending: OpenRequest, request: InferenceRequest, *, is_owed: bool) -> None:
    """Leave a request to its sender; `is_owed` if execute() should have returned a response."""
    if is_owed:
        pending.loss = _NO_RESPONSE
    # made now, so that its end answers if nobody keeps the request
    request.get_response_sender()
