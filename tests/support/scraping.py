"""The metrics page of a server at this moment.

    eventually(lambda: total(server, "nv_inference_pending_request_count", model="m") == 1, 30)

Where a test would else sleep until something has surely happened, it waits for a count.
"""

from __future__ import annotations

from tests.support.server import Server


def read_series(server: Server) -> dict[str, float]:
    """All of the page: values by name and labels, as they stand there."""
    lines = server.metrics_text().splitlines()
    rows = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in rows}


def sum_series(server: Server, name: str, **labels: str) -> float:
    """The sum of all series with this name and these labels."""
    texts = [f'{label}="{value}"' for label, value in labels.items()]
    return sum(
        value
        for key, value in read_series(server).items()
        if key.partition("{")[0] == name and all(label in key for label in texts)
    )


def pending_requests(server: Server, model: str) -> int:
    """Requests in the queues of a model."""
    return int(sum_series(server, "nv_inference_pending_request_count", model=model))


def cancelled_requests(server: Server, model: str) -> int:
    """Requests to a model whose clients did not wait for the answer."""
    return int(sum_series(server, "nv_inference_request_failure", model=model, reason="CANCELED"))
