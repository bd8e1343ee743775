"""`zmqtriton-ctl profile`: where a model spends its time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from zmqtriton.sdk.process import Client
from zmqtriton.sdk.wire import InvalidArgument, logs
from zmqtriton_extras.inspection.files import BY_FORM
from zmqtriton_extras.inspection.profile import (
    DOING,
    Line,
    Profile,
    Stack,
    idle_s,
    lines_of,
    others_of,
    read,
)
from zmqtriton_standard.ctl.asking import exit_on_error, run_with_client
from zmqtriton_standard.ctl.output import print_note, print_result
from zmqtriton_standard.ctl.selecting import MODEL, seconds_option
from zmqtriton_standard.ctl.tables import print_table

#: The server ends a profile in this time after its seconds, whatever the instances do.
_GRACE_S = 30.0
_LINES = 5
#: C code that keeps the interpreter's lock longer than this holds up other threads.
_LONG_HOLD_S = 0.05
_FORMS = ("table", "json", "yaml")
#: Makes the bytes of a file, by the end of its name.
_WRITERS = {file.end: file.write for file in BY_FORM.values()}


class _Output(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A form of output, or the name of a file."""

    name = "form or file"

    def get_metavar(self, param: click.Parameter, ctx: Any = None) -> str:
        return "[table|json|yaml|FILE]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | Path:
        if value in _FORMS:
            return str(value)
        if not str(value).endswith(tuple(_WRITERS)):
            ends = ", ".join(f"FILE{end}" for end in _WRITERS)
            self.fail(f"'{value}' is none of {', '.join(_FORMS)}, {ends}", param, ctx)
        return Path(value)


@click.command()
@click.argument("model", type=MODEL)
@seconds_option("--seconds", text="Seconds that the profile takes.", default=10, takes_zero=False)
@click.option(
    "--instance",
    default="",
    metavar="N",
    help="Look at this instance alone: its name, such as m_0_0, or its number from 0 on.",
)
@click.option(
    "--request", default="", metavar="ID", help="Count only the time of requests with this id."
)
@click.option(
    "-o",
    "--output",
    "output",
    type=_Output(),
    default="table",
    help="Form of the output, or a file: FILE.svg is a flame graph, FILE.speedscope.json and "
    "FILE.pb.gz (pprof) are for other programs. Default is table.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; the same as `-o json`.")
@click.pass_context
def profile(
    context: click.Context,
    *,
    model: str,
    seconds: float,
    instance: str,
    request: str,
    output: str | Path,
    as_json: bool,
) -> None:
    """Show the lines of its code where MODEL spends its time.

    The model continues to serve, and needs no preparation.
    """
    arguments = {"model": model, "seconds": seconds, "instance": instance, "request": request}

    def question(client: Client) -> Any:
        client.check_model(model)
        return client.call("profile", arguments, seconds + _GRACE_S)

    answer = run_with_client(context, question)
    with exit_on_error():
        seen = read(answer)
        if not seen.samples:
            what = f"request '{request}'" if request else "it"
            raise InvalidArgument(
                f"in {seconds:g} s nothing was seen of {what}: send requests meanwhile"
            )
        if isinstance(output, Path):
            _write(output, seen)
    form = "json" if as_json else output if isinstance(output, str) else "table"
    print_result(form, describe(seen), lambda: _print(seen))


def _write(path: Path, seen: Profile) -> None:
    data = next(write for end, write in _WRITERS.items() if path.name.endswith(end))(seen)
    try:
        path.write_bytes(data)
    except OSError as error:
        raise InvalidArgument(
            f"{path} cannot be written, choose another -o: {error.strerror}"
        ) from None


def describe(seen: Profile) -> dict[str, Any]:
    """Return the profile for programs."""
    return {
        "model": seen.model,
        "instances": list(seen.instances),
        "errors": list(seen.errors),
        "seconds": seen.seconds,
        "samples": seen.samples,
        "idle_seconds": idle_s(seen),
        "left_out_seconds": seen.left_out_s,
        "own_cpu_seconds": seen.own_s,
        "lines": [_describe_line(line) for line in lines_of(seen)],
        "other_threads": [
            {
                "thread": thread,
                "file": frame.file,
                "line": frame.line,
                "function": frame.function,
                "waits_seconds": seconds,
            }
            for thread, frame, seconds in others_of(seen)
        ],
    }


def _describe_line(line: Line) -> dict[str, Any]:
    below = line.below
    return {
        "file": line.frame.file,
        "line": line.frame.line,
        "function": line.frame.function,
        **{
            f"{name.lower()}_seconds": value
            for name, value in zip(DOING, line.seconds, strict=True)
        },
        "below": None
        if below is None
        else {
            "file": below.file,
            "line": below.line,
            "function": below.function,
            "seconds": line.below_s,
        },
    }


def _print(seen: Profile) -> None:
    instances = len(seen.instances)
    of = f"{instances} instances" if instances != 1 else seen.instances[0]
    idle = idle_s(seen) / seen.seconds
    click.echo(
        f"{seen.model}: {seen.seconds / instances:.1f} s of {of}, {seen.samples} samples; "
        f"{1 - idle:.0%} busy, {idle:.0%} waiting for requests"
    )
    rows = [_row(seen, line) for line in lines_of(seen)[:_LINES]]
    if rows:
        print_table(("Share", "Line", "Function", "Doing", "Below"), rows)
    else:
        click.echo("No line of the model's own was met.")
    others = [
        (_share(seconds, seen), f"{seen.shown(frame.file)}:{frame.line}", frame.function, thread)
        for thread, frame, seconds in others_of(seen)[:_LINES]
    ]
    if others:
        click.echo("Other threads that wait; one may hold a lock that a request waits for:")
        print_table(("Share", "Line", "Function", "Thread"), others)
    if seen.held_s > _LONG_HOLD_S:
        click.echo(
            f"{logs.escape(_holder(seen))}, or an operator before that call, kept the lock for "
            f"{seen.held_s:.2f} s at once."
        )
    for error in seen.errors:
        print_note(error)


def _row(seen: Profile, line: Line) -> tuple[str, ...]:
    frame, below = line.frame, line.below
    parts = sorted(zip(line.seconds, DOING, strict=True), reverse=True)
    doing = ", ".join(f"{name} {_share(s, seen)}" for s, name in parts if s > 0.005 * seen.seconds)
    under = (
        "" if below is None else f"{below.function} ({below.place}) {_share(line.below_s, seen)}"
    )
    where = f"{seen.shown(frame.file)}:{frame.line}"
    return _share(line.total_s, seen), where, frame.function, doing, under


def _share(seconds: float, seen: Profile) -> str:
    return f"{seconds / seen.seconds:.0%}".replace("%", " %")


def _holder(seen: Profile) -> str:
    own = Stack("", "", 0, seen.held, 0, 0).own
    frame = seen.held[own] if own >= 0 else seen.held[-1] if seen.held else None
    return "Something" if frame is None else f"{seen.shown(frame.file)}:{frame.line}"
