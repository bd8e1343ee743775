"""Admission: a protocol-neutral request becomes a checked one, ready for the gateway.

HTTP and gRPC requests both pass through this module, so that neither can lack a check.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.datatypes import BY_NUMBER, BYTES, count_elements
from zmqtriton_floor.errors import InvalidArgument, ZmqTritonError
from zmqtriton_floor.signature import READABLE, Admission, Count, check_elements
from zmqtriton_floor.wire import (
    ANY_VERSION,
    SEQUENCE_START,
    WANT_STAGES,
    RequestBody,
    ResponseBody,
    Tensor,
    make,
)
from zmqtriton_frontends.inference.catalogue import Catalogue
from zmqtriton_frontends.inference.client_regions import (
    NO_PLACES,
    Claim,
    RegionContents,
    RegionSlice,
    flags_of_inputs,
)
from zmqtriton_frontends.inference.layouts import Layout
from zmqtriton_frontends.inference.model_version import ModelVersion
from zmqtriton_frontends.inference.request_trace import Observer, Observers
from zmqtriton_frontends.inference.stage_times import Stages
from zmqtriton_frontends.process import request_log
from zmqtriton_frontends.process.arrivals import Arrivals

#: Headers of an answer; those with bytes are gRPC's alone.
Pairs = Sequence[tuple[str, str | bytes]]
#: Makes the headers that a client gets beside its answer, once that is ready.
Report = Callable[[], Coroutine[Any, Any, Pairs]]
#: The limit for names that clients give.
MAX_NAME = 1024
#: Elements of a BYTES tensor that are counted on the loop, in 2 ms.
FEW_ELEMENTS = 1 << 14


async def reported(reports: Sequence[Report]) -> Pairs:
    """Return the headers of all reports on a response, once it is ready."""
    return [pair for report in reports for pair in await report()]


def texts_of(pairs: Pairs) -> tuple[tuple[str, str], ...]:
    """Return the headers that HTTP can carry, with a text as their value."""
    return tuple((name, value) for name, value in pairs if isinstance(value, str))


def check_parameter_name(name: str) -> None:
    """Raise InvalidArgument for a name that is too long."""
    if len(name) > MAX_NAME:
        raise InvalidArgument(f"a parameter's name cannot be longer than {MAX_NAME} characters")


class SchedulingOptions(NamedTuple):
    """A client's wishes for the scheduler: fields of wire.Request, and the client's token."""

    flags: int = 0
    priority: int = 0
    timeout_us: int = 0
    deadline_ns: int = 0
    correlation: int | str = 0
    #: The number of the client's token, see gateway.token_marks; 0: none.
    token: int = 0
    #: Placement of the request: those with equal ones go to the same instance; 0 for any.
    placement: int = 0


#: Options of a client that has no wishes, and the same for any version.
NO_OPTIONS, _ANY_VERSION = SchedulingOptions(), SchedulingOptions(ANY_VERSION)


class Copy(Protocol):
    """The copy of a request; the responses to both are compared."""

    def send(self) -> None:
        """Send the copy, after the request was sent."""

    def skip(self) -> None:
        """Make no copy of a request that is about to be sent."""

    def take_stable(self, response: ResponseBody, /) -> None:
        """Receive the response that the client gets."""

    def drop(self) -> None:
        """Cancel the copy, since the request has no response to compare with."""


class CheckedRequest(NamedTuple):
    """A request that fits its model; the gateway sends it unchanged."""

    model: ModelVersion
    body: RequestBody
    admission: Admission
    options: SchedulingOptions
    #: Outputs that are written to clients' shared memory.
    places: Mapping[str, RegionSlice] = NO_PLACES
    #: The form of the outputs that its client wants, for its protocol alone.
    form: Any = None
    #: None of its tensors is large, as is known by its layout.
    is_small: bool = False
    #: Called when it has its place in the order of requests to the broker; room for large tensors
    #: may have to be awaited before.
    on_asked: Callable[[], None] | None = None
    #: Key of the answer in the response cache; b"" if it is not kept there.
    cache_key: bytes = b""
    #: Sees its responses and its end: its trace, a record of it.
    observer: Observer | None = None
    #: Takes the times of its stages, if its client wants them.
    stages: Stages | None = None
    #: Copy of the request to a version on trial; its answer is compared with this request's.
    copy: Copy | None = None
    #: The room of responses of a stream that wait for its client; None: as many as come.
    arrivals: Arrivals | None = None
    #: Reports that make the headers beside its answer.
    reports: tuple[Report, ...] = ()
    #: The regions that its stub may write outputs to itself. The last field, for with_claim().
    claim: Claim | None = None

    @property
    def is_large(self) -> bool:
        """True if one of its tensors must be placed in shared memory."""
        for tensor in self.body.inputs:
            if type(tensor.data) is RegionContents or len(tensor.data) > INLINE_BYTES:
                return True
        return False

    def with_claim(self, claim: Claim, *, lends_files: bool = True) -> CheckedRequest:
        """Return the request with its claim: the stub writes outputs to clients' memory if it can.

        Files are not lent if the request may be answered while its stub executes it, since nothing
        may be written to them afterwards; nor if its response has other uses. GPU memory is lent in
        any case, and then the response has no other use.
        """
        is_early = self.options.deadline_ns or self.copy is not None or self.model.is_hashed
        claim.lends_files = lends_files and not is_early
        if claim.is_on_gpu:
            if self.copy is not None:
                self.copy.skip()
            return self._replace(claim=claim, copy=None, cache_key=b"")
        if not claim.lends_files:
            return self
        return make(CheckedRequest, (*self[:-1], claim))  # as _replace(), by fewer calls

    def with_stages(self, stages: Stages) -> CheckedRequest:
        """Return the request with its stages, which the broker then reports."""
        options = self.options._replace(flags=self.options.flags | WANT_STAGES)
        return self._replace(options=options, stages=stages)

    def with_observer(self, observer: Observer) -> CheckedRequest:
        """Return the request with one more observer."""
        if self.observer is not None:
            observer = Observers(self.observer, observer)
        return self._replace(observer=observer)

    def with_report(self, report: Report) -> CheckedRequest:
        """Return the request with one more report, which adds headers to its response.

        A step of an add-on calls this (docs/guides/extending.md).
        """
        return self._replace(reports=(*self.reports, report))

    @property
    def begins_sequence(self) -> bool:
        return bool(self.options.flags & SEQUENCE_START) and self.model.has_sequences

    @property
    def continues_sequence(self) -> bool:
        """True if the request continues a sequence that has begun before."""
        correlation, is_start = self.options.correlation, self.options.flags & SEQUENCE_START
        return bool(correlation) and not is_start and self.model.has_sequences


class ManyElements(Exception):
    """Raised for strings that take long to count."""


def count_few(tensor: Tensor, model: str) -> None:
    """Count the elements of a BYTES tensor on the loop. Raises ManyElements, InvalidArgument."""
    if len(tensor.data) > 4 * FEW_ELEMENTS and count_elements(tensor.shape) > FEW_ELEMENTS:
        raise ManyElements
    check_elements(tensor, model)


def count_none(tensor: Tensor, model: str) -> None:
    """Count no elements: a thread has counted them, or they are the server's own."""


def count_all(body: RequestBody, model: str) -> None:
    """Count the elements of all BYTES tensors, for a thread. Raises InvalidArgument."""
    for tensor in body.inputs:
        if tensor.datatype == BYTES and type(tensor.data) in READABLE:
            check_elements(tensor, model)


def prepare(
    catalogue: Catalogue,
    model: ModelVersion,
    body: RequestBody,
    options: SchedulingOptions,
    places: Mapping[str, RegionSlice] = NO_PLACES,
    form: Any = None,
    *,
    more_flags: int = 0,
    count: Count = count_few,
    layout: Layout | None = None,
) -> CheckedRequest:
    """Check a request to a version that the catalogue has found, in this turn of the loop.

    `layout` is that of the body. Raises what Regions.fill and Signature.check raise, and
    InvalidArgument for numbers and names that the wire does not carry.
    """
    try:
        if options is not NO_OPTIONS:
            _check_options(options)
        if body.parameters:
            _check_parameters(body.parameters)
        if layout is not None and layout.signature is model.signature:
            admission = layout.admission
        else:
            body, options, admission = _check(catalogue, model, body, options, count)
            if layout is not None:
                layout.signature, layout.admission = model.signature, admission
    except ZmqTritonError as error:
        request_log.log_refusal(body.request_id, error.text)
        raise
    if request_log.is_on:
        prepared = _describe(model, body, admission, options)
        request_log.log_admission(body.request_id, prepared)
    if options is NO_OPTIONS and more_flags == ANY_VERSION:
        options = _ANY_VERSION  # nearly always
    elif more_flags:
        options = options._replace(flags=options.flags | more_flags)
    is_small = layout is not None and layout.is_small
    request = (model, body, admission, options, places, form, is_small, *_LATER)
    if model.is_cached and catalogue.keys is not None:
        return make(CheckedRequest, request)._replace(cache_key=catalogue.keys.of(body))
    return make(CheckedRequest, request)


def _check(
    catalogue: Catalogue,
    model: ModelVersion,
    body: RequestBody,
    options: SchedulingOptions,
    count: Count,
) -> tuple[RequestBody, SchedulingOptions, Admission]:
    """Return the body with its inputs in regions, the options with their flags, the admission."""
    for tensor in body.inputs:
        if type(tensor.data) is RegionSlice:
            body = catalogue.regions.fill(body)
            flags = flags_of_inputs(body)
            options = options._replace(flags=options.flags | flags) if flags else options
            break
    return body, options, model.signature.check(body, count)


#: Default values of the fields that a request gets after its checks, if it gets them at all.
_LATER = tuple(CheckedRequest._field_defaults[name] for name in CheckedRequest._fields[7:])


def _describe(
    model: ModelVersion, body: RequestBody, admission: Admission, options: SchedulingOptions
) -> str:
    """Return Triton's description of a request for the log, but without addresses."""
    inputs = [
        f"input: {tensor.name}, type: {BY_NUMBER[tensor.datatype].name}, "
        f"shape: [{','.join(map(str, tensor.shape))}]"
        for tensor in body.inputs
    ]
    head = (
        f"request id: {body.request_id}, model: {model.name}, actual version: {model.version}, "
        f"correlation id: {options.correlation}, batch size: {admission.batch_size}, "
        f"priority: {options.priority}, timeout (us): {options.timeout_us}"
    )
    outputs = body.outputs or model.signature.outputs
    return "\n".join([head, "inputs:", *inputs, "requested outputs:", *outputs, ""])


def _check_options(options: SchedulingOptions) -> None:
    for name in ("priority", "timeout_us", "deadline_ns"):
        if not 0 <= getattr(options, name) < 2**63:
            raise InvalidArgument(f"'{name}' must be from 0 to 2**63 - 1")
    correlation = options.correlation
    if len(correlation) > 1024 if isinstance(correlation, str) else not 0 <= correlation < 2**64:
        raise InvalidArgument(
            "the sequence id must be from 0 to 2**64 - 1, or a text of at most 1024 letters"
        )


def _check_parameters(parameters: dict[str, Any]) -> None:
    for key, value in parameters.items():
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise InvalidArgument(f"the value of parameter '{key}' must fit into 64 bits")
