"""Triton's counters of one model version.

Durations are in nanoseconds and count per request: each request of a batch adds the whole time of
the batch. Stubs count the responses of decoupled models, since most of these do not pass through
the broker. For a version that is compared with another one, durations are also counted by size:
memory is limited, counts can be subtracted, and a percentile is wrong by a sixteenth at most.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from zmqtriton_floor.errors import ProtocolError
from zmqtriton_floor.metrics import REQUEST_BOUNDS_S
from zmqtriton_floor.wire import FINAL, Executed, Outcome

#: Reasons of failures, as the metrics name them.
REJECTED, CANCELED, BACKEND, OTHER = "REJECTED", "CANCELED", "BACKEND", "OTHER"
#: Maximum number of latencies between two readings: enough for quantiles of a few seconds.
MAX_LATENCIES = 1024
_BOUNDS_NS = [round(bound * 1e9) for bound in REQUEST_BOUNDS_S]
#: Limits that a request can be refused for, as the metrics name them. "memory" limits the bytes of
#: all unanswered bodies. "deadlock" is no limit: such a request is refused in any case.
MAX_REQUESTS, MAX_MODEL_REQUESTS, MEMORY = "max_requests", "max_model_requests", "memory"
QUEUE_SIZE, QUEUE_TIMEOUT, TOKEN = "max_queue_size", "queue_timeout", "token"
DEADLOCK = "deadlock"
#: Least duration that is counted; shorter durations count as this one.
_LEAST_NS = 1024
#: Index of the first of three fields for each kind of response: its count, the time to compute it,
#: the time to send it.
_SUCCESS, _FAIL, _EMPTY, _CANCEL = 0, 3, 6, 9
_FIELDS = 12
#: Maximum number of indexes, as in the stubs; a larger index is malformed.
_MAX_INDEXES = 1024
#: Nanoseconds from an arbitrary origin.
Clock = Callable[[], int]


def no_clock() -> int:
    """A clock that always reads 0, for the simulation and tests. The service passes a real one."""
    return 0


class ResponseCounts:
    """The response counters of one generation."""

    def __init__(self) -> None:
        self._rows: dict[int, list[int]] = {}

    def add(self, text: str) -> None:
        """Add the counts of a stub since its last message. Raises ProtocolError."""
        try:
            rows = json.loads(text)
            if any(type(x) is not int or x < 0 for row in rows for x in row):
                raise ValueError
            for index, *counts in rows:
                if len(counts) != _FIELDS or index >= _MAX_INDEXES:
                    raise ValueError
                sums = self._rows.get(index)
                self._rows[index] = (
                    counts if sums is None else [a + b for a, b in zip(sums, counts, strict=True)]
                )
        except (ValueError, TypeError, RecursionError):
            raise ProtocolError("Results: malformed response counts") from None

    def as_dict(self) -> dict[str, dict[str, dict[str, int]]]:
        """Return the counters by index, in the protocol's form."""
        return {str(index): _describe(row) for index, row in sorted(self._rows.items())}


def _describe(row: list[int]) -> dict[str, dict[str, int]]:
    answered = row[_SUCCESS] + row[_FAIL]
    durations: dict[str, tuple[int, int]] = {
        "compute_infer": (answered, row[_SUCCESS + 1] + row[_FAIL + 1]),
        "compute_output": (answered, row[_SUCCESS + 2] + row[_FAIL + 2]),
    }
    kinds = {"success": _SUCCESS, "fail": _FAIL, "empty_response": _EMPTY, "cancel": _CANCEL}
    for name, place in kinds.items():
        durations[name] = row[place], row[place + 1] + row[place + 2]
    return {name: {"count": count, "ns": ns} for name, (count, ns) in durations.items()}


class TrialTimes:
    __slots__ = ("_compute", "_request", "uncopied")

    def __init__(self) -> None:
        #: Number of requests of models and ensembles that were not copied to the version on trial,
        #: as clients' would have been.
        self.uncopied = 0
        self._compute: dict[int, int] = {}
        self._request: dict[int, int] = {}

    def add_request(self, ns: int) -> None:
        """Count a request that has succeeded: the time from its arrival to its answer."""
        _add(self._request, ns, 1)

    def add_execution(self, ns: int, requests: int) -> None:
        """Count an execution, once for each of its requests."""
        _add(self._compute, ns, requests)

    def as_dict(self) -> dict[str, Any]:
        """Return the counts of durations by nanoseconds, and the number of requests."""
        times = {
            name: {str(_middle_ns(size)): count for size, count in sizes.items()}
            for name, sizes in (("compute", self._compute), ("request", self._request))
        }
        return {**times, "uncopied": self.uncopied}


def _add(sizes: dict[int, int], ns: int, count: int) -> None:
    """Count a duration by its highest bit and the three bits after that."""
    ns = max(ns, _LEAST_NS)
    bits = ns.bit_length()
    size = bits << 3 | (ns >> (bits - 4)) & 7
    sizes[size] = sizes.get(size, 0) + count


def _middle_ns(size: int) -> int:
    bits, eighth = size >> 3, size & 7
    return (17 + 2 * eighth) << (bits - 5)


class CountedRequest(Protocol):
    """A request, as the counters need it."""

    arrived_ns: int
    dispatched_ns: int
    #: The number of inferences that it counts for.
    elements: int
    brokered_responses: int
    #: True if its client has cancelled it, or no longer waits for it.
    is_cancelled: bool
    #: True if it was already counted as failed, at its deadline.
    is_counted: bool
    #: Text of the error that it has failed with, or "".
    error: str


class CountedBatch(Protocol):
    """The requests of one execution."""

    @property
    def requests(self) -> Sequence[CountedRequest]:
        """The requests that were executed."""

    @property
    def fillers(self) -> int:
        """The number of padding requests."""


@dataclass(slots=True, eq=False)
class Duration:
    """A count, and the sum of the time."""

    count: int = 0
    ns: int = 0

    def add(self, count: int, ns: int) -> None:
        self.count += count
        self.ns += ns

    def as_dict(self) -> dict[str, int]:
        return {"count": self.count, "ns": self.ns}


@dataclass(slots=True, eq=False)
class ComputeTimes:
    """A count, and the sums of the times for input, inference and output."""

    count: int = 0
    input_ns: int = 0
    infer_ns: int = 0
    output_ns: int = 0

    def add(self, count: int, input_ns: int, infer_ns: int, output_ns: int) -> None:
        self.count += count
        self.input_ns += input_ns
        self.infer_ns += infer_ns
        self.output_ns += output_ns

    def as_dict(self) -> dict[str, dict[str, int]]:
        return {
            "compute_input": {"count": self.count, "ns": self.input_ns},
            "compute_infer": {"count": self.count, "ns": self.infer_ns},
            "compute_output": {"count": self.count, "ns": self.output_ns},
        }


@dataclass(eq=False)
class Overdue:
    """The requests whose deadline has passed while they were executed."""

    count: int = 0
    #: Sum of the times from arrival to deadline, which their clients allowed, and sum of the parts
    #: of these that were spent in the queue.
    allowed_ns: int = 0
    queued_ns: int = 0
    last_ns: int = 0

    def as_dict(self, wall_offset_ns: int) -> dict[str, float]:
        return {
            "count": self.count,
            "allowed_s": self.allowed_ns / 1e9,
            "queued_s": self.queued_ns / 1e9,
            "at_s": (self.last_ns + wall_offset_ns) / 1e9,
        }


class ModelStatistics:
    """Counters since the generation was loaded."""

    def __init__(self) -> None:
        self.inference_count = 0
        self.execution_count = 0
        self.last_arrival_ns = 0
        self.success = Duration()
        self.fail = Duration()
        self.queue = Duration()
        self.compute = ComputeTimes()
        self.cache_hit = Duration()
        self.cache_miss = Duration()
        self.failures = {REJECTED: 0, CANCELED: 0, BACKEND: 0, OTHER: 0}
        #: Number of requests that were refused for a limit, by its name.
        self.refusals: dict[str, int] = {}
        #: Text and time of the last failure that was not its client's wish.
        self.last_error: tuple[str, int] = ("", 0)
        #: Number of requests whose deadline has passed, and figures of those that were being
        #: executed then.
        self.deadlines = 0
        self.overdue = Overdue()
        #: True if record_response() must be called for models with a single response, too.
        self.times_responses = False
        #: Response counters of a decoupled model; None for others, which give one response each.
        self.responses: ResponseCounts | None = None
        #: Number of streams' responses that went straight to their readers, and of those that came
        #: through the broker.
        self.direct = 0
        self.brokered = 0
        #: Latencies in ns of requests that succeeded since the last reading (`reports.Readings`).
        #: Only requests whose number has no bit of the mask are kept, so that the samples of a busy
        #: model come from the whole interval.
        self.latencies_ns: deque[int] = deque(maxlen=MAX_LATENCIES)
        self.latencies_mask = 0
        #: Number of requests that succeeded within each bound, but not within the one before it;
        #: the last entry is for requests above all bounds.
        self.times = [0] * (len(_BOUNDS_NS) + 1)
        #: Requests that were cancelled while they were executed, and how many of them have
        #: succeeded and failed since.
        self.unawaited, self.late_successes, self.late_failures = 0, 0, 0
        #: Kept while the version is compared with another one.
        self.trial: TrialTimes | None = None
        #: A larger request is executed in parts of this size; 0 if requests are never split.
        self.split_above = 0
        #: The parts of an execution, by the size of its batch.
        self.batches: defaultdict[int, ComputeTimes] = defaultdict(ComputeTimes)

    def record_success(self, request: CountedRequest, now_ns: int) -> None:
        latency_ns = now_ns - request.arrived_ns
        success = self.success
        success.count += 1
        success.ns += latency_ns
        if not success.count & self.latencies_mask:
            self.latencies_ns.append(latency_ns)
        self.times[bisect_left(_BOUNDS_NS, latency_ns)] += 1
        if self.trial is not None:
            self.trial.add_request(latency_ns)
        if request.is_cancelled:
            self.late_successes += 1
        self.inference_count += request.elements

    def record_cache_hit(self, request: CountedRequest, lookup_ns: int) -> None:
        """Count a request that was answered from the cache."""
        self.success.add(1, lookup_ns)
        if not self.success.count & self.latencies_mask:
            self.latencies_ns.append(lookup_ns)
        self.times[bisect_left(_BOUNDS_NS, lookup_ns)] += 1
        self.queue.add(1, 0)
        self.cache_hit.add(1, lookup_ns)

    def record_cache_insertion(self, lookup_ns: int, insertion_ns: int) -> None:
        """Add the time of an insertion to the times of a request that missed the cache."""
        self.cache_miss.add(0, insertion_ns)

    def record_rejection(self, limit: str, text: str, now_ns: int) -> None:
        """Count a request that was never admitted, with the reason."""
        self.fail.add(1, 0)
        self.failures[REJECTED] += 1
        self.last_error = text, now_ns
        self.record_refusal(limit)

    def record_refusal(self, limit: str) -> None:
        """Count a request that was refused because of a limit, in addition to its failure."""
        self.refusals[limit] = self.refusals.get(limit, 0) + 1

    def record_failure(self, request: CountedRequest, reason: str, now_ns: int) -> None:
        if request.is_counted:
            return
        self.fail.add(1, now_ns - request.arrived_ns)
        self.failures[reason] += 1
        if reason != CANCELED:
            self.last_error = request.error, now_ns
        if request.is_cancelled and reason == BACKEND:
            self.late_failures += 1

    def record_overdue(self, request: CountedRequest, deadline_ns: int, now_ns: int) -> None:
        """Count a request whose deadline passes in its execution, in addition to its failure."""
        overdue = self.overdue
        overdue.count += 1
        overdue.allowed_ns += max(0, deadline_ns - request.arrived_ns)
        overdue.queued_ns += max(0, request.dispatched_ns - request.arrived_ns)
        overdue.last_ns = now_ns
        if request.is_cancelled:  # its client left first, and it counts as unawaited, too
            self.late_failures += 1

    def record_response(
        self, request: CountedRequest, outcome: Outcome, has_response: bool, now_ns: int
    ) -> None:
        """Count a response of a stream, or its end, which has the number of responses."""
        if self.responses is None:
            return
        request.brokered_responses += has_response
        if outcome.flags & FINAL:
            self.brokered += request.brokered_responses
            self.direct += max(0, outcome.number + has_response - request.brokered_responses)

    def record_ensemble(self, request: CountedRequest, queue_ns: int, compute_ns: int) -> None:
        """Count a request to an ensemble that has succeeded.

        It counts with the times of its steps: clients look for the busy version there.
        """
        self.execution_count += 1
        self.queue.add(1, queue_ns)
        if self.trial is not None:
            self.trial.add_execution(compute_ns, 1)
        for times in (self.compute, self.batches[request.elements]):
            times.add(1, 0, compute_ns, 0)

    def record_execution(self, batch: CountedBatch, times: Executed) -> None:
        requests = batch.requests
        if not requests:
            return  # an earlier broker knew its times
        count = len(requests)
        size, queue_ns = batch.fillers, 0
        for request in requests:
            size += request.elements
            queue_ns += request.dispatched_ns - request.arrived_ns
        self.execution_count += 1
        self.queue.count += count
        self.queue.ns += queue_ns
        _, input_ns, infer_ns, output_ns, _ = times
        if self.trial is not None:
            self.trial.add_execution(input_ns + infer_ns + output_ns, count)
        if 0 < self.split_above < size:
            self._record_parts(size, (input_ns, infer_ns, output_ns))
            return
        # as add() does, without the calls
        for of, weight in ((self.compute, count), (self.batches[size], 1)):
            of.count += weight
            of.input_ns += weight * input_ns
            of.infer_ns += weight * infer_ns
            of.output_ns += weight * output_ns

    def _record_parts(self, size: int, times_ns: tuple[int, int, int]) -> None:
        """Count a request that was executed in parts: as one, and an execution for each part.

        Only the time of all parts is known; each has its share.
        """
        whole, rest = divmod(size, self.split_above)
        self.execution_count += whole + (rest > 0) - 1
        self.compute.add(1, *times_ns)
        for part, count in ((self.split_above, whole), (rest, int(rest > 0))):
            if count:
                self.batches[part].add(count, *(ns * part * count // size for ns in times_ns))

    def as_dict(self, name: str, version: int, pending: int, wall_offset_ns: int) -> dict[str, Any]:
        """Return the entry of `model_stats`.

        `zmqtriton` has the figures that the protocol has no field for.
        """
        last = self.last_arrival_ns
        return {
            "name": name,
            "version": str(version),
            "last_inference": (last + wall_offset_ns) // 1_000_000 if last else 0,
            "inference_count": self.inference_count,
            "execution_count": self.execution_count,
            "inference_stats": {
                "success": self.success.as_dict(),
                "fail": self.fail.as_dict(),
                "queue": self.queue.as_dict(),
                **self.compute.as_dict(),
                "cache_hit": self.cache_hit.as_dict(),
                "cache_miss": self.cache_miss.as_dict(),
            },
            "response_stats": self.responses.as_dict() if self.responses is not None else {},
            "batch_stats": [
                {"batch_size": size, **times.as_dict()}
                for size, times in sorted(self.batches.items())
            ],
            "memory_usage": [],
            "zmqtriton": {"pending": pending, **self.own()},
        }

    def own(self) -> dict[str, Any]:
        """Return the figures that the protocol has no field for."""
        # a comparison with another version needs these
        late = self.unawaited, self.late_successes, self.late_failures
        return {
            "failures": dict(self.failures),
            "refusals": dict(self.refusals),
            "times": self.times,
            "deadlines": self.deadlines,
            "direct_responses": self.direct,
            "brokered_responses": self.brokered,
            **({} if self.trial is None else {"trial": self.trial.as_dict(), "unawaited": late}),
        }


@dataclass(eq=False)
class Traffic:
    """Counters of the broker's sockets, and of its loop."""

    received_bytes: int = 0
    sent_bytes: int = 0
    #: Messages that were dropped: malformed, or not allowed from where they came.
    malformed: int = 0
    #: Durations of the loop's turns, as of the last question about statistics.
    turns: dict[str, Any] = field(default_factory=dict)
