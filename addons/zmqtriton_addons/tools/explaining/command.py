"""`zmqtriton-ctl explain`: collects facts about models and prints the findings."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from zmqtriton.control_client import QUICK_TIMEOUT_S, Client
from zmqtriton.ctl import MODEL, needs_attention, print_document, run_with_client, with_format
from zmqtriton.findings import Finding
from zmqtriton_addons.tools.explaining.findings import Facts, find_all, no_models
from zmqtriton_floor.errors import NotFound
from zmqtriton_floor.reasons import Kind

_LOG_LINES = 1000
#: In this time something should have ended.
_SECOND_LOOK_S = 1.0


@click.command()
@click.argument("model", type=MODEL, default="")
@click.argument("version", type=click.IntRange(1), required=False)
@with_format
@click.pass_context
def explain(context: click.Context, model: str, version: int | None, form: str) -> None:
    """Say why MODEL is not ready, fails or is slow, and what to do about it.

    Without MODEL, for all models that are not ready or whose last load failed.
    """
    findings_by_model = run_with_client(
        context, lambda client: _explain(client, model, version or 0)
    )
    if form != "table":
        print_document(
            form,
            [
                replace(one, model=name).document("model", "text", "advice", "commands")
                for name, all_ in findings_by_model
                for one in all_
            ],
        )
        return
    if not findings_by_model:
        click.echo("all models are as they should be")
    for number, (name, findings) in enumerate(findings_by_model):
        click.echo(
            "\n" * bool(number) + "\n".join(line for each in findings for line in each.lines(name))
        )


def explain_model(client: Client, model: str, version: int = 0) -> list[Finding]:
    """Return the findings about a model, the most important first; 0 is all versions."""
    status = client.call("status", timeout_s=QUICK_TIMEOUT_S)
    index = client.call("index", {"ready": False, "reasons": True}, timeout_s=QUICK_TIMEOUT_S)
    return find_all(_collect(client, model, version, status, index))


def _explain(client: Client, model: str, version: int) -> list[tuple[str, list[Finding]]]:
    status = client.call("status", timeout_s=QUICK_TIMEOUT_S)
    index = client.call("index", {"ready": False, "reasons": True}, timeout_s=QUICK_TIMEOUT_S)
    troubled = [
        entry["name"]
        for entry in index
        if needs_attention(entry) or entry.get("why", {}).get("kind") == Kind.LAST_LOAD_FAILED
    ]
    if not (model or index):
        return [("the server", [no_models(status)])]
    names = [model] if model else list(dict.fromkeys(troubled))
    findings_by_model = []
    for name in names:
        facts = _collect(client, name, version, status, index)
        if model and not facts.entries:
            finding = find_all(facts)[0]
            hint = "; ".join(f"`{command}`" for command in finding.commands)
            raise NotFound(f"{model}: {finding.text}\n  {finding.advice}\n  next: {hint}")
        findings_by_model.append((name, find_all(facts)))
    return findings_by_model


def _collect(client: Client, model: str, version: int, status: Any, index: Sequence[Any]) -> Facts:
    facts = Facts(model, version, index, status, now_s=time.time())
    if not facts.entries:
        return facts
    arguments = {"model": model, "after": 0, "lines": _LOG_LINES}
    log = client.call("logs", arguments, timeout_s=QUICK_TIMEOUT_S)["lines"]
    later = None
    if any(row.get("unanswered") for row in facts.rows("counts")):
        time.sleep(_SECOND_LOOK_S)
        later = client.call("status", timeout_s=QUICK_TIMEOUT_S)
    places = [Path(each) / model for each in status.get("repositories", ())]
    readable = [place for place in places if os.access(place, os.R_OK | os.X_OK)]
    problems = _check(readable) if any(needs_attention(entry) for entry in facts.entries) else []
    return Facts(
        model,
        version,
        index,
        status,
        later,
        log,
        problems,
        [str(place) for place in readable],
        facts.now_s,
    )


def _check(places: list[Path]) -> list[Finding]:
    """Return the problems of a model's directories."""
    # only now: it reads protobuf definitions, and a model that is well needs none
    from zmqtriton_addons.tools.checking.configurations import CheckOptions
    from zmqtriton_addons.tools.checking.repositories import check_repositories

    problems: list[Finding] = []
    for place in places:
        report = check_repositories([place], CheckOptions())
        if place.name in report.models:
            problems += report.models[place.name].errors
    return problems
