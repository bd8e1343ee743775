"""`zmqtriton-ctl batches`: asks the process of jobs through its socket, as the server's user."""

from __future__ import annotations

import time
from typing import Any

import click

from zmqtriton.sdk.models import figures
from zmqtriton_extras.jobs.ctl import ask_jobs
from zmqtriton_standard.ctl.output import print_document, with_format
from zmqtriton_standard.ctl.selecting import CommandGroup
from zmqtriton_standard.ctl.tables import print_table

_HEADER = ("Batch", "State", "Age", "Answered", "Failed", "Token", "Endpoint", "Input")


@click.group(cls=CommandGroup, invoke_without_command=True)
@click.option(
    "--limit", default=100, type=click.IntRange(1, 10_000), help="The newest N. Default is 100."
)
@with_format
@click.pass_context
def batches(context: click.Context, limit: int, form: str) -> None:
    """List batches of all tokens, or change them."""
    if context.invoked_subcommand:
        return
    question = {"verb": "batch list", "limit": limit, "after": None}
    _print(ask_jobs(context, question)["data"], form)


@batches.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@with_format
@click.pass_context
def cancel(context: click.Context, ids: tuple[str, ...], form: str) -> None:
    """Cancel batches; responses to their lines so far are kept."""
    _print([ask_jobs(context, {"verb": "batch cancel", "id": own_id}) for own_id in ids], form)


def _print(documents: list[dict[str, Any]], form: str) -> None:
    if form == "table":
        print_table(_HEADER, [_row(document) for document in documents])
    else:
        print_document(form, documents)


def _row(batch: dict[str, Any]) -> list[str]:
    counts = batch["request_counts"]
    answered = f"{counts['completed'] + counts['failed']} of {counts['total']}"
    age = figures.format_duration(time.time() - batch["created_at"])
    words = [batch["id"], batch["status"], age, answered, str(counts["failed"])]
    return [*words, batch["token"], batch["endpoint"], batch["input_file_id"]]
