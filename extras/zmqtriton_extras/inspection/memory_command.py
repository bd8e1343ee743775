"""`zmqtriton-ctl memory`: the memory of a model that grows, and its holders."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import click

from zmqtriton.sdk.models import figures
from zmqtriton.sdk.process import Client
from zmqtriton.sdk.wire import InternalError, logs
from zmqtriton_standard.ctl.asking import exit_on_error, run_with_client
from zmqtriton_standard.ctl.output import print_result, with_format
from zmqtriton_standard.ctl.selecting import MODEL
from zmqtriton_standard.ctl.tables import print_table

#: The server ends a measurement in this time after its seconds, whatever the instance does.
_GRACE_S = 60.0
_LINES = 5
#: Rows of an answer that are looked at; an instance sends no more.
_MOST_ROWS = 20
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "": 1.0}


class _Time(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A time such as 60, 60s or 2m."""

    name = "time"

    def get_metavar(self, param: click.Parameter, ctx: Any = None) -> str:
        return "TIME"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        text = str(value).strip()
        digits = text.rstrip("ms")
        try:
            seconds = float(digits) * _SECONDS[text[len(digits) :]]
        except (KeyError, ValueError):
            self.fail(f"'{value}' must be a time such as 60s or 2m", param, ctx)
        if not 0 < seconds < float("inf"):
            self.fail(f"'{value}' must be a time above 0", param, ctx)
        return seconds


@click.command()
@click.argument("model", type=MODEL)
@click.option(
    "--between",
    "seconds",
    type=_Time(),
    default="60s",
    help="Time between the two looks, such as 60s or 2m. Default is 60s.",
)
@click.option(
    "--instance",
    default="",
    metavar="N",
    help="Look at this instance: its name, such as m_0_0, or its number from 0 on. Default is the "
    "first.",
)
@with_format
@click.pass_context
def memory(context: click.Context, model: str, seconds: float, instance: str, form: str) -> None:
    """Show which memory of MODEL grows, by lines and holders.

    The model continues to serve, but more slowly, because its allocations are traced.
    """
    arguments = {"model": model, "seconds": seconds, "instance": instance}

    def question(client: Client) -> Any:
        client.check_model(model)
        answer = client.call("memory", arguments, seconds + _GRACE_S)
        status = client.call("status")
        held = [row for row in status["held"] if row["model"] == model]
        return answer, held, [row for row in status["spares"] if model in row["models"]]

    answer, holders, spares = run_with_client(context, question)
    with exit_on_error():
        seen = {**read(answer), "processes": holders, "spares": spares}
    print_result(form, seen, lambda: _print(seen))


def read(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the measurement in an answer. Raises InternalError: the model may have forged it."""
    try:
        [one] = answer["instances"]
        part = one["memory"]
        return {
            "model": str(answer["model"]),
            "instance": str(one["instance"]),
            "seconds": float(part["seconds"]),
            "resident_bytes": [int(size) for size in part["resident"]],
            "traced_bytes": int(part["traced"]),
            "lines": [
                {
                    "file": str(row["file"]),
                    "shown": _shown(str(row["file"]), part["directories"]),
                    "line": int(row["line"]),
                    "is_own": bool(row["is_own"]),
                    "bytes": int(row["bytes"]),
                    "count": int(row["count"]),
                }
                for row in part["lines"]
            ],
            "holders": [
                {
                    "name": str(row["name"]),
                    "kind": str(row["kind"]),
                    "before": int(row["before"]),
                    "after": int(row["after"]),
                    "file": str(row["file"]),
                    "line": int(row["line"]),
                }
                for row in part["holders"]
            ],
            "array_bytes": [int(size) for size in part["arrays"]],
            **{
                name: [(str(row[0]), int(row[1]), int(row[2])) for row in part[name][:_MOST_ROWS]]
                for name in ("types", "tensors", "cuda")
            },
        }
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise InternalError(
            f"an instance has returned no measurement, try again: {error!r}"
        ) from None


def _shown(file: str, directories: list[Any]) -> str:
    for directory in map(str, directories):
        if file.startswith(f"{directory.rstrip(os.sep)}{os.sep}"):
            return file[len(directory.rstrip(os.sep)) + 1 :]
    return os.path.basename(file)


def _print(seen: Mapping[str, Any]) -> None:
    before, after = seen["resident_bytes"]
    grown = after - before
    how = f"grew by {figures.format_bytes(grown)}" if grown > 0 else "did not grow"
    traced = figures.format_bytes(seen["traced_bytes"])
    click.echo(
        f"{logs.escape(seen['instance'])}: its process {how} in {seen['seconds'] * 0.75:.3g} s, to "
        f"{figures.format_bytes(after)}; {traced} of Python objects are kept"
    )
    for line in seen["lines"][:1]:
        held = next(iter(seen["holders"]), None)
        by = "" if held is None else f", and `{held['name']}` has grown most{_place(held)}"
        of = f"{line['shown']}:{line['line']}{by}"
        click.echo(logs.escape(f"{figures.format_bytes(line['bytes'])} are from {of}."))
    rows = [
        (figures.format_bytes(line["bytes"]), str(line["count"]), f"{line['shown']}:{line['line']}")
        for line in seen["lines"][:_LINES]
    ]
    if rows:
        print_table(("Grown by", "Objects", "Line"), rows)
    holders = [
        (row["name"], row["kind"], f"{row['before']} to {row['after']}")
        for row in seen["holders"][:_LINES]
    ]
    if holders:
        print_table(("Held by", "Type", "Items"), holders)
    _print_others(seen)
    for row in seen.get("processes", ()):
        whose = f"{row['role']} process {row['pid']}"
        click.echo(f"{figures.format_bytes(row['bytes'])} of its tensors are held by the {whose}.")
    for row in seen.get("spares", ()):
        size, names = figures.format_bytes(row["bytes"]), ", ".join(row["packages"][:3])
        what = f"the spare process {row['pid']} of its environment, which has imported {names}"
        click.echo(logs.escape(f"{size} are of {what}."))


def _place(held: Mapping[str, Any]) -> str:
    return f" ({os.path.basename(held['file'])}:{held['line']})" if held["line"] else ""


def _print_others(seen: Mapping[str, Any]) -> None:
    """Print the memory that libraries hold: arrays, tensors, and CUDA's allocator."""
    before, after = seen["array_bytes"]
    if after > before:
        click.echo(
            f"Arrays in containers: {figures.format_bytes(before)} to {figures.format_bytes(after)}"
        )
    for title, name in (("Tensors on", "tensors"), ("Memory of", "cuda")):
        for what, first, last in seen[name]:
            click.echo(
                logs.escape(
                    f"{title} {what}: {figures.format_bytes(first)} to {figures.format_bytes(last)}"
                )
            )
    untraced = seen["resident_bytes"][1] - seen["resident_bytes"][0] - seen["traced_bytes"]
    if untraced > max(1 << 20, seen["traced_bytes"]):
        click.echo(
            f"{figures.format_bytes(untraced)} are of libraries that Python knows nothing of."
        )
