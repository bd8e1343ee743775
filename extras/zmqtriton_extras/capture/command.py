"""`zmqtriton-ctl replay`: sends captured requests again, and prints how the answers differ.

`canary start --from-capture` tests a canary with them before it gets clients' requests.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from zmqtriton.sdk.process import Server, connection
from zmqtriton.sdk.wire import NotFound
from zmqtriton_extras.capture.records import read
from zmqtriton_extras.capture.replaying import (
    FAILED,
    SKIPPED,
    Plan,
    Report,
    chosen,
    in_order_of_time,
)
from zmqtriton_extras.capture.replaying import replay as send_again
from zmqtriton_standard.ctl.asking import EXIT_REFUSED, exit_on_error
from zmqtriton_standard.ctl.output import print_result, with_format
from zmqtriton_standard.ctl.tables import print_table

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


def _read_speed(context: click.Context, parameter: click.Parameter, value: str) -> float:
    try:
        speed = float(value.removesuffix("x"))
    except ValueError:
        speed = -1.0
    if not 0 <= speed < float("inf"):
        raise click.BadParameter(f"'{value}' must be a speed such as 2x")
    return speed


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--model",
    "target",
    default="",
    metavar="MODEL[:VERSION]",
    help="Requests to this model, sent to this version of it. Default is all, as captured.",
)
@click.option(
    "--to",
    "other",
    default="",
    metavar="MODEL",
    help="The model that gets them, if it is another one.",
)
@click.option(
    "--tolerance",
    default=0.0,
    type=click.FloatRange(0),
    metavar="T",
    help="By what numbers may differ: absolutely near 0, relatively elsewhere. Default is 0.",
)
@click.option(
    "--speed",
    default="0",
    metavar="X",
    callback=_read_speed,
    help="Keep the times between requests: 1x as captured, 2x twice as fast. Default is as fast as "
    "answers come.",
)
@click.option(
    "--clients",
    default=4,
    type=click.IntRange(1, 256),
    metavar="N",
    help="Requests at a time, without --speed. Default is 4.",
)
@click.option("--limit", default=0, type=click.IntRange(0), metavar="N", help="The first N only.")
@click.option(
    "--repository",
    default=None,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Start a server with these models for it, in place of asking one that runs.",
)
@with_format
@click.pass_context
@exit_on_error()
def replay(
    context: click.Context,
    directory: Path,
    *,
    target: str,
    other: str,
    tolerance: float,
    speed: float,
    clients: int,
    limit: int,
    repository: Path | None,
    form: str,
) -> None:
    """Send the requests of DIRECTORY again, and compare.

    The exit status is 1 if an answer differs or fails.
    Requests are those that a server with --capture has recorded. Sequences are kept in order.
    """
    model, _, version = target.partition(":")
    records = list(chosen(in_order_of_time(read(directory)), model, limit))
    if not records:
        raise NotFound(
            f"'{directory}' has no requests{f' to {model}' if model else ''}; capture some first"
        )
    plan = Plan(other or model, version, tolerance, speed, clients)
    ask: Callable[[], Any]
    if repository is not None:
        ask = lambda: Server(repository)  # noqa: E731 - one of two ways to the same
    else:
        ask = lambda: connection.connect(context.obj.name, path=context.obj.directory)  # noqa: E731
    with ask() as server:
        report = send_again(server, records, plan)
    print_result(form, describe_report(report), lambda: print_report(report))
    if not report.has_passed:
        sys.exit(EXIT_REFUSED)


def describe_report(report: Report) -> dict[str, Any]:
    """Return the report for programs."""
    return {
        "results": dict(report.counts),
        "latencies": report.latencies(),
        "tensors": [
            {"model": model, "tensor": tensor, "count": count, "worst": text, "id": id_}
            for (model, tensor), (count, _, text, id_) in report.worst.items()
        ],
        "shown": [
            {
                "id": result.id,
                "model": result.model,
                "result": result.kind,
                "differences": [d.text for d in result.differences],
            }
            for result in report.shown
        ],
    }


def print_report(report: Report) -> None:
    """Print the report for people."""
    latencies = report.latencies()
    kinds = ("equal", "within tolerance", "different", FAILED, SKIPPED)
    print_table(["Result", "Requests"], [[kind, str(report.counts[kind])] for kind in kinds])
    if latencies:
        click.echo()
        rows = [[when, str(t["p50_ms"]), str(t["p99_ms"])] for when, t in latencies.items()]
        print_table(["Latency", "p50 ms", "p99 ms"], rows)
    if report.worst:
        click.echo()
        rows = [
            [model, tensor or "-", str(count), id_, text]
            for (model, tensor), (count, _, text, id_) in sorted(
                report.worst.items(), key=lambda row: -row[1][1]
            )
        ]
        print_table(["Model", "Tensor", "Times", "Worst", "Difference"], rows)
    failed = [result for result in report.shown if result.kind == FAILED]
    if failed:
        click.echo()
        rows = [[r.id, r.model, r.differences[0].text] for r in failed]
        print_table(["Failed", "Model", "Error"], rows)


def judge(
    context: click.Context, call: Call, values: Mapping[str, Any], captures: Path
) -> tuple[Report, dict[str, Any]]:
    """Load the version, send it the captured requests, and abort it if responses differ.

    If they do not differ, gives it the settings in `values`. Returns the report and the canary.
    """
    model, version = values["model"], str(values["version"])
    records = list(chosen(in_order_of_time(read(captures)), model, 0))
    if not records:
        raise NotFound(f"'{captures}' has no requests to {model}; capture some first")
    header = f"x-zmqtriton-judged: {secrets.token_hex(12)}"
    call("canary.start", {**values, **_ALONE, "header": header})
    plan = Plan(model, version, float(values.get("tolerance", 0)))
    has_passed = False
    try:
        with connection.connect(context.obj.name, path=context.obj.directory) as server:
            report = send_again(server, records, plan)
        has_passed = report.has_passed
    finally:
        if not has_passed:
            canary = call("canary.abort", {"model": model})
    if has_passed:
        chosen_values = {key: value for key, value in values.items() if key != "version"}
        canary = call("canary.change", {**_USUAL, **chosen_values})
    return report, canary
