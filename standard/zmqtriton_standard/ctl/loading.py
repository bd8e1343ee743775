"""The commands that change the models of a server, and the directories where it finds them.

`zmqtriton-ctl load`, `unload`, `reload`, `restart`, `scale`, `sleep`, `wake` and `repository`.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import Any

import click

from zmqtriton.sdk.process import Client, NoServerError, ServerSelector
from zmqtriton.sdk.wire import Unavailable, ZmqTritonError
from zmqtriton_standard.ctl.asking import EXIT_REFUSED, change_model, run_with_client
from zmqtriton_standard.ctl.output import LiveLine, print_note, print_result, with_format
from zmqtriton_standard.ctl.selecting import MODEL, CommandGroup

_PROGRESS_EVERY_S = 0.5
_LOOK_EVERY_S = 0.1


@contextmanager
def shown_load(client: Client, model: str) -> Iterator[None]:
    """Show the steps of a model's load while they last; "" shows the loads of all models."""
    done = threading.Event()
    with LiveLine(model or "loading") as line:
        watcher = threading.Thread(
            target=_watch,
            args=(ServerSelector(str(client.directory)), model, line, done),
        )
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def _watch(server: ServerSelector, model: str, line: LiveLine, done: threading.Event) -> None:
    """Look again and again; the command reports a server that does not answer."""
    if done.wait(_PROGRESS_EVERY_S):
        return  # most loads take less, and need no second connection
    try:
        with server.connect() as client:
            while not done.wait(_PROGRESS_EVERY_S):
                line.show(describe(client.call("loads", timeout_s=Client.QUICK_TIMEOUT_S), model))
    except (NoServerError, ZmqTritonError):
        return


def describe(phases: dict[str, str], model: str) -> str:
    """Describe the phase of a model's load, or of all loads."""
    if model:
        return phases.get(model, "")
    return ", ".join(f"{name} ({phase})" for name, phase in phases.items())


@click.command()
@click.argument("model", type=MODEL)
@with_format
@click.pass_context
def load(context: click.Context, model: str, form: str) -> None:
    """Load MODEL, or reload it if its files have changed."""
    outcome = run_with_client(context, lambda client: _load(client, model), to_change=True)
    is_same = outcome == "unchanged"
    text = f"{model} has not changed and serves on as it is" if is_same else f"loaded {model}"
    print_result(form, {"model": model, "result": "unchanged" if is_same else "loaded"}, text)


@click.command()
@click.argument("model", type=MODEL)
@click.option("--dependents", is_flag=True, help="Unload its dependents too.")
@with_format
@click.pass_context
def unload(context: click.Context, model: str, dependents: bool, form: str) -> None:
    """Unload MODEL; requests in flight are finished."""
    # Triton accepts any name, so a typing error would look like success
    change_model(context, "unload", model, unload_dependents=dependents)
    print_result(form, {"model": model, "result": "unloaded"}, f"unloaded {model}")


def _load(client: Client, model: str) -> Any:
    try:
        with shown_load(client, model):
            return client.call("load", {"model": model, "parameters": {}})
    except ZmqTritonError:
        client.check_model(model)
        raise


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
    """Restart the processes of MODEL; their requests fail.

    Waits until it is ready.
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
@click.option("--force", is_flag=True, help="Load MODEL with new processes in any case.")
@with_format
@click.pass_context
def reload(context: click.Context, *, model: str, force: bool, form: str) -> None:
    """Load MODEL, or every model, if its files have changed.

    No request fails, and the old version continues to serve if the new files cannot be loaded. With
    --model-control-mode none and poll, new models are loaded and models without a directory are
    unloaded; with explicit, this is about loaded models. With --force a model that hangs, or holds
    too much memory, gets new processes; the old ones end when their requests have.
    """
    if force and not model:
        raise click.UsageError("--force needs MODEL")
    report = run_with_client(
        context, lambda client: _reload(client, model, renews=force), to_change=True
    )
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
        click.echo(f"{model} has not changed; `reload {model} --force` replaces its processes")
    elif not (report["loaded"] or report["unloaded"] or report["gone"] or report["failed"]):
        click.echo(f"nothing has changed ({len(unchanged)} model{'s' * (len(unchanged) != 1)})")
    for name, text in report["failed"].items():
        print_note(f"error: {name}: {text.strip()}")


def _reload(client: Client, model: str, *, renews: bool) -> Any:
    client.check_model(model)
    with shown_load(client, model):
        return client.call("reload", {"model": model, "renews": renews})


def _restart(client: Client, model: str, *, instance: str, no_wait: bool) -> Any:
    client.check_model(model)

    def stubs() -> list[dict[str, Any]]:
        # an older generation answers its last requests, some of which may never end
        return [
            one
            for one in _stubs(client, model)
            if instance in ("", one["instance"]) and one["state"] not in ("DRAINING", "STOPPING")
        ]

    before = {stub["serial"] for stub in stubs()}
    arguments = {"model": model, "wait": not no_wait}
    arguments |= {"instance": instance} if instance else {}
    if no_wait:
        return client.call("restart", arguments, Client.QUICK_TIMEOUT_S)
    with shown_load(client, model):
        ended = client.call("restart", arguments)
        while ended and not _is_back(stubs(), before):
            time.sleep(_LOOK_EVERY_S)
    return ended


def _stubs(client: Client, model: str) -> list[dict[str, Any]]:
    processes = client.call("status", timeout_s=Client.QUICK_TIMEOUT_S)["processes"]
    return [one for one in processes if one["role"] == "stub" and one["model"] == model]


def _is_back(stubs: list[dict[str, Any]], before: Container[int]) -> bool:
    """True once all processes are new and ready. Raises Unavailable if one has been given up."""
    for stub in stubs:
        if stub["state"] == "FAILED":
            raise Unavailable(
                f"instance {stub['instance']} is given up, see `zmqtriton-ctl explain "
                f"{stub['model']}`: {stub['last_reason']}"
            )
    return all(stub["state"] == "READY" and stub["serial"] not in before for stub in stubs)


@click.command()
@click.argument("model", type=MODEL)
@click.argument("count", type=int, required=False)
@click.option(
    "--group", default="", metavar="G", help="The instance group, for a model with several."
)
@with_format
@click.pass_context
def scale(context: click.Context, model: str, count: int | None, group: str, form: str) -> None:
    """Give MODEL COUNT instances without a failed request.

    Without COUNT, show the number of instances.

    New instances are started before old ones may end, and old ones finish what they execute. Works
    in every model control mode. The number lasts over reloads, until MODEL is unloaded or another
    instance_group is configured. The answer names a number that was requested before the instances
    are ready.
    """
    arguments: dict[str, Any] = {} if count is None else {"count": count, "group": group}
    answer = change_model(context, "scale", model, **arguments)
    print_result(form, {"model": model, **answer}, lambda: _print_scaled(model, count, answer))


def _print_scaled(model: str, count: int | None, answer: dict[str, Any]) -> None:
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
    """Let MODEL free its memory by its sleep() method.

    Its processes stay.
    The next request, or `wake`, has it call its wake_up(). A model that has requests does not
    sleep.
    """
    _print(form, change_model(context, "sleep", model), "asleep")


@click.command()
@click.argument("model", type=MODEL)
@with_format
@click.pass_context
def wake(context: click.Context, model: str, form: str) -> None:
    """Wake MODEL up, before a request does."""
    _print(form, change_model(context, "wake", model), "awake")


def _print(form: str, answer: dict[str, Any], state: str) -> None:
    count = answer["instances"]
    text = f"{answer['model']}: {count} instance{'s' if count > 1 else ''} {state}"
    print_result(form, answer, text)


@click.group(cls=CommandGroup)
def repository() -> None:
    """Add repositories to a running server, or remove them.

    For servers that run with --model-control-mode=explicit.
    """


@repository.command()
@click.argument("path")
@with_format
@click.pass_context
def register(context: click.Context, path: str, form: str) -> None:
    """Look for models in PATH as well."""
    _change_repositories(context, "repository.register", path, form)


@repository.command()
@click.argument("path")
@with_format
@click.pass_context
def unregister(context: click.Context, path: str, form: str) -> None:
    """Stop looking for models in PATH; models that were loaded from it stay."""
    _change_repositories(context, "repository.unregister", path, form)


def _change_repositories(context: click.Context, verb: str, path: str, form: str) -> None:
    arguments = {"path": os.path.abspath(path)}
    paths = run_with_client(
        context,
        lambda client: client.call(verb, arguments, Client.QUICK_TIMEOUT_S),
        to_change=True,
    )
    print_result(form, {"repositories": paths}, "\n".join(paths))
