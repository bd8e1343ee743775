"""Business logic scripting: how models call other models, with exec and async_exec.

Turns requests into messages for bls_client.py, and replies into responses. An error of the other
model, of the broker or of the request itself becomes a response with an error, never an exception.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from zmqtriton_floor import wire
from zmqtriton_floor.datatypes import BYTES
from zmqtriton_floor.errors import (
    Cancelled,
    DeadlineExceeded,
    InternalError,
    InvalidArgument,
    LimitExceeded,
    ProtocolError,
    Unavailable,
    ZmqTritonError,
    from_number,
)
from zmqtriton_floor.signature import batch_key
from zmqtriton_stub import instance
from zmqtriton_stub.api import inference
from zmqtriton_stub.api.callers import NOBODY, find_caller
from zmqtriton_stub.api.errors import ErrorCode, TritonError, TritonModelException
from zmqtriton_stub.api.tensor import packed, received_tensor
from zmqtriton_stub.broker.bls_call import BlsCall, ReplyWithBody
from zmqtriton_stub.broker.bls_client import BlsClient
from zmqtriton_stub.memory import gpu
from zmqtriton_stub.memory.tensor_forwarding import check_placed
from zmqtriton_stub.memory.tensor_memory import TensorMemory

if TYPE_CHECKING:
    from asyncio import Future


class ResponseIterator:
    """The responses to one request, as they come; a second iteration begins with the first.

    If a decoupled model has sent FINAL without a response, the last one is empty.
    """

    def __init__(
        self,
        asker: BlsClient,
        question: BlsCall,
        preferred: inference.PreferredMemory | None = None,
    ) -> None:
        self._asker = asker
        self._question = question
        self._preferred = preferred
        #: One thread at a time takes the next response.
        self._lock = threading.Lock()
        self._responses: list[inference.InferenceResponse] = []
        self._position = 0
        self._is_finished = False

    def __iter__(self) -> ResponseIterator:
        if self._is_finished and self._position >= len(self._responses):
            self._position = 0
        return self

    def __next__(self) -> inference.InferenceResponse:
        with self._lock:
            if self._position >= len(self._responses):
                if self._is_finished:
                    raise StopIteration("Iteration is done for the responses.")
                reply = self._asker.wait(self._question)
                self._is_finished = bool(reply[0].flags & wire.FINAL)
                self._responses.append(_response(reply, self._preferred))
            response = self._responses[self._position]
            self._position += 1
            return response

    def cancel(self) -> None:
        """Tell the other model that no further responses are needed."""
        self._asker.cancel(self._question)

    def __del__(self) -> None:
        # the result may be ignored: the other model goes on
        self._asker.drop(self._question)


def ask(request: inference.InferenceRequest) -> inference.InferenceResponse:
    """Send a request, and block until its single response has come."""
    asker = _asker()
    # while its own thread waits, this instance executes nothing
    is_own = threading.get_ident() == asker.watch.thread
    flags = wire.ONE_RESPONSE | wire.CALLER_BLOCKS if is_own else wire.ONE_RESPONSE
    return _only_response(asker.wait(_ask(asker, request, flags)), request._preferred_memory)


def ask_stream(request: inference.InferenceRequest) -> ResponseIterator:
    asker = _asker()
    return ResponseIterator(asker, _ask(asker, request, 0), request._preferred_memory)


def ask_async(request: inference.InferenceRequest, is_stream: bool) -> Future[Any]:
    """Send the request now; the future gets the response.

    For a stream it gets the iterator when the first response has come. Raises RuntimeError if no
    event loop runs.
    """
    import asyncio  # most models do without it, and it takes long to import

    loop = asyncio.get_running_loop()
    asker = _asker()
    future: Future[Any] = loop.create_future()
    preferred = request._preferred_memory

    def settle(question: BlsCall) -> None:
        if future.done():
            return
        if is_stream:
            future.set_result(ResponseIterator(asker, question, preferred))
        else:
            answered = question.inbox.get()
            assert answered is not None  # no thread waits for it
            future.set_result(_only_response(answered, preferred))

    def notify(question: BlsCall) -> None:
        question.notify = None
        if asyncio._get_running_loop() is loop:
            settle(question)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(settle, question)

    question = _ask(asker, request, 0 if is_stream else wire.ONE_RESPONSE, notify)

    def end(_: Future[Any]) -> None:
        asker.watch.remove_loop(loop)
        asker.watch.futures.pop(future, None)
        if future.cancelled():
            asker.cancel(question)
            asker.drop(question)

    if not future.done():
        asker.watch.add_loop(loop, asker.turn)
        asker.watch.futures[future] = question
        future.add_done_callback(end)
    return future


def _asker() -> BlsClient:
    instance.check_is_no_program()
    current = instance.here()
    if current is None or current.asker is None:
        raise TritonModelException("BLS is only supported during the 'execute' function.")
    return current.asker


class Prepared(NamedTuple):
    """A request ready to be sent: its large inputs are where the other model can read them."""

    row: wire.Request
    body: bytes
    #: Blocks to free with the final reply, and objects whose leases must be kept until then.
    blocks: list[wire.Block]
    held: list[Any]


def _ask(
    asker: BlsClient, request: inference.InferenceRequest, flags: int, notify: Any = None
) -> BlsCall:
    inputs = [packed(tensor) for tensor in request._inputs]
    if _takes_gpu(request._preferred_memory):
        flags |= wire.ACCEPTS_GPU
    body = wire.RequestBody(request._request_id, request._parameters, [*request._outputs], inputs)
    try:
        row, data, blocks, held = prepare(_row(request, inputs, flags), body, _memory())
    except ZmqTritonError as error:
        return asker.refused(error, notify)
    return asker.ask(row, data, blocks, notify, held)


def prepare(row: wire.Request, body: wire.RequestBody, memory: TensorMemory | None) -> Prepared:
    """Place the large inputs. Raises a ZmqTritonError if the request cannot be sent."""
    blocks: list[wire.Block] = []
    held: list[Any] = []
    #: Blocks of others, which this model was given with a request of its own.
    borrowed: list[wire.Block] = []
    try:
        placing = 0
        if memory is not None:
            passing, placing = memory.passing, _placing(memory, row, body.inputs)
            inputs, blocks = memory.place(
                body.inputs, lambda data: passing.to_model(data, held, borrowed), placing
            )
            body = wire.make(wire.RequestBody, (*body[:3], inputs, *body[4:]))
            for tensor in inputs:
                if type(tensor.data) is wire.Reference:
                    row = row._replace(flags=row.flags | wire.HAS_REFERENCES)
                    break
        if placing & wire.WANT_DIGESTS and memory is not None and memory.keys is not None:
            row = row._replace(cache_key=memory.keys.of_placed(body))
        return Prepared(row, wire.encode_body(body), blocks + borrowed, held)
    except (ZmqTritonError, OverflowError, ValueError) as error:
        if memory is not None:
            memory.answered(blocks + borrowed)
        if isinstance(error, ZmqTritonError):
            raise
        raise InvalidArgument(str(error)) from error


def _takes_gpu(preferred: inference.PreferredMemory | None) -> bool:
    """True if the outputs may stay on a GPU.

    A model that does not handle GPU tensors gets outputs on the CPU, unless the call prefers a
    place.
    """
    if preferred is None or preferred.memory_type is inference.MemoryType.DEFAULT:
        here = instance.here()
        return here is not None and here.takes_gpu
    return preferred.memory_type is inference.TRITONSERVER_MEMORY_GPU and gpu.is_usable()


def _placing(memory: TensorMemory, request: wire.Request, inputs: list[wire.Tensor]) -> int:
    """Return the flags for placing the inputs.

    ON_GPU if some inputs are on a GPU and the other model accepts that. HASHED if no input is on a
    GPU (it would have to be copied), and the response may be cached.
    """
    target = request.model, request.version
    for row in inputs:
        if type(row.data) is gpu.DeviceSpan:
            return wire.ACCEPTS_GPU if memory.takes_gpu(*target) else 0
    return wire.WANT_DIGESTS if memory.is_hashed(*target) else 0


def _on_gpu(row: wire.Tensor, number: int) -> wire.Tensor:
    """Return the tensor on the preferred GPU; strings, and all without a GPU, stay on the CPU."""
    data = row.data
    if type(data) is gpu.DeviceSpan:
        return row if data.gpu == number else row._replace(data=gpu.copied(data, number))
    if row.datatype == BYTES or not len(data) or not gpu.is_usable():
        return row
    return row._replace(data=gpu.uploaded(number, data))


def _memory() -> TensorMemory | None:
    here = instance.here()
    return None if here is None else here.memory


def _row(
    request: inference.InferenceRequest, inputs: list[wire.Tensor], flags: int
) -> wire.Request:
    # We cannot know whether the other model batches, so this is the batch size if it does; the
    # broker resets it otherwise.
    shape = inputs[0].shape if inputs else []
    trace = request._trace
    if trace is not None and trace._parent:
        flags |= trace._flags
    here = instance.here()
    is_detached = request._is_detached or (here is not None and here.has_detached_calls)
    caller = NOBODY if is_detached else find_caller()
    row = wire.Request(
        0,
        0,
        request._model_name,
        request._model_version,
        request._flags & (wire.SEQUENCE_START | wire.SEQUENCE_END) | flags,
        0,
        request._timeout,
        caller.deadline_ns,
        shape[0] if shape else 0,
        batch_key(inputs, 1),
        request._correlation_id,
        trace=trace._parent if trace is not None else "",
        caller_peer=caller.peer,
        caller_id=caller.own_id,
    )
    try:
        # a message that does not decode is dropped by the broker, and nobody would answer
        wire.SCHEMAS["Request"].read([*row])
    except ProtocolError as error:
        raise InvalidArgument(f"correct the request, it cannot be sent: {error.text}") from None
    return row


def _only_response(
    answered: ReplyWithBody, preferred: inference.PreferredMemory | None
) -> inference.InferenceResponse:
    row, body = answered
    if not row.code and not body:
        return _failure(InternalError.number, "Unexpected empty response.")
    return _response(answered, preferred)


def _response(
    answered: ReplyWithBody, preferred: inference.PreferredMemory | None
) -> inference.InferenceResponse:
    row, body = answered
    if row.code:
        return _failure(row.code, row.text)
    if not body:
        return inference.InferenceResponse()
    try:
        opened = open_reply(answered, _memory(), takes_gpu=True)
        if preferred is not None and preferred.memory_type is inference.TRITONSERVER_MEMORY_GPU:
            opened = opened._replace(
                outputs=[_on_gpu(row, preferred.device_id) for row in opened.outputs]
            )
    except ZmqTritonError as error:
        return _failure(error.number, error.text)
    return response_of(opened)


def response_of(body: wire.ResponseBody) -> inference.InferenceResponse:
    """Return the response that arrived."""
    response = inference.InferenceResponse([received_tensor(tensor) for tensor in body.outputs])
    response._parameters = body.parameters
    return response


def open_reply(
    answered: ReplyWithBody, memory: TensorMemory | None, *, takes_gpu: bool
) -> wire.ResponseBody:
    """Return a response with views of the memory it refers to; raises a ZmqTritonError."""
    row, body = answered

    def note() -> None:
        here = instance.here()
        if here is not None and here.asker is not None:
            here.asker.opened(row)

    try:
        parameters, outputs = wire.decode_response(body)
        if memory is not None:
            check_placed(outputs, row.flags)
            outputs, _ = memory.open(outputs, is_leased=True, takes_gpu=takes_gpu, on_opened=note)
        return wire.ResponseBody(parameters, outputs)
    finally:
        note()


def _failure(number: int, text: str) -> inference.InferenceResponse:
    # Triton's models know no codes of these
    others = {DeadlineExceeded.code: Cancelled.code, LimitExceeded.code: Unavailable.code}
    code = from_number(number, text).code
    return inference.InferenceResponse(error=TritonError(text, ErrorCode[others.get(code, code)]))


inference.bls = sys.modules[__name__]
