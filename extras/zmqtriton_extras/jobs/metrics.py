"""The figures of jobs for the page of metrics, whose process reads them at each scrape."""

from __future__ import annotations

from collections.abc import Iterator

from zmqtriton.sdk.frontend import Gateway
from zmqtriton_extras.jobs.channel import Channel
from zmqtriton_extras.jobs.messages import Document
from zmqtriton_standard.metrics.model_metrics import escape, head
from zmqtriton_standard.metrics.services import Figures

_QUESTION = {"verb": "figures", "owner": None}


def metrics(gateway: Gateway) -> Figures:
    """Return the function that makes the jobs' part of the metrics page."""
    channel = Channel.of(gateway)

    async def render() -> str:
        answer = await channel.ask(_QUESTION)
        if "refusal" in answer.document:  # the store is not open yet
            return ""
        return "".join(f"{line}\n" for line in _lines(answer.document))

    return render


def _lines(figures: Document) -> Iterator[str]:
    yield from head("zmqtriton_jobs", "Number of jobs on disk, by state", "gauge")
    for model, state, count in figures["counts"]:
        yield f'zmqtriton_jobs{{model="{escape(model)}",state="{state}"}} {count}'
    text = "Time since the oldest job in this state was submitted, or began to run"
    yield from head("zmqtriton_oldest_job_seconds", text, "gauge")
    for state in ("queued", "running"):
        age_s = figures["ages"].get(state, 0.0)
        yield f'zmqtriton_oldest_job_seconds{{state="{state}"}} {age_s:.3f}'
    yield from head("zmqtriton_jobs_writable", "1 if another job can be kept on disk", "gauge")
    yield f"zmqtriton_jobs_writable {int(figures['has_room'])}"
    yield from head("zmqtriton_webhook_tries_total", "Number of posts of ends of jobs", "counter")
    for result in ("delivered", "failed"):
        count = figures["tries"].get(result, 0)
        yield f'zmqtriton_webhook_tries_total{{result="{result}"}} {count}'
