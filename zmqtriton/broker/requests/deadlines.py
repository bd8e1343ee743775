"""The error of a request whose deadline has passed: it says where the request was, and how long."""

from __future__ import annotations

from collections.abc import Mapping

from zmqtriton.broker.requests.inflight import InflightRequest, RequestState
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton_floor.errors import DeadlineExceeded
from zmqtriton_floor.wire import RESENT


def overdue(
    request: InflightRequest, instances: Mapping[int, Instance], now_ns: int
) -> DeadlineExceeded:
    """Return the error; to be called while the request is where it was."""
    return DeadlineExceeded(f"Deadline Exceeded: {_where(request, instances, now_ns)}")


def _where(request: InflightRequest, instances: Mapping[int, Instance], now_ns: int) -> str:
    model = request.generation.model
    if request.steps is not None:
        within = f"in ensemble '{model}', "
        steps = [_where(step, instances, now_ns) for step in request.steps]
        return within + (steps[0] if steps else "the request waited for a step")
    if is_executing(request, instances):
        took = _seconds(now_ns - request.dispatched_ns)
        # an earlier broker may have had it for long
        took = f"at least {took}" if request.row.flags & RESENT and not request.batch else took
        return f"model '{model}' was executing the request for {took}"
    waited = _seconds(now_ns - request.queued_ns)
    if request.is_undecided:
        return (
            f"the broker had died, and the request waited for {waited} until the instances of "
            f"'{model}' would tell whether one of them was executing it"
        )
    return f"the request waited for {waited} in the queue of '{model}'"


def is_executing(request: InflightRequest, instances: Mapping[int, Instance]) -> bool:
    """True unless the request is queued, or waits in its stub for the batch before."""
    if request.state is not RequestState.EXECUTING:
        return False
    instance, batch = instances.get(request.stub), request.batch
    if instance is None or instance.concurrency > 1 or batch is None:
        return True
    return batch.number not in instance.batches or batch is next(iter(instance.batches.values()))


def _seconds(ns: int) -> str:
    return f"{max(0, ns) / 1e9:.3f} s"
