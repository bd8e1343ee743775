"""`zmqtriton-ctl logs` and `log-settings`: shows log lines, and sets which ones are written."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import click

from zmqtriton.sdk.process import Client, standard_output
from zmqtriton.sdk.wire import NotFound
from zmqtriton.sdk.wire import logs as log_text
from zmqtriton_standard.ctl.asking import run_with_client
from zmqtriton_standard.ctl.output import print_document, print_note, print_result, with_format
from zmqtriton_standard.ctl.selecting import MODEL

#: Seconds between two questions for new lines with `--follow`.
_FOLLOW_EVERY_S = 0.3
_ALL_LINES = 1 << 30
_DEFAULT_LINES = 100
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_TIME_OF_DAY = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")
Document = Mapping[str, Any]


@dataclass(frozen=True)
class _Selection:
    """The selection of lines that the user asks for."""

    model: str
    instance: str
    since_s: float
    #: Maximum number of lines; the last ones are shown.
    lines: int

    def has(self, line: dict[str, Any]) -> bool:
        return line["time_s"] >= self.since_s and (
            not self.instance or line["instance"] == self.instance or self._is_named(line)
        )

    def _is_named(self, line: dict[str, Any]) -> bool:
        """True for a line of the server that names the instance."""
        name = rf"(?<![\w.-]){re.escape(self.instance)}(?![\w-])"
        return not line["instance"] and re.search(name, line["text"]) is not None


def _parse_since(context: click.Context, parameter: click.Parameter, value: str) -> float:
    if not value:
        return 0.0
    try:
        return parse_moment(value, time.time())
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"'{value}' is no time; examples: 10m, 1h30m, 03:15, '2026-11-22 03:15'"
        ) from None


@click.command()
@click.argument("model", type=MODEL, default="")
@click.option(
    "--lines",
    "-n",
    type=click.IntRange(1),
    metavar="N",
    help=f"Number of lines; default is {_DEFAULT_LINES}, with --since all.",
)
@click.option(
    "--since",
    "since_s",
    default="",
    metavar="TIME|DURATION",
    callback=_parse_since,
    help="Only lines since a time (03:15, '2026-11-22 03:15') or a time span ago (10m, 1h30m).",
)
@click.option("--instance", default="", metavar="I", help="Only lines of or about this instance.")
@click.option(
    "--previous",
    is_flag=True,
    help="The last lines of the process that each instance had before, and why it ended.",
)
@click.option("--follow", "-f", is_flag=True, help="Follow the log until interrupted.")
@with_format
@click.pass_context
def logs(
    context: click.Context,
    model: str,
    *,
    lines: int | None,
    since_s: float,
    instance: str,
    previous: bool,
    follow: bool,
    form: str,
) -> None:
    """Show the last lines of the log, or those about MODEL.

    The server's lines are those of all its processes: frontends, broker and add-ons. In JSON, each
    line of the log is an object on a line of its own; in YAML, an element of a list.
    """
    if previous and follow:
        raise click.UsageError("a process that has ended writes nothing more: --follow")
    write = _WRITERS[form]
    count = lines or (_ALL_LINES if since_s or previous else _DEFAULT_LINES)
    selection = _Selection(model, instance, since_s, count)
    read = _read_previous if previous else _read_following if follow else _read_last
    try:
        run_with_client(context, lambda client: read(client, selection, write))
    except KeyboardInterrupt:
        return  # the usual end of --follow
    except BrokenPipeError:
        standard_output.discard()  # `| head` has enough


def _read_last(
    client: Client, selection: _Selection, write: Callable[[dict[str, Any]], None]
) -> int:
    """Write the last lines; return the number to continue from."""
    is_all = not (selection.since_s or selection.instance)
    answer = _ask(client, selection, 0, selection.lines if is_all else _ALL_LINES)
    lines = [line for line in answer["lines"] if selection.has(line)][-selection.lines :]
    if selection.model and not answer["lines"]:
        client.check_model(selection.model)
    if selection.since_s and selection.since_s < answer.get("begins_s", 0.0):
        begin = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(answer["begins_s"]))
        print_note(
            f"... the server has kept lines since {begin}; its log file or the journal has more"
        )
    for line in lines:
        write(line)
    sys.stdout.flush()
    return int(answer["last"])


def _read_following(
    client: Client, selection: _Selection, write: Callable[[dict[str, Any]], None]
) -> None:
    after = _read_last(client, selection, write)
    while not standard_output.is_unread():
        time.sleep(_FOLLOW_EVERY_S)
        answer = _ask(client, selection, after, _ALL_LINES)
        after = answer["last"]
        if answer["lost"]:
            print_note(f"... {answer['lost']} lines were lost")
        for line in filter(selection.has, answer["lines"]):
            write(line)
        sys.stdout.flush()


def _ask(client: Client, selection: _Selection, after: int, lines: int) -> dict[str, Any]:
    arguments = {"model": selection.model, "after": after, "lines": lines}
    answer: dict[str, Any] = client.call("logs", arguments, timeout_s=Client.QUICK_TIMEOUT_S)
    return answer


def _read_previous(
    client: Client, selection: _Selection, write: Callable[[dict[str, Any]], None]
) -> None:
    client.check_model(selection.model)
    status = client.call("status", timeout_s=Client.QUICK_TIMEOUT_S)
    kept = client.call(
        "logs.processes",
        {"model": selection.model},
        timeout_s=Client.QUICK_TIMEOUT_S,
    )
    processes = find_previous(selection.model, selection.instance, status, kept)
    if not processes:
        instances = known_instances(selection.model, status, kept)
        if selection.instance and selection.instance not in instances:
            there = ", ".join(instances) or "none"
            raise NotFound(f"there is no instance '{selection.instance}'; known: {there}")
        raise NotFound("no process of the model has ended; leave --previous out")
    for process in processes:
        print_note(_describe_end(process))
        for line in [line for line in process.lines if selection.has(line)][-selection.lines :]:
            write(line)


def _describe_end(process: PreviousProcess) -> str:
    pid = f", pid {process.pid}" if process.pid else ""
    reason = process.reason.splitlines()[0] if process.reason else "it ended before"
    wrote = "" if process.lines else " (it wrote nothing)"
    return f"{process.instance}{pid}: {reason}{wrote}"


def _write_line(line: dict[str, Any]) -> None:
    origin = (line["pid"], line["file"], line["line"])
    click.echo(log_text.line(line["level"], origin, line["text"], line["time_s"]))


_WRITERS: dict[str, Callable[[dict[str, Any]], None]] = {
    "table": _write_line,
    "json": lambda line: click.echo(json.dumps(line)),
    "yaml": lambda line: print_document("yaml", [line]),
}


def parse_moment(text: str, now_s: float) -> float:
    """Return seconds since 1970, for `10m`, `1h30m`, `03:15` or `2026-11-22 03:15`.

    A time of the day that is still to come is yesterday's. Raises ValueError.
    """
    if text and not _PART.sub("", text):
        return now_s - sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(text))
    if not _TIME_OF_DAY.fullmatch(text):
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    now = datetime.fromtimestamp(now_s)
    hour, minute, second = [*map(int, text.split(":")), 0][:3]
    moment = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
    if moment > now:
        moment -= timedelta(days=1)
    return moment.timestamp()


@dataclass(frozen=True)
class PreviousProcess:
    """A dead process of an instance."""

    instance: str
    pid: int
    #: Reason of its death, from the server; "" if another one has died since, or its instance is
    #: gone.
    reason: str
    lines: Sequence[dict[str, Any]]


def find_previous(
    model: str, instance: str, status: Document, kept: Iterable[Document]
) -> list[PreviousProcess]:
    """Return the last dead process of each instance of this name; "" means any instance.

    If that process wrote nothing, the last one that wrote comes first. `kept` has the lines that
    the server kept of each process, with the last writer at the end.
    """
    stubs = [process for process in status["processes"] if process["role"] == "stub"]
    living = {stub["pid"] for stub in stubs}
    newest: dict[str, PreviousProcess] = {
        process["instance"]: PreviousProcess(
            process["instance"], process["pid"], "", process["lines"]
        )
        for process in kept
        if process["pid"] not in living and _is_meant(process, model, instance)
    }
    processes = list(newest.values())
    for stub in stubs:
        if not (_is_meant(stub, model, instance) and stub["last_reason"]):
            continue
        died = PreviousProcess(stub["instance"], stub["last_pid"], stub["last_reason"], ())
        written = newest.get(died.instance)
        if written is not None and written.pid == died.pid:
            processes.remove(written)
            died = replace(died, lines=written.lines)
        processes.append(died)
    return sorted(processes, key=lambda process: process.instance)


def known_instances(model: str, status: Document, kept: Iterable[Document]) -> Collection[str]:
    """Return the names of all instances, present or past."""
    rows = [process for process in status["processes"] if process["role"] == "stub"]
    return sorted({row["instance"] for row in (*rows, *kept) if _is_meant(row, model, "")})


def _is_meant(row: Document, model: str, instance: str) -> bool:
    return model in ("", row["model"]) and instance in ("", row["instance"])


@click.command("log-settings")
@click.option("--info/--no-info", default=None, help="Log messages of level info.")
@click.option("--warning/--no-warning", default=None, help="Log messages of level warning.")
@click.option("--error/--no-error", default=None, help="Log messages of level error.")
@click.option(
    "--verbose",
    type=click.IntRange(0),
    metavar="LEVEL",
    help="Level of verbose messages; 0 turns them off.",
)
@click.option(
    "--format", type=click.Choice(["default", "ISO8601", "json"]), help="Form of the lines."
)
@with_format
@click.pass_context
def log_settings(
    context: click.Context,
    *,
    info: bool | None,
    warning: bool | None,
    error: bool | None,
    verbose: int | None,
    format: str | None,
    form: str,
) -> None:
    """Show or change what the server's processes log."""
    options = {
        "log_info": info,
        "log_warning": warning,
        "log_error": error,
        "log_verbose_level": verbose,
        "log_format": format,
    }
    changes = {name: value for name, value in options.items() if value is not None}
    settings = run_with_client(
        context,
        lambda client: client.call("log.settings", {"changes": changes}, Client.QUICK_TIMEOUT_S),
        to_change=bool(changes),
    )
    lines = [
        f"{name} {str(value).lower() if isinstance(value, bool) else value}".strip()
        for name, value in settings.items()
    ]
    print_result(form, settings, "\n".join(lines))
