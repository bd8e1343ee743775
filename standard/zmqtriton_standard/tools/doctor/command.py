"""`zmqtriton-ctl doctor`: prints faults, the most important first."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

import click

from zmqtriton.sdk.models import Finding, Severity
from zmqtriton_standard.ctl.asking import EXIT_REFUSED, exit_on_error
from zmqtriton_standard.ctl.output import print_document, with_format

_FIELDS = ("severity", "text", "advice", "commands")
_COLOURS = {
    Severity.ERROR: "red",
    Severity.WARNING: "yellow",
    Severity.NOTE: "cyan",
}


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

    Without a server, judges whether one could start: with the options behind --, or those of the
    systemd unit, or the defaults. The exit status is 1 for an error, 0 for warnings at most.
    """
    # only now: the other commands do not need all that
    from zmqtriton_standard.tools.doctor.examination import examine, find_target, list_subjects

    with exit_on_error():
        target = find_target(context.obj, repositories, options)
    subjects = list_subjects(target)
    findings = examine(subjects)
    if form == "table":
        whom = "a server with these options" if options else target.describe()
        _print(findings, f"{whom}; {len(subjects)} things were looked at")
    else:
        print_document(form, [each.document(*_FIELDS) for each in findings])
    if any(finding.severity is Severity.ERROR for finding in findings):
        sys.exit(EXIT_REFUSED)


def _print(findings: Sequence[Finding], about: str) -> None:
    for finding in findings:
        severity = finding.severity
        word = click.style(severity.value, fg=_COLOURS[severity])
        click.echo("\n".join(finding.lines(word)) + "\n")
    counts = Counter(finding.severity for finding in findings)
    texts = [
        f"{counts[each]} {each.value}{'s' * (counts[each] != 1)}"
        for each in Severity
        if counts[each]
    ]
    if not counts[Severity.ERROR] and not counts[Severity.WARNING]:
        texts.insert(0, "nothing is wrong")
    click.echo(f"{about}: {', '.join(texts)}")
