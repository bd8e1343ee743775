"""Ensembles: each step becomes a member request as soon as its inputs are available.

The core hands over requests to ensembles, and the outcomes of their member requests. Bodies are
taken apart and composed here, but tensors' data is never looked at. A run is answered only after
the last of its member requests, so that no step reads memory that its owner believes free.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial

from zmqtriton.broker.ensembles.plan import EnsembleStep, fit_batch_dimension
from zmqtriton.broker.ensembles.runs import (
    SEQUENCE_FLAGS,
    EnsembleRun,
    MemberCall,
    TensorSet,
    changed_marks,
    size_of,
)
from zmqtriton.broker.memory.cache_lookup import CacheLookup
from zmqtriton.broker.metrics import statistics
from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton.broker.requests.protocols import RequestLifecycle
from zmqtriton.broker.requests.recovery import RUN_LOST
from zmqtriton.broker.scheduling.generation import BrokerGeneration
from zmqtriton.broker.state import BrokerPart, BrokerState
from zmqtriton_floor import wire
from zmqtriton_floor.errors import (
    OVERLOADED,
    Cancelled,
    InvalidArgument,
    ProtocolError,
    Unavailable,
    ZmqTritonError,
    from_number,
)

_SEQUENCE_LOST = Unavailable("the broker died while the sequence was going on")
_DROPPED = Cancelled("another step of the ensemble has failed")
#: Bytes of responses after which the stub of a step gets an acknowledgement, so that it need not
#: wait: a quarter of its window.
_PASSED_BYTES = wire.STREAM_WINDOW_BYTES // 4
_STUCK = (
    "unexpected deadlock, at least one output is not set while no more ensemble steps can be made"
)


class EnsembleScheduler(BrokerPart):
    def __init__(
        self, state: BrokerState, lifecycle: RequestLifecycle, cache_lookup: CacheLookup
    ) -> None:
        super().__init__(state)
        self._lifecycle = lifecycle
        self._cache_lookup = cache_lookup
        self._last_id = 0
        #: Runs by the requests to their ensembles, oldest first.
        self._runs: dict[InflightRequest, EnsembleRun] = {}

    # ------------------------------------------------------------ what happens

    def start(self, request: InflightRequest, now_ns: int) -> None:
        """Begin a run for an admitted request to an ensemble."""
        plan = request.generation.plan
        assert plan is not None
        data = request.begin(now_ns)
        lost = self._loss(request) if request.flags & wire.RESENT else None
        if lost is not None:
            # Not raised: an error object that is kept would also keep the frames of each raise.
            self._lifecycle.refuse(request, lost, statistics.OTHER, now_ns)
            return
        try:
            body = wire.decode_request(data)
            if request.flags & wire.UNCHECKED:
                _check(request, body)
                if request.peer != wire.BROKER:  # only frontends lend the memory of clients
                    body = body._replace(places=[])
        except ZmqTritonError as error:
            self._lifecycle.refuse(request, error, statistics.OTHER, now_ns)
            return
        self._runs[request] = run = EnsembleRun(request, plan, body)
        request.steps = run.calls
        inputs = {tensor.name: tensor for tensor in plan.reshaping.for_model(body.inputs)}
        run.holds += 1
        root = run.tensor_sets[0]
        for step in [s for name in plan.inputs for s in root.add(name, inputs.get(name))]:
            self._spawn(run, root, step, now_ns)
        run.holds -= 1
        self._end_if_over(run, now_ns)

    def _loss(self, request: InflightRequest) -> Unavailable | None:
        """Return the error of a repeated request that cannot begin again; None if it can.

        The answers of its steps to an earlier broker are lost, and no step may run twice.
        """
        if self._begun.had_begun(request.key):
            return RUN_LOST
        # what was sent after it may have been executed
        is_in_sequence = request.flags & SEQUENCE_FLAGS or request.correlation
        return _SEQUENCE_LOST if is_in_sequence else None

    def take_outcome(
        self, member: InflightRequest, outcome: wire.Outcome, body: bytes, now_ns: int
    ) -> None:
        """Process the answer of a step, or one response of several."""
        assert member.parent is not None
        run = self._runs[member.parent]
        call = run.calls[member]
        wave = call.wave
        self._begun.note_answer(member.root.key)
        run.holds += 1
        is_final = bool(outcome.flags & wire.FINAL)
        if is_final:
            del run.calls[member]
            run.unanswered[call.step.number] -= 1
            run.add_step_times(member, now_ns)
        if outcome.code:
            self._fail(run, from_number(outcome.code, outcome.text), now_ns)
        if body and run.error is None:
            self._take_response(call, outcome, body, now_ns)
        else:
            self._release(outcome.blocks)
            if not is_final:
                self._acknowledge_response(call)
                call.arrived += 1
                self._pass_on(call)
        if is_final:
            released = wave.release_inputs(call.step)
            if released:
                self._release(released)
            self._release_set(run, wave)
            if waiting := run.waiting.get(call.step.number):
                next_wave = waiting.popleft()
                self._spawn(run, next_wave, call.step, now_ns)
                self._release_set(run, next_wave)
        run.holds -= 1
        self._end_if_over(run, now_ns)

    def cancel_run(
        self, request: InflightRequest, error: ZmqTritonError, reason: str, now_ns: int
    ) -> None:
        """Cancel a run: no further step begins, and its unanswered steps are cancelled."""
        run = self._runs.get(request)
        if run is None or run.error is not None:
            return
        run.error, run.reason = error, reason
        run.holds += 1
        for wave in itertools.chain(*run.waiting.values()):
            self._release_set(run, wave)
        run.waiting.clear()
        for member in list(run.calls):
            self._lifecycle.abandon(member, _DROPPED, statistics.CANCELED, now_ns)
        run.holds -= 1
        self._end_if_over(run, now_ns)

    def remove(self, generation: BrokerGeneration, error: ZmqTritonError, now_ns: int) -> None:
        """Cancel the runs of a removed generation.

        They end once their steps have stopped.
        """
        for request in [one for one in self._runs if one.generation is generation]:
            self.cancel_run(request, error, statistics.OTHER, now_ns)

    def acknowledge_responses(self, request: InflightRequest, responses: int, passed: int) -> None:
        """Update the number of responses that the client of a decoupled ensemble has read.

        If the client has caught up, steps that were waiting for it may send more.
        """
        run = self._runs.get(request)
        if run is None:
            return
        run.consume(responses, passed)
        if not run.is_stalled:
            stalled, run.stalled = run.stalled, []
            for call in stalled:
                self._acknowledge_response(call)
        if run.has_byte_window:
            for call in list(run.calls.values()):
                if call.request.flags & wire.BYTE_WINDOW:
                    self._pass_on(call)

    def inputs(self, request: InflightRequest) -> list[wire.Tensor | None]:
        """Return the inputs of a request to an ensemble that has begun."""
        run = self._runs[request]
        return [run.tensor_sets[0].tensors.get(name) for name in run.plan.inputs]

    def stage_times(self, request: InflightRequest) -> wire.StageTimes:
        """Return the times of the steps of a request whose client wants to know them."""
        run = self._runs[request]
        return wire.StageTimes(request.id, run.queue_ns, 0, run.compute_ns, 0)

    # -------------------------------------------------------------- the steps

    def _spawn(self, run: EnsembleRun, wave: TensorSet, step: EnsembleStep, now_ns: int) -> None:
        if run.error is not None:
            return
        if not run.has_room(step):
            run.wait(wave, step)
            return
        correlation = run.request.correlation
        generation = self._generations.newest(step.model, step.version, correlation)
        if generation is None:
            text = f"Request for unknown model: '{step.model}'"
            text += f" version {step.version}" if step.version > 0 else ""
            self._fail(run, Unavailable(f"{text} is not at ready state"), now_ns)
        elif self._limits.is_full:
            self._fail(run, Unavailable(OVERLOADED), now_ns)
        else:
            # The ids of member requests must differ from those of an earlier broker, which a peer's
            # need not.
            self._last_id = own_id = max(self._last_id + 1, now_ns)
            row, body = _request(run, wave, step, generation, own_id)
            member = InflightRequest(wire.BROKER, row, body, generation, now_ns)
            if self._generations.any_takes_gpu and self._can_stay_on_gpu(run, step):
                member.flags |= wire.ACCEPTS_GPU
            if run.has_byte_window and generation.is_decoupled:
                member.flags |= wire.BYTE_WINDOW
            if self._cache_lookup.cache is not None and self._is_hashed(run, step):
                member.flags |= wire.WANT_DIGESTS
            member.parent = run.request
            run.calls[member] = MemberCall(member, run, wave, step)
            run.unanswered[step.number] = run.unanswered.get(step.number, 0) + 1
            wave.holds += 1
            self._lifecycle.submit(member, now_ns)

    def _is_hashed(self, run: EnsembleRun, step: EnsembleStep) -> bool:
        """True if a step's outputs need a digest.

        A model with a cache reads them, or the client wants one.
        """
        return bool(run.request.flags & wire.WANT_DIGESTS) or any(
            self._generations.feeds_cache(reader.model, reader.version)
            for name in run.selection.used_outputs[step.number]
            for reader in run.selection.readers.get(step.outputs[name], ())
        )

    def _can_stay_on_gpu(self, run: EnsembleRun, step: EnsembleStep) -> bool:
        """True if a step's outputs may stay on a GPU.

        Each has exactly one reader, which accepts GPU tensors: with a second one, either could
        overwrite what the other still reads.
        """
        selection = run.selection
        tensors = [step.outputs[name] for name in selection.used_outputs[step.number]]
        if any(selection.uses(one) != 1 or one not in selection.readers for one in tensors):
            return False
        readers = (reader for one in tensors for reader in selection.readers[one])
        newest = (self._generations.newest(one.model, one.version) for one in readers)
        return all(reader is not None and reader.takes_gpu for reader in newest)

    def _take_response(
        self, call: MemberCall, outcome: wire.Outcome, body: bytes, now_ns: int
    ) -> None:
        """Pass the outputs of a step on to their readers."""
        member, run, step = call.request, call.run, call.step
        try:
            response = wire.decode_response(body, has_places=bool(run.places))
            if not outcome.flags & wire.HAS_REFERENCES and _refers(response.outputs):
                raise ProtocolError("the response references shared memory that it must not")
        except ProtocolError as error:
            self._release(outcome.blocks)
            self._fail(run, error, now_ns)
            return
        if member.flags & wire.BYTE_WINDOW:
            call.arrived += 1
            call.arrived_bytes += size_of(body, response.outputs)
        wave = call.wave
        if member.generation.is_decoupled:
            run.tensor_sets.append(wave := TensorSet(run.selection, call))
        made = step.named(response.outputs)
        own = (member.flags & SEQUENCE_FLAGS, member.correlation)
        sequence = changed_marks(response.parameters, own) if response.parameters else own
        if sequence != run.sequence:
            wave.sequences.update(dict.fromkeys(made, sequence))
        if outcome.blocks:
            self._release(wave.lease(outcome.blocks, made))
        wave.holds += 1
        for following in wave.add_outputs(step, made):
            self._spawn(run, wave, following, now_ns)
        if run.is_decoupled and run.error is None and wave.is_complete and not wave.is_sent:
            self._stream(run, wave, now_ns)
        self._release_set(run, wave)
        # what it has become counts now
        if call.arrived_bytes >= _PASSED_BYTES and not run.is_stalled:
            self._pass_on(call)

    def _fail(self, run: EnsembleRun, error: ZmqTritonError, now_ns: int) -> None:
        """Fail the run with the first error of a step, and cancel its other steps."""
        self.cancel_run(run.request, run.named(error), statistics.OTHER, now_ns)

    # ---------------------------------------------------------------- the end

    def _release_set(self, run: EnsembleRun, wave: TensorSet) -> None:
        """Release a hold on a tensor set.

        After the last hold, the response of the decoupled step that opened the set counts as read.
        """
        wave.holds -= 1
        if wave.holds or wave.producer is None:
            return
        run.tensor_sets.remove(wave)
        self._release(wave.take_all_leases())
        if not run.is_stalled:
            self._acknowledge_response(wave.producer)
        else:
            run.stalled.append(wave.producer)

    def _acknowledge_response(self, call: MemberCall) -> None:
        """Allow a decoupled step to send another response."""
        call.taken += 1
        if call.taken - call.granted < wire.STREAM_WINDOW // 2:
            return
        call.granted = call.taken
        self._grant(call.request, call.taken, 0)

    def _pass_on(self, call: MemberCall) -> None:
        """Stop counting the received bytes of a step, unless the client is behind."""
        if not call.run.is_stalled:
            call.arrived_bytes = 0
            call.passed = call.arrived
        self._grant(call.request, call.granted, call.passed)

    def _grant(self, member: InflightRequest, taken: int, passed: int) -> None:
        if member.steps is not None:
            self.acknowledge_responses(member, taken, passed)
        elif member.stub:
            grants = self._outbox.stream_acks.setdefault(member.stub, [])
            grants.append(wire.StreamAck(*member.key, taken, passed))

    def _end_if_over(self, run: EnsembleRun, now_ns: int) -> None:
        if run.holds or run.calls or run.is_over:
            return
        run.is_over = True
        self._answer(run, now_ns)
        del self._runs[run.request]
        place = self._begun.end_run(run.request.key)
        if place is not None:
            self._outbox.once_delivered.append(partial(self._begun.remove, place))

    def _answer(self, run: EnsembleRun, now_ns: int) -> None:
        error = run.error
        root = run.tensor_sets[0]
        outputs: list[wire.Tensor] = []
        if error is None and not run.is_decoupled:
            try:
                outputs = _outputs(run, root)
            except ZmqTritonError as failed:
                error, run.reason = run.named(failed), statistics.OTHER
        if error is not None:
            self._lifecycle.refuse(run.request, error, run.reason, now_ns)
            self._release(root.take_all_leases())
            return
        run.request.generation.statistics.record_ensemble(run.request, run.queue_ns, run.compute_ns)
        if run.is_decoupled:
            last = wire.Outcome(*run.request.key, 0, "", wire.FINAL, run.sent)
            self._lifecycle.respond(0, run.request, last, b"", now_ns)
        else:
            self._respond(run, root, outputs, wire.FINAL, now_ns)
        left = root.take_all_leases()
        if left:
            self._release(left)

    def _stream(self, run: EnsembleRun, wave: TensorSet, now_ns: int) -> None:
        """Send the outputs of a complete tensor set as a response of a decoupled ensemble."""
        try:
            outputs = _outputs(run, wave)
        except ZmqTritonError as error:
            self._fail(run, error, now_ns)
        else:
            self._respond(run, wave, outputs, 0, now_ns)

    def _respond(
        self, run: EnsembleRun, wave: TensorSet, tensors: list[wire.Tensor], flags: int, now_ns: int
    ) -> None:
        """Send the outputs of a tensor set as a response."""
        request = run.request
        blocks, shared = wave.take_leases(run.selection.outputs)
        if shared:
            self._blocks.grant_lease(wire.BROKER, shared)
            blocks += shared
        if request.parent is None and blocks:
            self._blocks.hand_over(request.peer, blocks)
        marks, correlation = run.marks_for(wave, run.selection.outputs)
        parameters = {
            "sequence_id": correlation,
            "sequence_start": bool(marks & wire.SEQUENCE_START),
            "sequence_end": bool(marks & wire.SEQUENCE_END),
        }
        body = wire.encode_body(wire.make(wire.ResponseBody, (parameters, tensors)))
        flags |= wire.HAS_REFERENCES if _refers(tensors) else 0
        outcome = wire.Outcome(*request.key, 0, "", flags, run.sent, blocks)
        run.add_sent(size_of(body, tensors) if run.has_byte_window else 0)
        wave.is_sent = True
        self._lifecycle.respond(0, request, outcome, body, now_ns)

    def _release(self, blocks: list[wire.Block]) -> None:
        if blocks:
            self._blocks.release(wire.BROKER, blocks)


def _refers(tensors: list[wire.Tensor]) -> bool:
    for tensor in tensors:  # noqa: SIM110 - any() would enter a frame for each tensor
        if type(tensor.data) is wire.Reference:
            return True
    return False


def _fitted(
    wave: TensorSet,
    names: Iterable[tuple[str, str]],
    rank_of: Callable[[str], int],
    *,
    is_batching: bool,
) -> list[wire.Tensor]:
    """Return the tensors of a set that have a value, with other names and of these ranks.

    `names` are pairs of a new name and the name in the set.
    """
    tensors = []
    for name, source in names:
        tensor = wave.tensors[source]
        if tensor is not None:
            _, datatype, shape, data = tensor
            rank = rank_of(name)
            if len(shape) != rank:
                shape = fit_batch_dimension(shape, rank, is_batching=is_batching)
            tensors.append(wire.make(wire.Tensor, (name, datatype, shape, data)))
    return tensors


def _outputs(run: EnsembleRun, wave: TensorSet) -> list[wire.Tensor]:
    """Return the outputs of a tensor set in the shapes that clients see.

    Raises InvalidArgument for a missing output, InternalError for an output that cannot have its
    shape.
    """
    plan = run.plan
    if not wave.is_complete:
        raise InvalidArgument(_STUCK)
    named = [(name, name) for name in run.selection.outputs]
    tensors = _fitted(wave, named, plan.outputs.__getitem__, is_batching=plan.is_batching)
    return plan.reshaping.for_client(tensors) if plan.reshaping else tensors


def _check(request: InflightRequest, body: wire.RequestBody) -> None:
    """Raise InvalidArgument if a request of a model, or another ensemble, does not fit this one.

    For other models their stubs check this; frontends check clients' requests.
    """
    try:
        request.generation.signature.check(body)
    except InvalidArgument as error:
        if request.peer == wire.BROKER:
            raise
        where = f"Model {request.generation.model} - Error when running inference: "
        raise InvalidArgument(where + error.text) from None


def _request(
    run: EnsembleRun, wave: TensorSet, step: EnsembleStep, generation: BrokerGeneration, own_id: int
) -> tuple[wire.Request, bytes]:
    """Build the body of a member request; the stub checks it."""
    whole, signature = run.request, generation.signature
    is_batching = signature.max_batch_size > 0
    tensors = _fitted(wave, step.inputs, signature.rank, is_batching=is_batching)
    outputs = run.selection.used_outputs[step.number]
    places = run.places_of(step) if run.places else []
    body = wire.RequestBody(run.request_id, run.parameters, outputs, tensors, places)
    size, key = signature.admit(tensors)
    flags, correlation = run.marks_for(wave, step.reads)
    priority, timeout_us = whole.priority, whole.timeout_us
    flags |= wire.UNCHECKED | whole.flags & wire.TRACE_TENSORS
    flags |= wire.HAS_REFERENCES if _refers(tensors) else 0
    row = wire.Request(
        own_id,
        generation.number,
        "",
        -1,
        flags,
        priority,
        timeout_us,
        whole.deadline_ns,
        size,
        key,
        correlation,
        trace=whole.trace,
        placement=whole.placement,
    )
    return row, wire.encode_body(body)
