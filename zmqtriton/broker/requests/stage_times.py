"""The stages of a request to a model whose client wants to know them.

Asked when a reply is made, for requests with WANT_STAGES alone. Knows what the stub reports in the
same message as the reply; of what it reports later only the sum is known.
"""

from __future__ import annotations

from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton_floor.wire import StageTimes


def of(request: InflightRequest, instance: Instance | None, now_ns: int) -> StageTimes:
    """Return the times up to now; the instance is the one that has the request."""
    own_id = request.row.id
    queue_ns = max(0, request.dispatched_ns - request.arrived_ns)
    if instance is not None:
        for executed in instance.reported:
            batch = instance.batches.get(executed.batch)
            if batch is not None and request in batch.requests:
                times = executed.input_ns, executed.infer_ns, executed.output_ns
                return StageTimes(own_id, queue_ns, *times)
    return StageTimes(own_id, queue_ns, 0, max(0, now_ns - request.dispatched_ns), 0)
