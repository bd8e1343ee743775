"""`zmqtriton-ctl jobs`: asks the process of jobs through its socket, as the server's user."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from zmqtriton.sdk.models import figures
from zmqtriton.sdk.wire import InvalidArgument, NotFound, Unavailable
from zmqtriton_extras.jobs import messages
from zmqtriton_extras.jobs.messages import SERVICE
from zmqtriton_standard.ctl.asking import run_with_client
from zmqtriton_standard.ctl.output import print_document, with_format
from zmqtriton_standard.ctl.selecting import CommandGroup
from zmqtriton_standard.ctl.tables import print_table

_WITHIN_S = 60.0
_HEADER = ("Job", "State", "Age", "Bytes", "Token", "Path", "Webhook", "Reason")
_ENDED = ("succeeded", "failed", "cancelled")


@click.group(cls=CommandGroup, invoke_without_command=True)
@click.option("--failed", is_flag=True, help="Only jobs that have failed.")
@click.option(
    "--limit", default=100, type=click.IntRange(1, 10_000), help="The newest N. Default is 100."
)
@with_format
@click.pass_context
def jobs(context: click.Context, failed: bool, limit: int, form: str) -> None:
    """List jobs of all tokens, or change them."""
    if context.invoked_subcommand:
        return
    state = "failed" if failed else ""
    document = ask_jobs(context, {"verb": "list", "state": state, "limit": limit})["jobs"]
    if form == "table":
        print_table(_HEADER, [_row(job) for job in document])
    else:
        print_document(form, document)


@jobs.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--failed", is_flag=True, help="All that have failed.")
@with_format
@click.pass_context
def retry(context: click.Context, ids: tuple[str, ...], failed: bool, form: str) -> None:
    """Queue failed jobs again."""
    _change(context, "retry", ids, ("failed",) if failed else (), form)


@jobs.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--failed", is_flag=True, help="All that have failed.")
@click.option("--ended", is_flag=True, help="All that have ended.")
@with_format
@click.pass_context
def purge(
    context: click.Context, ids: tuple[str, ...], failed: bool, ended: bool, form: str
) -> None:
    """Remove jobs that have ended, and their results."""
    states = _ENDED if ended else ("failed",) if failed else ()
    _change(context, "purge", ids, states, form)


def _change(
    context: click.Context, verb: str, ids: Sequence[str], states: Sequence[str], form: str
) -> None:
    if bool(ids) == bool(states):
        raise click.UsageError(
            "name jobs by their ids, or pass an option such as --failed", context
        )
    document = {"verb": verb, "ids": list(ids), "states": list(states)}
    count = 0
    while some := ask_jobs(context, document)["count"]:
        count += some
        if ids:
            break
    if form == "table":
        click.echo(f"{count} {'job' if count == 1 else 'jobs'}")
    else:
        print_document(form, {"jobs": count})


def ask_jobs(context: click.Context, document: dict[str, Any]) -> dict[str, Any]:
    """Ask the process of jobs of the selected server, and return its answer."""

    def question(client: Any) -> dict[str, Any]:
        path = client.identity.addresses.get(SERVICE)
        if path is None:
            raise InvalidArgument("the server runs without jobs: start it with --jobs")
        try:
            answer = messages.ask(path, {"owner": None, **document}, _WITHIN_S)
        except OSError as error:
            raise Unavailable(
                f"the process of jobs does not answer, `zmqtriton-ctl logs` says why: {error}"
            ) from error
        if "refusal" in answer:
            raise NotFound(answer["reason"])
        return answer

    is_change = document["verb"] not in ("list", "batch list")
    answer: dict[str, Any] = run_with_client(context, question, to_change=is_change)
    return answer


def _row(job: dict[str, Any]) -> list[str]:
    size = figures.format_bytes(job["bytes"])
    age = figures.format_duration(time.time() - job["submitted"])
    words = [job["id"], job["state"], age, size, job["token"], job["path"]]
    return [*words, _webhook_text(job.get("webhook")), job.get("reason", "")]


def _webhook_text(webhook: dict[str, Any] | None) -> str:
    if webhook is None:
        return ""
    parts = [webhook["state"]]
    if webhook["tries"]:
        parts.append(f"{webhook['tries']} {'try' if webhook['tries'] == 1 else 'tries'}")
    if "problem" in webhook:
        parts.append(webhook["problem"])
    return ", ".join(parts)
