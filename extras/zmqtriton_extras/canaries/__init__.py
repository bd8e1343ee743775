"""Canaries: versions on trial next to the serving version, then promoted or aborted."""

from __future__ import annotations

from zmqtriton.sdk import AddOn, Parameter

ADDON = AddOn(
    "canaries",
    title="Canaries",
    needs=(
        "capture",
        "ctl",
    ),
    parameters={
        "canary_version": Parameter("the number of a version", "", "The version that is tried."),
        "canary_weight": Parameter(
            "a percentage from 0 to 100", "0", "The share of the requests that it gets."
        ),
        "canary_header": Parameter(
            "a header such as 'X-Canary: 1', or 'off'", "", "Requests with this header get it, too."
        ),
        "canary_sticky": Parameter(
            "the name of a header, 'id', or 'off'",
            "off",
            "Requests with the same value of it get the same version.",
        ),
        "canary_shadow": Parameter(
            "a percentage from 0 to 100",
            "0",
            "The share of the other requests that it gets copies of.",
        ),
        "canary_tolerance": Parameter(
            "a number from 0 on", "0", "By which numbers of its answers may differ."
        ),
        "canary_abort_failures": Parameter(
            "a percentage from 0 to 100, or 'off'",
            "5",
            "Failures above the stable version's that end it, in percent.",
        ),
        "canary_abort_latency": Parameter(
            "a factor such as '2x', or 'off'",
            "off",
            "Multiple of the stable version's latency that ends it.",
        ),
        "canary_latency": Parameter(
            "a measure such as 'compute p90', 'request p99' or 'mean'",
            "compute p90",
            "The compared latency.",
        ),
        "canary_abort_hang": Parameter(
            "a time such as '30s', or 'off'", "30s", "How long an execution may last."
        ),
        "canary_abort_within": Parameter(
            "a time such as '30s', or 'off'",
            "30s",
            "How long its executions may go on once it is aborted.",
        ),
        "canary_min_requests": Parameter(
            "a number of requests", "50", "How many requests make a judgement."
        ),
        "canary_promote_after": Parameter(
            "a time such as '10m', '600s' or 600, or 'off'",
            "off",
            "When it becomes the version that serves.",
        ),
    },
    ctl={"canary": ".ctl:canary"},
    offers={
        "ctl.group": {"Load and change models": "canary"},
        "models.trial": ".settings",
        "supervisor.feature": ".registry:CanaryRegistry",
        "diagnosis.model": ".explaining",
        "requests.division": ".requests:Canaries",
    },
)
