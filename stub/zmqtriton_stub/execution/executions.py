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
from typing import Any, Sequence

import numpy as np

from zmqtriton_floor import wire
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
from zmqtriton_stub import instance as this_process
from zmqtriton_stub import request_log
from zmqtriton_stub.api import callers
from zmqtriton_stub.api.errors import CANCELLED, TritonModelException, describe
from zmqtriton_stub.api.inference import (
    InferenceRequest,
    InferenceResponse,
    no_response,
    received,
)
from zmqtriton_stub.broker.connection import BrokerConnection
from zmqtriton_stub.execution.implicit_state import changed_states, keep_states
from zmqtriton_stub.execution.responses import OpenRequest, OutcomeWithBody, state_lock
from zmqtriton_stub.instance import StubInstance
from zmqtriton_stub.memory.growth import GrowthWatch
from zmqtriton_stub.memory.tensor_forwarding import check_placed
from zmqtriton_stub.model import NoRoomToWakeError, PythonModel, Responses

_now_ns = time.monotonic_ns

#: Flags of requests whose inputs no other process has checked, or not all of them.
_TO_CHECK = wire.UNCHECKED | wire.UNREAD_STRINGS
_NO_RESPONSE = str(no_response(None))
_NOT_ITERATIVE = (
    "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not "
    "configured to handle such a flag."
)


class Execution:
    """One batch, until all its answers are sent or left to the model's senders."""

    __slots__ = (
        "answers",
        "batch",
        "begun_ns",
        "executed_ns",
        "ids",
        "is_traced",
        "number",
        "ready_ns",
        "requests",
    )

    def __init__(self, number: int, batch: list[OpenRequest]) -> None:
        self.number = number
        self.batch = batch
        self.answers: list[OutcomeWithBody] = []
        #: Requests that the model was given, until it is clear which are left to their senders.
        self.requests: list[InferenceRequest] = []
        #: The ids of the requests, if the log shows them.
        self.ids: Sequence[str] = ()
        #: One of the requests is.
        self.is_traced = False
        self.begun_ns = self.ready_ns = self.executed_ns = _now_ns()


class Executions:
    """All batches that this process executes."""

    def __init__(
        self,
        instance: StubInstance,
        model: PythonModel,
        link: BrokerConnection,
        progress: ProgressView,
        *,
        watches_memory: bool = False,
    ) -> None:
        """Set up; `watches_memory` is False if other instances share the process's memory."""
        self._instance = instance
        self._model = model
        self._link = link
        self._progress = progress
        #: The look at the memory: its judgement, the number of executions so far, and the number
        #: after which the memory is looked at next.
        self._growth = GrowthWatch()
        self._count, self._look_after = 0, self._growth.due if watches_memory else sys.maxsize
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

    def begin(self, number: int, batch: list[OpenRequest]) -> bool:
        """Execute a batch; False, with nothing done, if the broker that has sent it was replaced.

        Every request gets its final answer here, or later from its sender.
        """
        keys = []
        for pending in batch if number else ():  # samples of the warm-up are nobody's
            keys.append(pending.route)
        if not self._progress.begin(number, keys, self._unsettled):
            return False
        execution = Execution(number, batch)
        self._link.executing[number] = batch
        requests = _requests(batch, execution.answers, self._instance)
        # the model may do with its list what it likes
        execution.requests = requests.copy()
        if this_process.log_options.verbose:
            execution.ids = request_log.begun(self._instance, requests)
        for pending in batch:
            if pending.work.trace:
                execution.is_traced = True
        if execution.is_traced:
            self._instance.tracing.begun(requests)
        execution.ready_ns = execution.executed_ns = _now_ns()
        for pending in batch if self._instance.is_decoupled else ():
            pending.begin(execution.ready_ns)
        outer = callers.served.set(batch)
        try:
            returned = self._model.execute(requests) if requests else []
            requests = []
            if returned is not None and type(returned) is not list:
                self._await(execution, returned)
                return True
            execution.executed_ns = _now_ns()
            self._answer(execution, returned)
            returned = []  # it may hold inputs, which would have to be kept
        except BaseException as error:  # noqa: BLE001 - the model's code may raise anything
            self._fail(execution, error)
        finally:
            callers.served.reset(outer)
        self._leave(execution, self._reschedule(execution) if self._instance.is_iterative else [])
        return True

    # ------------------------------------------------------------ coroutines

    def _await(self, execution: Execution, task: Any) -> None:
        """End the batch when its task ends."""
        if self._instance.is_decoupled:
            # from here on whoever lets go of a request ends it
            self._answer(execution, None)
        if self._is_free_at_once:
            execution.executed_ns = _now_ns()
            self._leave(execution, [])
        else:
            self.tasks[execution.number] = task
        task.add_done_callback(lambda done: self._ended(execution, done))
        # nothing may have been sent that would have led to what has come meanwhile
        self._link.turn()

    def _ended(self, execution: Execution, task: Any) -> None:
        # the event loop runs while the right to rounds is lent
        self._model.watch.claim()
        try:
            if not self._link.is_closed:
                self._end_task(execution, task)
        finally:
            self._model.watch.give_back()

    def _end_task(self, execution: Execution, task: Any) -> None:
        if not self._is_free_at_once:
            execution.executed_ns = _now_ns()
        try:
            returned = self._model.check(task.result(), len(execution.requests))
            if self._instance.is_decoupled:
                for pending in [each for each in execution.batch if each.wants_again]:
                    self._check_again(execution, pending, None)
            else:
                self._answer(execution, returned)
        except BaseException as error:  # noqa: BLE001 - the model's code, or that it was cancelled
            if self._instance.is_decoupled:
                self._complain(execution, error)
            else:
                self._fail(execution, error)
        routes = self._reschedule(execution)
        if not self._is_free_at_once:
            self._leave(execution, routes)
        elif routes:
            self._link.send([wire.encode(wire.Results([], [], routes))])

    def _complain(self, execution: Execution, error: BaseException) -> None:
        """Log the error of a decoupled model, as Triton does, and send no answer.

        A request without a sender ends with this error.
        """
        text = describe(error)
        self._instance.report_failure(text, error)
        for pending in execution.batch:
            pending.loss = text
            pending.release()
        error.__traceback__ = None  # it holds what the coroutine held
        if any(not pending.is_answered for pending in execution.batch):
            gc.collect()  # senders may be in circles with what is over

    # --------------------------------------------------------------- the end

    def _answer(self, execution: Execution, responses: Responses | None) -> None:
        """Add the responses that execute() returned to the answers; on an exception, none of them.

        None instead of a list leaves all responses to the senders.
        """
        requests, execution.requests = execution.requests, []
        states = self._instance.states
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
                    self._check_again(execution, pending, response)
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
            execution.answers.append(answer)

    def _check_again(
        self, execution: Execution, pending: OpenRequest, response: InferenceResponse | None
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
        text = self._instance.report_failure(_NOT_ITERATIVE)
        pending.wants_again = False
        if not self._instance.is_decoupled:
            execution.answers += pending.fail(text)

    def _reschedule(self, execution: Execution) -> list[wire.RequestKey]:
        """Return the requests to execute once more; [] if the model may not reschedule."""
        return [
            wire.RequestKey(*pending.route)
            for pending in execution.batch
            if pending.wants_again and pending.reschedule()
        ]

    def _fail(self, execution: Execution, error: BaseException) -> None:
        text, number = describe(error), InternalError.number
        if isinstance(error, NoRoomToWakeError):
            number = Unavailable.number
        else:
            text = self._instance.report_failure(text, error)
        execution.requests = []
        for pending in execution.batch:
            if not pending.is_answered:
                execution.answers += pending.fail(text, number)

    def _leave(self, execution: Execution, rescheduled: list[wire.RequestKey]) -> None:
        """Report the instance as free for another batch."""
        for pending in execution.batch:
            if pending.is_answered and pending.blocks:  # and nothing of ours reads them any more
                pending.leave_inputs()
        done_ns = _now_ns()
        executed = wire.make(
            wire.Executed,
            (
                execution.number,
                execution.ready_ns - execution.begun_ns,
                execution.executed_ns - execution.ready_ns,
                done_ns - execution.executed_ns,
                execution.begun_ns,
            ),
        )
        if self._instance.measures.changes:
            self._instance.measures.flush()  # whoever has the answer finds them
        if execution.is_traced or execution.ids:
            self._record(execution, done_ns)
        outcomes, bodies = [], []
        for outcome, body in execution.answers:
            outcomes.append(outcome)
            bodies.append(body)
        execution.answers = []
        self._link.executing.pop(execution.number, None)
        self.tasks.pop(execution.number, None)
        results = wire.make(wire.Results, (outcomes, [executed], rescheduled, ""))
        header = wire.encode(results)
        if len(header) <= wire.MAX_HEADER_BYTES:
            self._link.put([header, *bodies])
        else:
            self._put_in_parts(results, bodies)
        self._link.turn()
        # the outcomes, which may refer to that memory, have been sent
        for pending in execution.batch:
            pending.held = []
            if pending.left_inputs:
                pending.release_inputs()
        self._count += 1
        if self._count >= self._look_after:
            self._look_at_memory()

    def _look_at_memory(self) -> None:
        changed = self._growth.look(self._count)
        self._look_after = self._growth.due
        if changed is not None:
            self._instance.tell(changed)

    def _put_in_parts(self, results: wire.Results, bodies: list[bytes]) -> None:
        """Queue results in several messages if the error texts do not fit into one."""
        header = wire.encode(results)
        if len(header) <= wire.MAX_HEADER_BYTES or len(bodies) < 2:
            self._link.put([header, *bodies])
            return
        middle = len(bodies) // 2
        first, second = results.outcomes[:middle], results.outcomes[middle:]
        self._put_in_parts(wire.Results(first, []), bodies[:middle])
        self._put_in_parts(results._replace(outcomes=second), bodies[middle:])

    def _record(self, execution: Execution, done_ns: int) -> None:
        """Record an execution in the trace and in the log."""
        if execution.is_traced:
            times = [
                ("COMPUTE_START", execution.begun_ns),
                ("COMPUTE_INPUT_END", execution.ready_ns),
                ("COMPUTE_OUTPUT_START", execution.executed_ns),
                ("COMPUTE_END", done_ns),
            ]
            self._instance.tracing.executed(execution.batch, times)
        if execution.ids:
            request_log.released(self._instance, execution.ids)


def _requests(
    batch: list[OpenRequest], answers: list[OutcomeWithBody], instance: StubInstance
) -> list[InferenceRequest]:
    """Return the batch for the model; answer requests that do not decode, or do not fit."""
    requests = []
    for pending in batch:
        if pending.is_cancelled:  # while it waited here
            answers += pending.fail(CANCELLED, Cancelled.number)
            continue
        try:
            body = wire.decode_request(pending.body)
            request_id, parameters, pending.outputs, inputs, pending.places = body
            pending.request_id = request_id
            flags = pending.work.flags
            if instance.memory is not None:
                if flags & wire.UNCHECKED:
                    check_placed(inputs, flags)
                    # only frontends lend the memory of clients
                    pending.places = [] if pending.work.peer else pending.places
                inputs, pending.blocks = instance.memory.open(
                    inputs, is_leased=False, takes_gpu=instance.takes_gpu
                )
            if flags & _TO_CHECK and instance.signature is not None:
                count = len(inputs) - instance.controls
                _check(pending, body._replace(inputs=inputs[:count]), instance.signature)
            if flags & wire.PADDING:
                inputs = [_zeros(tensor) for tensor in inputs]
            if instance.reshaping is not None:
                inputs = instance.reshaping.for_model(inputs)
            if instance.states is not None:
                inputs = instance.states.give(pending, inputs, batch)
        except ZmqTritonError as error:
            answers += pending.fail(error.text, error.number)
            continue
        pending.body = b""
        requests.append(received(pending, request_id, parameters, inputs))
    return requests


def _zeros(tensor: wire.Tensor) -> wire.Tensor:
    """Return the tensor with zeros for missing data; an empty string has four zeros."""
    if tensor.data:
        return tensor
    size = count_elements(tensor.shape) * (BY_NUMBER[tensor.datatype].size or 4)
    return tensor._replace(data=np.zeros(size, np.uint8).data)


def _check(pending: OpenRequest, body: wire.RequestBody, signature: Signature) -> None:
    """Raise InvalidArgument if a model's or ensemble's request does not fit this model."""
    try:
        signature.check(body)
    except InvalidArgument as error:
        if pending.work.peer == wire.BROKER or not pending.work.flags & wire.UNCHECKED:
            raise
        where = f"Model {signature.model} - Error when running inference: "
        raise InvalidArgument(where + error.text) from None


def _leave_to_sender(pending: OpenRequest, request: InferenceRequest, *, is_owed: bool) -> None:
    """Leave a request to its sender; `is_owed` if execute() should have returned a response."""
    if is_owed:
        pending.loss = _NO_RESPONSE
    # made now, so that its end answers if nobody keeps the request
    request.get_response_sender()
