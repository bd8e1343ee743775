"""`zmqtriton-ctl canary`: versions on trial next to the serving version."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from zmqtriton.sdk.process import Client
from zmqtriton_standard.ctl.asking import EXIT_REFUSED, exit_on_error, run_with_client
from zmqtriton_standard.ctl.output import print_result, with_format
from zmqtriton_standard.ctl.selecting import MODEL, CommandGroup
from zmqtriton_standard.ctl.tables import print_table

_HEADER = ("Model", "Stable", "Canary", "Phase", "Share", "Requests", "Failed", "Mean", "Since")
#: The percentage of a canary that is not running.
_SHARES = {"LOADING": 0, "ABORTING": 0, "ABORTED": 0, "PROMOTING": 100, "PROMOTED": 100}
_OPTIONS = (
    click.option("--weight", metavar="PERCENT", help="Part of the requests without a version."),
    click.option("--header", metavar="'NAME: VALUE'", help="All requests with this header, too."),
    click.option(
        "--sticky",
        metavar="HEADER|id|off",
        help="Same header or request id, same version, as an A/B test needs.",
    ),
    click.option("--shadow", metavar="PERCENT", help="Copy this part; compare, answer nobody."),
    click.option("--tolerance", metavar="NUMBER", help="By which compared numbers may differ."),
    click.option(
        "--abort-failures",
        metavar="PERCENT|off",
        help="Abort if its failure rate exceeds the stable version's by this much; default is 5.",
    ),
    click.option(
        "--abort-latency",
        metavar="FACTOR|off",
        help="Abort if its latency is this many times the stable version's.",
    ),
    click.option(
        "--latency",
        metavar="MEASURE",
        help="'compute' or 'request', and 'mean' or as 'p99'; default is 'compute p90'.",
    ),
    click.option(
        "--abort-hang",
        metavar="TIME|off",
        help="Abort if an execution lasts this long; default is 30s.",
    ),
    click.option(
        "--abort-within",
        metavar="TIME|off",
        help="Time for running requests after an abort; default is 30s.",
    ),
    click.option(
        "--min-requests", metavar="COUNT", help="Requests before a judgement; default is 50."
    ),
    click.option("--promote-after", metavar="TIME|off", help="Promote after this time, as in 10m."),
)


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.group(cls=CommandGroup)
def canary() -> None:
    """Try a version of a model, then promote or abort it."""


@canary.command()
@click.argument("model", type=MODEL)
@click.argument("version", type=click.IntRange(1))
@click.option(
    "--from-capture",
    "captures",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Send it these captured requests first; end it, with status 1, if an answer differs by "
    "more than --tolerance.",
)
@_with_settings
@with_format
@click.pass_context
def start(
    context: click.Context,
    /,
    model: str,
    version: int,
    *,
    captures: Path | None,
    form: str,
    **settings: str | None,
) -> None:
    """Load VERSION of MODEL next to the serving one, and give it its share."""
    values = _values(model, settings, version=version)
    if captures is None:
        _show(form, _call(context, "canary.start", values))
        return
    if not any(settings[name] for name in ("weight", "header", "shadow")):
        raise click.UsageError("a canary needs --weight, --header or --shadow, or gets nothing")
    from zmqtriton_extras.capture.command import describe_report, judge, print_report

    with exit_on_error():
        report, document = judge(context, partial(_call, context), values, captures)

    def show() -> None:
        print_report(report)
        click.echo()
        _print([document])

    print_result(form, {"replay": describe_report(report), "canary": document}, show)
    if not report.has_passed:
        sys.exit(EXIT_REFUSED)


@canary.command("set")
@click.argument("model", type=MODEL)
@_with_settings
@with_format
@click.pass_context
def change(context: click.Context, /, model: str, *, form: str, **settings: str | None) -> None:
    """Change the settings of the canary of MODEL."""
    _show(form, _call(context, "canary.change", _values(model, settings)))


@canary.command()
@click.argument("model", type=MODEL)
@click.argument("percent")
@with_format
@click.pass_context
def weight(context: click.Context, model: str, percent: str, form: str) -> None:
    """Give the canary of MODEL another share."""
    _show(form, _call(context, "canary.change", {"model": model, "weight": percent}))


@canary.command()
@click.argument("model", type=MODEL)
@with_format
@click.pass_context
def promote(context: click.Context, model: str, form: str) -> None:
    """Let the canary of MODEL serve all requests."""
    document = _call(context, "canary.promote", {"model": model})
    text = f"version {document['canary']} of {model} serves all requests"
    print_result(form, document, text)


@canary.command()
@click.argument("model", type=MODEL)
@with_format
@click.pass_context
def abort(context: click.Context, model: str, form: str) -> None:
    """Let the stable version of MODEL serve all requests again; unload the canary."""
    document = _call(context, "canary.abort", {"model": model})
    text = f"version {document['stable']} of {model} serves all requests again"
    print_result(form, document, text)


@canary.command()
@click.argument("model", type=MODEL, default="")
@with_format
@click.pass_context
def status(context: click.Context, model: str, form: str) -> None:
    """Show the current or last canary of MODEL, or of all models."""
    document = _call(context, "canary.status", {"model": model} if model else {})
    print_result(form, document, lambda: _print(document))


def _call(context: click.Context, verb: str, arguments: dict[str, Any]) -> Any:
    """Make a call; a call that loads a version takes as long as the load."""
    is_change = verb != "canary.status"
    timeout_s = None if is_change else Client.QUICK_TIMEOUT_S
    return run_with_client(
        context, lambda client: client.call(verb, arguments, timeout_s), to_change=is_change
    )


def _values(model: str, settings: dict[str, str | None], **others: Any) -> dict[str, Any]:
    chosen = {name: value for name, value in settings.items() if value is not None}
    return {"model": model, **others, **chosen}


def _show(form: str, document: dict[str, Any]) -> None:
    print_result(form, document, lambda: _print([document]))


def _print(canaries: list[dict[str, Any]]) -> None:
    """Print a line for each version, and further facts below."""
    print_table(_HEADER, [row for canary in canaries for row in _rows(canary)])
    for canary in canaries:
        for line in _notes(canary):
            click.echo(line)


def _rows(canary: dict[str, Any]) -> list[tuple[str, ...]]:
    counts = canary["counts"]
    rows: list[tuple[str, ...]] = []
    share_of_canary = _SHARES.get(canary["phase"], canary["weight"])
    for who, share in (("stable", 100 - share_of_canary), ("canary", share_of_canary)):
        figures = counts[who]
        is_canary = who == "canary"
        rows.append(
            (
                "" if is_canary else canary["model"],
                "" if is_canary else str(canary["stable"]),
                str(canary["canary"]) if is_canary else "",
                canary["phase"] if is_canary else "",
                f"{share:g} %",
                str(figures["requests"]),
                str(figures["failed"]),
                f"{figures['mean_ms']:.2f} ms" if figures["requests"] else "-",
                f"{canary['seconds']:.0f}s" if is_canary else "",
            )
        )
    return rows


def _notes(canary: dict[str, Any]) -> list[str]:
    model, notes = canary["model"], []
    if canary["phase"] == "RUNNING" and canary.get("slowness"):
        notes.append(f"{model}: {canary['slowness']}")
    if canary["reason"]:
        notes.append(f"{model}: {canary['phase'].lower()}: {canary['reason']}")
    if canary["header"]:
        notes.append(f"{model}: requests with '{canary['header']}' are the canary's")
    if canary["sticky"]:
        what = "id" if canary["sticky"] == "id" else f"'{canary['sticky']}'"
        notes.append(f"{model}: requests with the same {what} get the same version")
    compared = canary["comparisons"]
    if canary["shadow"] or any(compared[result] for result in ("equal", "different", "failed")):
        uncopied = compared.get("uncopied", 0)
        of_models = f" ({uncopied} were asked by models, which are not copied)" if uncopied else ""
        notes.append(
            f"{model}: {canary['shadow']:g} % are copied: {compared['equal']} equal, "
            f"{compared['different']} different, {compared['failed']} failed, "
            f"{compared['skipped']} skipped{of_models}"
        )
        notes += [f"  {text}" for text in compared["differences"]]
    return notes
