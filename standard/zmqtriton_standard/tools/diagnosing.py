"""`zmqtriton-ctl doctor` and `zmqtriton-ctl explain`: print findings, the most important first."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import click

from zmqtriton.sdk.models import Finding, Severity, figures
from zmqtriton.sdk.wire import logs
from zmqtriton_standard.ctl.asking import EXIT_REFUSED, exit_on_error, run_with_client
from zmqtriton_standard.ctl.output import LiveLine, print_document, print_note, with_format
from zmqtriton_standard.ctl.selecting import MODEL

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


@click.command()
@click.option(
    "--repository",
    "repositories",
    multiple=True,
    metavar="DIR",
    help="A model repository to look at, too. May be repeated.",
)
@click.argument("options", nargs=-1, metavar="[-- SERVER OPTION...]")
@with_format
@click.pass_context
def doctor(
    context: click.Context, repositories: tuple[str, ...], options: tuple[str, ...], form: str
) -> None:
    """Find faults of this machine, and of a running server.

    Without a server, judges whether one could start: with the options after --, or of the systemd
    unit, or the defaults. The exit status is 1 for an error, 0 for warnings at most.
    """
    # only now: the other commands do not need all that
    from zmqtriton.sdk.models import diagnose

    with exit_on_error():
        about, findings = diagnose(context.obj, repositories, options)
    if form == "table":
        _print_examined(findings, about)
    else:
        names = ("severity", "text", "advice", "commands")
        print_document(form, [each.document(*names) for each in findings])
    if any(finding.severity is Severity.ERROR for finding in findings):
        sys.exit(EXIT_REFUSED)


def _print_examined(findings: Sequence[Finding], about: str) -> None:
    for finding in findings:
        severity = finding.severity
        word = click.style(severity.value, fg=_COLOURS[severity])
        click.echo("\n".join(finding.lines(word)) + "\n")
    counts = Counter(finding.severity for finding in findings)
    texts = [figures.count_of(counts[each], each.value) for each in Severity if counts[each]]
    if not counts[Severity.ERROR] and not counts[Severity.WARNING]:
        texts.insert(0, "nothing is wrong")
    click.echo(f"{about}: {', '.join(texts)}")


@click.command()
@click.argument("model", type=MODEL, default="")
@click.argument("version", type=click.IntRange(1), required=False)
@with_format
@click.pass_context
def explain(context: click.Context, model: str, version: int | None, form: str) -> None:
    """Say why MODEL fails or is slow, and what to do.

    Without MODEL, show the troubles of the server and of all its models, the worst first.
    """
    # only now: the other commands do not need all that
    from zmqtriton.sdk.models import explain as explaining

    with LiveLine(f"explain {model}".rstrip()) as line:
        explained = run_with_client(
            context,
            lambda client: explaining(client, model, version or 0, line.show, print_note),
        )
    if form != "table":
        names = ("model", "text", "advice", "commands")
        rows = [replace(each, model=name) for name, findings in explained for each in findings]
        print_document(form, [each.document(*names) for each in rows])
        return
    if not explained:
        click.echo("the server and all models are as they should be")
    for number, (name, findings) in enumerate(explained):
        lines = [line for finding in findings for line in finding.lines(logs.escape(name))]
        click.echo("\n" * bool(number) + "\n".join(lines))
