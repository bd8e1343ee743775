"""The commands of `zmqtriton-ctl`.

Exit status: 0 done, 1 refused by the server, 2 no server or wrong usage.
"""

from __future__ import annotations

import difflib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import click

from zmqtriton.ctl import canaries, drains, log_settings, repositories, scaling, stacks
from zmqtriton.ctl.client import QUICK_TIMEOUT_S, Client, ServerIdentity, ServerSelector, connect
from zmqtriton.ctl.environments import env
from zmqtriton.ctl.explaining import command as explaining
from zmqtriton.ctl.failing import exit_on_error
from zmqtriton.ctl.servers import servers
from zmqtriton.ctl.status import model_row, only_model, print_status
from zmqtriton.ctl.tables import print_table
from zmqtriton_floor import __version__
from zmqtriton_floor.errors import NotFound, ZmqTritonError
from zmqtriton_floor.logs import line as format_line

#: How often a server is asked for new lines.
_FOLLOW_EVERY_S = 0.3
_ALL_LINES = 1 << 30


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="zmqtriton-ctl")
@click.option(
    "--runtime-directory",
    default="",
    metavar="DIR",
    help="Runtime directory of the server. Default is $RUNTIME_DIRECTORY, or your newest server's.",
)
@click.option(
    "--server",
    default="",
    metavar="ID|PID|PORT",
    help="Which server, if several run; `zmqtriton-ctl servers` lists them.",
)
@click.pass_context
def cli(context: click.Context, runtime_directory: str, server: str) -> None:
    """Inspect and control a zmqtriton server on this machine."""
    context.obj = ServerSelector(runtime_directory, server)


def _run_with_client(
    context: click.Context, question: Callable[[Client], Any], *, to_change: bool = False
) -> Any:
    """Return the server's answer; end the program if it refuses or does not answer."""
    with exit_on_error(), connect(context.obj, to_change=to_change) as client:
        if client.other_count:
            which = f"{client.other_count + 1} servers run; this is {client.describe()}"
            click.echo(f"{which}. Others by --server, see `zmqtriton-ctl servers`.", err=True)
        return question(client)


@cli.command()
@click.argument("model", default="")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def status(context: click.Context, model: str, as_json: bool) -> None:
    """Show the server's processes, why any died, and its counters; with MODEL, that model's."""
    server, found, index = _run_with_client(
        context, lambda client: _read_status(client, model, as_json)
    )
    now_s = time.time()
    for process in found["processes"]:
        started_s = process["started_s"]
        process["uptime_s"] = round(max(0.0, now_s - started_s), 3) if started_s else None
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        print_status(server, found, index, now_s)


def _read_status(
    client: Client, model: str, as_json: bool
) -> tuple[ServerIdentity, dict[str, Any], list[Any]]:
    """Read the status, for people with the index."""
    found = client.call("status", timeout_s=QUICK_TIMEOUT_S)
    server = ServerIdentity.from_status(found)
    index = [] if as_json else client.call("index", {"ready": False}, timeout_s=QUICK_TIMEOUT_S)
    if model:
        found = only_model(model, found, index)
        index = [entry for entry in index if entry["name"] == model]
    return server, found, index


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--ready", is_flag=True, help="Only models that are ready.")
@click.pass_context
def models(context: click.Context, as_json: bool, ready: bool) -> None:
    """List the models of the repositories and their states."""
    entries = _run_with_client(
        context, lambda client: client.call("index", {"ready": ready}, timeout_s=QUICK_TIMEOUT_S)
    )
    if as_json:
        click.echo(json.dumps(entries, indent=2))
        return
    print_table(("Model", "Version", "State", "Reason"), [model_row(entry) for entry in entries])


@cli.command()
@click.argument("model")
@click.pass_context
def load(context: click.Context, model: str) -> None:
    """Load MODEL, or reload it if its files have changed."""
    _run_with_client(context, lambda client: _load(client, model), to_change=True)
    click.echo(f"loaded {model}")


@cli.command()
@click.argument("model")
@click.option("--dependents", is_flag=True, help="Unload its dependents too.")
@click.pass_context
def unload(context: click.Context, model: str, dependents: bool) -> None:
    """Unload MODEL; requests in flight are finished."""
    _run_with_client(context, lambda client: _unload(client, model, dependents), to_change=True)
    click.echo(f"unloaded {model}")


@cli.command()
@click.argument("model")
@click.pass_context
def restart(context: click.Context, model: str) -> None:
    """Restart the processes of MODEL; the requests they execute fail.

    For a model that hangs, and for one that was given up because it died too often. Works in every
    model control mode. Use `load` to take changed files into use without a failure.
    """
    ended = _run_with_client(context, lambda client: _restart(client, model), to_change=True)
    what = f"{ended} process{'es' if ended != 1 else ''} ended" if ended else "loaded"
    click.echo(f"restarted {model}: {what}")


def _restart(client: Client, model: str) -> Any:
    _check_name(client, model)
    return client.call("restart", {"model": model})


def _load(client: Client, model: str) -> None:
    try:
        client.call("load", {"model": model, "parameters": {}})
    except ZmqTritonError:
        _check_name(client, model)
        raise


def _unload(client: Client, model: str, dependents: bool) -> None:
    """Unload a model.

    Triton accepts any name, so a typing error would look like success.
    """
    _check_name(client, model)
    client.call("unload", {"model": model, "unload_dependents": dependents})


def _check_name(client: Client, model: str) -> None:
    """Raise NotFound for a name that no repository has and that is not served either."""
    known = [entry["name"] for entry in client.call("index", {"ready": False})]
    if model not in known:
        close = difflib.get_close_matches(model, known, 1)
        meant = f"; did you mean '{close[0]}'?" if close else "; `zmqtriton-ctl models` lists them"
        raise NotFound(f"there is no model '{model}'{meant}")


@cli.command()
@click.argument("model", default="")
@click.option(
    "--lines", "-n", default=100, type=click.IntRange(1), help="Number of lines; default is 100."
)
@click.option("--follow", "-f", is_flag=True, help="Follow the log until interrupted.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each line.")
@click.pass_context
def logs(context: click.Context, model: str, lines: int, follow: bool, as_json: bool) -> None:
    """Show the last lines of the log: the server's and its models', or those about MODEL.

    The broker and the frontends write to the server's stderr only.
    """
    write = _write_json if as_json else _write_line
    try:
        _run_with_client(context, lambda client: _read_logs(client, model, lines, follow, write))
    except KeyboardInterrupt:
        return  # the usual end of --follow
    except BrokenPipeError:
        # `| head` has enough; Python would complain when it flushes at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _read_logs(
    client: Client, model: str, lines: int, follow: bool, write: Callable[[dict[str, Any]], None]
) -> None:
    after = 0
    while True:
        asked = {"model": model, "after": after, "lines": lines}
        found = client.call("logs", asked, timeout_s=QUICK_TIMEOUT_S)
        if found["lost"]:
            click.echo(f"... {found['lost']} lines were lost", err=True)
        for line in found["lines"]:
            write(line)
        sys.stdout.flush()
        if not follow:
            return
        # later calls ask for everything that came since
        after, lines = found["last"], _ALL_LINES
        time.sleep(_FOLLOW_EVERY_S)


def _write_line(line: dict[str, Any]) -> None:
    origin = (line["pid"], line["file"], line["line"])
    click.echo(format_line(line["level"], origin, line["text"], line["time_s"]))


def _write_json(line: dict[str, Any]) -> None:
    click.echo(json.dumps(line))


def _scale(context: click.Context, arguments: dict[str, Any]) -> dict[str, Any]:
    def question(client: Client) -> Any:
        _check_name(client, arguments["model"])
        return client.call("scale", arguments)

    found: dict[str, Any] = _run_with_client(context, question, to_change=True)
    return found


def _update_log_settings(context: click.Context, changes: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = _run_with_client(
        context,
        lambda client: client.call("log.settings", {"changes": changes}, QUICK_TIMEOUT_S),
        to_change=bool(changes),
    )
    return found


def _change_repositories(context: click.Context, what: str, path: str) -> list[str]:
    verb = f"repository.{what}"
    paths: list[str] = _run_with_client(
        context, lambda client: client.call(verb, {"path": path}, QUICK_TIMEOUT_S), to_change=True
    )
    return paths


def _call_about_canary(context: click.Context, verb: str, arguments: dict[str, Any]) -> Any:
    """Make a call; one that loads a version takes as long as that does."""
    is_change = verb != "canary.status"
    timeout_s = None if is_change else QUICK_TIMEOUT_S
    return _run_with_client(
        context, lambda client: client.call(verb, arguments, timeout_s), to_change=is_change
    )


cli.add_command(canaries.build_group(_call_about_canary))
cli.add_command(env)
cli.add_command(explaining.build_command(_run_with_client))
cli.add_command(log_settings.build_command(_update_log_settings))
cli.add_command(scaling.build_command(_scale))
for _command in drains.build_commands(_run_with_client, _check_name):
    cli.add_command(_command)
cli.add_command(servers)
cli.add_command(stacks.build_command(_run_with_client))
cli.add_command(repositories.build_group(_change_repositories))


def main() -> None:
    """The entry point."""
    cli.main(prog_name="zmqtriton-ctl")


if __name__ == "__main__":
    main()
