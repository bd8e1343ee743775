"""`zmqtriton-ctl reload` and `restart`."""

from __future__ import annotations

import sys
import time
from collections.abc import Container
from typing import Any

import click

from zmqtriton.control_client import QUICK_TIMEOUT_S, Client
from zmqtriton_floor.errors import Unavailable
from zmqtriton_standard.ctl import (
    EXIT_REFUSED,
    MODEL,
    check_name,
    print_result,
    run_with_client,
    shown_load,
    with_format,
)

_LOOK_EVERY_S = 0.1


@click.command()
@click.argument("model", type=MODEL)
@click.option("--no-wait", is_flag=True, help="Return before the new processes are ready.")
@click.option(
    "--instance",
    default="",
    metavar="NAME",
    help="Restart this instance alone, as `status` names it, such as m_0_0.",
)
@with_format
@click.pass_context
def restart(context: click.Context, *, model: str, no_wait: bool, instance: str, form: str) -> None:
    """Restart the processes of MODEL, and wait until it is ready; the requests they execute fail.

    For a model that hangs, and for one that was given up because it died too often. A load that is
    under way is ended and begun again, and the serving processes stay. Works in every model
    control mode. Use `reload` to take changed files into use without a failure.
    """
    ended = run_with_client(
        context,
        lambda client: _restart(client, model, instance=instance, no_wait=no_wait),
        to_change=True,
    )
    loaded = "its load has begun" if no_wait else "loaded"
    what = f"{ended} process{'es' if ended != 1 else ''} ended" if ended else loaded
    document = {"model": model, "result": "restarted", "ended": ended}
    document |= {"instance": instance} if instance else {}
    print_result(form, document, f"restarted {model}: {what}")


@click.command()
@click.argument("model", type=MODEL, default="")
@with_format
@click.pass_context
def reload(context: click.Context, model: str, form: str) -> None:
    """Load MODEL again if its files have changed, or every model whose files have.

    No request fails, and the old files serve on if the new ones cannot be loaded. With
    --model-control-mode none and poll, new models are loaded and models without a directory are
    unloaded; with explicit, this is about loaded models.
    """
    report = run_with_client(context, lambda client: _reload(client, model), to_change=True)
    print_result(form, report, lambda: _print_reloaded(model, report))
    if report["failed"]:
        sys.exit(EXIT_REFUSED)


def _print_reloaded(model: str, report: dict[str, Any]) -> None:
    for name in report["loaded"]:
        click.echo(f"loaded {name}")
    for name in report["unloaded"]:
        click.echo(f"unloaded {name}: its directory is gone")
    for name in report["gone"]:
        click.echo(f"{name} serves on without its directory; `zmqtriton-ctl unload {name}` ends it")
    unchanged = report["unchanged"]
    if model and unchanged:
        click.echo(f"{model} has not changed")
    elif not (report["loaded"] or report["unloaded"] or report["gone"] or report["failed"]):
        click.echo(f"nothing has changed ({len(unchanged)} model{'s' * (len(unchanged) != 1)})")
    for name, text in report["failed"].items():
        click.echo(f"error: {name}: {text.strip()}", err=True)


def _reload(client: Client, model: str) -> Any:
    check_name(client, model)
    with shown_load(client, model):
        return client.call("reload", {"model": model})


def _restart(client: Client, model: str, *, instance: str, no_wait: bool) -> Any:
    check_name(client, model)

    def stubs() -> list[dict[str, Any]]:
        return [one for one in _stubs(client, model) if instance in ("", one["instance"])]

    before = {stub["serial"] for stub in stubs()}
    arguments = {"model": model, "wait": not no_wait}
    arguments |= {"instance": instance} if instance else {}
    if no_wait:
        return client.call("restart", arguments, QUICK_TIMEOUT_S)
    with shown_load(client, model):
        ended = client.call("restart", arguments)
        while ended and not _is_back(stubs(), before):
            time.sleep(_LOOK_EVERY_S)
    return ended


def _stubs(client: Client, model: str) -> list[dict[str, Any]]:
    processes = client.call("status", timeout_s=QUICK_TIMEOUT_S)["processes"]
    return [one for one in processes if one["role"] == "stub" and one["model"] == model]


def _is_back(stubs: list[dict[str, Any]], before: Container[int]) -> bool:
    """True once all processes are new and ready. Raises Unavailable if one has been given up."""
    for stub in stubs:
        if stub["state"] == "FAILED":
            raise Unavailable(f"instance {stub['instance']} is given up: {stub['last_reason']}")
    return all(stub["state"] == "READY" and stub["serial"] not in before for stub in stubs)
