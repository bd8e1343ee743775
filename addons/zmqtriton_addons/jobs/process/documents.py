"""Documents of jobs, for their clients, the operator and the receivers of webhooks."""

from __future__ import annotations

from zmqtriton_addons.jobs.messages import Document
from zmqtriton_addons.jobs.process.store import QUEUED, RUNNING, Job
from zmqtriton_addons.jobs.process.webhooks.records import Webhook


def describe(job: Job, place: int = 0, webhook: Webhook | None = None) -> Document:
    document: Document = {"id": job.id, "path": job.path, "state": job.state}
    if place:
        document["place"] = place
    times = {"submitted": job.submitted, "started": job.started, "ended": job.ended}
    document |= {name: round(at, 3) for name, at in times.items() if at is not None}
    if job.state not in (QUEUED, RUNNING) and job.status is not None:
        document |= {"status": job.status, "result": f"/v2/jobs/{job.id}/result"}
    if job.reason is not None:
        document["reason"] = job.reason
    if webhook is not None:
        document["webhook"] = _describe_webhook(webhook)
    return document


def _describe_webhook(webhook: Webhook) -> Document:
    document: Document = {"url": webhook.url, "state": webhook.state, "tries": webhook.tries}
    if webhook.due is not None:
        document["next"] = round(webhook.due, 3)
    if webhook.problem is not None:
        document["problem"] = webhook.problem
    return document
