"""`zmqtriton-ctl scale`, `sleep` and `wake`: how much of the machine a model takes."""

from __future__ import annotations

from typing import Any

import click

from zmqtriton_standard.ctl import (
    MODEL,
    change_model,
    print_document,
    print_result,
    with_format,
)


@click.command()
@click.argument("model", type=MODEL)
@click.argument("count", type=int, required=False)
@click.option(
    "--group", default="", metavar="G", help="The instance group, for a model with several."
)
@with_format
@click.pass_context
def scale(context: click.Context, model: str, count: int | None, group: str, form: str) -> None:
    """Give MODEL COUNT instances, without a reload and without a failed request.

    Without COUNT, show how many it has.

    New ones are started before the others may end, and those finish what they execute. Works in
    every model control mode. It holds over reloads until MODEL is unloaded, or another
    instance_group is configured. If another number is asked for before the instances are ready, the
    answer says so.
    """
    arguments: dict[str, Any] = {} if count is None else {"count": count, "group": group}
    answer = change_model(context, "scale", model, **arguments)
    if form != "table":
        print_document(form, {"model": model, **answer})
        return
    for version, counts in answer["versions"].items():
        ready = f"{counts['ready']} of {counts['instances']} instances ready"
        click.echo(f"{'' if count is None else 'scaled '}{model}:{version}: {ready}")
    if "overtaken_by" in answer:
        click.echo(f"superseded: {answer['overtaken_by']} instances were requested meanwhile")
    _print_autoscale(answer.get("autoscale", {}))


def _print_autoscale(autoscale: dict[str, Any]) -> None:
    if autoscale:
        click.echo(f"follows the load from {autoscale['least']} to {autoscale['most']} instances")
    for name, text in (("last change", "last_change"), ("not more because", "obstacle")):
        if autoscale.get(text):
            click.echo(f"{name}: {autoscale[text]}")


@click.command()
@click.argument("model", type=MODEL)
@with_format
@click.pass_context
def sleep(context: click.Context, model: str, form: str) -> None:
    """Have MODEL give its memory back by its sleep(), and keep its processes.

    The next request, or `wake`, has it call its wake_up(). A model that has requests does not
    sleep.
    """
    _print(form, change_model(context, "sleep", model), "asleep")


@click.command()
@click.argument("model", type=MODEL)
@with_format
@click.pass_context
def wake(context: click.Context, model: str, form: str) -> None:
    """Have MODEL wake up, before a request does."""
    _print(form, change_model(context, "wake", model), "awake")


def _print(form: str, answer: dict[str, Any], state: str) -> None:
    count = answer["instances"]
    text = f"{answer['model']}: {count} instance{'s' if count > 1 else ''} {state}"
    print_result(form, answer, text)
