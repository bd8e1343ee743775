"""A canary that gets captured requests before any client's: `canary start --from-capture`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from zmqtriton.embedded import connect
from zmqtriton_addons.capture.records import read
from zmqtriton_addons.capture.replaying import Plan, Report, chosen, in_order_of_time, replay
from zmqtriton_floor.errors import NotFound

Call = Callable[[str, dict[str, Any]], Any]
#: No client's request is for it, and only the answers are judged.
_ALONE = {
    "weight": "0",
    "shadow": "0",
    "abort_failures": "off",
    "abort_latency": "off",
    "promote_after": "off",
}
#: The settings of a canary without others.
_USUAL = {"header": "off", "abort_failures": "5"}


def judge(
    context: click.Context, call: Call, values: Mapping[str, Any], captures: Path
) -> tuple[Report, dict[str, Any]]:
    """Load the version, send it the captured requests, and abort it unless answers are as before.

    Then its settings are those of `values`. Return the report and the canary.
    """
    model, version = values["model"], str(values["version"])
    records = list(chosen(in_order_of_time(read(captures)), model, 0))
    if not records:
        raise NotFound(f"'{captures}' has no requests to {model}")
    header = f"x-zmqtriton-judged: {secrets.token_hex(12)}"
    call("canary.start", {**values, **_ALONE, "header": header})
    plan = Plan(model, version, float(values.get("tolerance", 0)))
    has_passed = False
    try:
        with connect(context.obj.name, path=context.obj.directory) as server:
            report = replay(server, records, plan)
        has_passed = report.has_passed
    finally:
        if not has_passed:
            canary = call("canary.abort", {"model": model})
    if has_passed:
        chosen_values = {key: value for key, value in values.items() if key != "version"}
        canary = call("canary.change", {**_USUAL, **chosen_values})
    return report, canary
